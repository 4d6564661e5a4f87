"""The default event bus of EventBridge: messages about periods for other programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slackwater.aws.failures import translated
from slackwater.errors import Throttled
from slackwater.runs.periods.changes import PeriodChanged

SOURCE, PERIOD_CHANGED = "slackwater", "Slackwater Period Changed"
"""Source and detail type of the events."""


class EventBus:
    """Sends events."""

    def __init__(self, events: Any) -> None:
        self._events = events

    def put_changes(self, changes: Sequence[PeriodChanged]) -> None:
        """Send messages, at most ten. Raises `CloudError`; some may have been sent even then."""
        entries = [
            {"Source": SOURCE, "DetailType": PERIOD_CHANGED, "Detail": change.model_dump_json()} for change in changes
        ]
        with translated("send events"):
            response = self._events.put_events(Entries=entries)
        for entry in response["Entries"] if response["FailedEntryCount"] else ():
            if "ErrorCode" in entry:
                raise Throttled(f"could not send events: {entry['ErrorCode']}: {entry.get('ErrorMessage', '')}")
