"""Fixtures of the tests of pushed events."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lambdas import receive_events
from slackwater.receiver.push.request import EventsApi
from tests.fakes_functions import use_resources
from tests.fakes_receiver import MemoryEventCounts


@pytest.fixture
def event_counts() -> MemoryEventCounts:
    """The counts to which the function adds the events of each batch."""
    return MemoryEventCounts()


@pytest.fixture
def use_api(monkeypatch: pytest.MonkeyPatch, event_counts: MemoryEventCounts) -> Callable[[EventsApi], object]:
    """Let the function answer requests with an API."""
    return lambda api: use_resources(monkeypatch, receive_events, events_api=api, event_counts=event_counts)
