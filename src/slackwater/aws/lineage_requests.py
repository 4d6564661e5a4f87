"""Requests to the function `send_lineage`, which sends events of OpenLineage about runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from slackwater.aws.clients import Clients
from slackwater.aws.failures import translated
from slackwater.aws.function import warn as log_warning
from slackwater.errors import SlackwaterError
from slackwater.metrics import Warns
from slackwater.runs.record import Run


@dataclass(frozen=True)
class LineageRequests:
    """Requests to the function with this name; nothing is requested if it is empty: the deployment has no receiver.

    Call the methods after the run is recorded. An error is only logged: events never fail a run.
    """

    clients: Clients
    function: str
    warn: Warns = log_warning
    """By default in the log of a function, which is its standard output."""

    def started(self, run: Run) -> None:
        """Have the event sent that a run has started."""
        self._request("started", run)

    def ended(self, run: Run) -> None:
        """Have the events sent that a run and its stages have ended."""
        self._request("ended", run)

    def _request(self, event: Literal["started", "ended"], run: Run) -> None:
        if not self.function:
            return
        request = {"event": event, **run.model_dump(include={"pipeline", "date", "attempt", "correlation_id"})}
        try:
            with translated("request the lineage of a run"):
                # Not the answer: the receiver may be slow. Lambda keeps the request, and repeats a call that fails.
                self.clients("lambda").invoke(
                    FunctionName=self.function, InvocationType="Event", Payload=json.dumps(request)
                )
        except SlackwaterError as error:
            self.warn("no lineage of the run is sent", reason=str(error))
