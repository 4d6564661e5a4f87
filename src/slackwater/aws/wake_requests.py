"""Requests to the function `await_inputs`, which lets waiting runs go on when what they wait for has changed."""

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


@dataclass(frozen=True)
class WakeRequests:
    """Requests to the function with this name; nothing is requested if it is empty: no pipeline waits then.

    Call the methods after what has changed is stored. An error is only logged: a waiting run is evaluated again every
    15 minutes. With `raises`, the methods raise `CloudError` instead: a command has no log.
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

    def _request(self, request: dict[str, Any]) -> None:
        if not self.function:
            return
        logged = nullcontext() if self.raises else best_effort("runs that wait are evaluated in 15 minutes")
        with logged, translated("evaluate waiting runs"):
            # Not the answer: what is waited for may take long to read.
            self.clients("lambda").invoke(
                FunctionName=self.function, InvocationType="Event", Payload=json.dumps(request)
            )
