"""What a run says about an input that a rule of severity `invalidate` has refused."""

from __future__ import annotations

from collections.abc import Iterable

from slackwater.model import Record
from slackwater.runs.inputs.manifest import InputObject


class InvalidInput(Record):
    """What a job writes whose rule of severity `invalidate` has failed: it has the manifest, which may be large."""

    reason: str
    hours: tuple[tuple[str, str], ...]
    """Sources with the UTC hours that the run has read of the refused input, such as 2026-01-01T15."""
    days: tuple[InputObject, ...]
    """The published days that the run has read of it."""


def refused_input(reason: str, objects: Iterable[InputObject]) -> InvalidInput:
    """Return what is said about these objects of a manifest."""
    objects = list(objects)
    hours = {(item.source, f"{item.date}T{item.hour}") for item in objects if item.tag is None}
    days = tuple(item for item in objects if item.is_published_day)
    return InvalidInput(reason=reason, hours=tuple(sorted(hours)), days=days)
