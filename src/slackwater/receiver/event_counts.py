"""How many events a source has sent, and how many of them were rejected."""

from __future__ import annotations

from typing import NamedTuple

HISTORY_DAYS = 14
"""The UTC days before today whose counts are read, to compare the latest hours with them."""


class EventCount(NamedTuple):
    """How many events a source has sent in a time, and how many of them were rejected."""

    events: int
    rejected: int
