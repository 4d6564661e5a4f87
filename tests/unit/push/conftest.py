"""Fixtures of the tests of pushed events."""

from __future__ import annotations

import pytest

from lambdas import receive_events
from tests.fakes_receiver import MemoryEventCounts


@pytest.fixture(autouse=True)
def event_counts(monkeypatch: pytest.MonkeyPatch) -> MemoryEventCounts:
    """The counts to which the function adds the events of each batch."""
    counts = MemoryEventCounts()
    monkeypatch.setattr(receive_events, "build_event_counts", lambda: counts)
    return counts
