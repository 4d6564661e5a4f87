"""Requests to the function `await_inputs`: have waiting runs evaluated, and open periods published."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from slackwater.aws.clients import Clients
from slackwater.aws.failures import translated
from slackwater.aws.function import best_effort
from slackwater.state.verdicts import Subject

_NEXT_WAIT = "runs that wait are evaluated in 15 minutes"
_NEXT_SCHEDULED = "open periods are published at the next scheduled time"


@dataclass(frozen=True)
class WakeRequests:
    """Requests to the function with this name; nothing is requested if it is empty: no pipeline needs it then.

    Call the methods after what has changed is stored. An error is only logged: a waiting run is evaluated again every
    15 minutes, and an open period is published at regular times. With `raises`, the methods raise `CloudError` instead:
    a command has no log.
    """

    clients: Clients
    function: str
    raises: bool = False

    def wake_source(self, source: str, hours: Iterable[datetime] | None = None) -> None:
        """Have the runs evaluated that wait for these UTC hours of the source, or for any hour."""
        listed = None if hours is None else sorted({hour.isoformat() for hour in hours})
        self._request({"event": "source", "source": source, "hours": listed})

    def wake_day(self, pipeline: str, date: str) -> None:
        """Have the runs evaluated that wait for this day of a pipeline."""
        self._request({"event": "day", "pipeline": pipeline, "date": date})

    def wake_verdict(self, subject: Subject, periods: Iterable[str], at: datetime) -> None:
        """Have the runs evaluated that wait for the quality of these periods, or of what has read them.

        Published days are checked that may have read them. `at` is when the verdict was given.
        """
        self._request({"event": "verdict", **subject._asdict(), "periods": list(periods), "at": at.isoformat()})

    def start_counted(self, source: str, hours: Iterable[datetime]) -> None:
        """Have open periods published of which windows in these UTC hours of the source have all of their events."""
        request = {"event": "counted", "source": source, "hours": sorted({hour.isoformat() for hour in hours})}
        self._request(request, _NEXT_SCHEDULED)

    def start_next(self, pipeline: str, date: str) -> None:
        """Have an open period published again, of which windows have become full during the run that has ended."""
        request = {"event": "provisional", "pipeline": pipeline, "date": date}
        self._request(request, _NEXT_SCHEDULED)

    def _request(self, request: dict[str, Any], otherwise: str = _NEXT_WAIT) -> None:
        if not self.function:
            return
        logged = nullcontext() if self.raises else best_effort(otherwise)
        with logged, translated("evaluate waiting runs"):
            # Not the answer: what is waited for may take long to read.
            self.clients("lambda").invoke(
                FunctionName=self.function, InvocationType="Event", Payload=json.dumps(request)
            )
