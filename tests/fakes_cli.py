"""What the command line's tests put in the place of AWS and of a terminal."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta

from slackwater.errors import ObjectMissing

BEGIN = datetime(2013, 3, 11, 6, tzinfo=UTC)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Pages:
    """A paginator over pages made beforehand."""

    def __init__(self, pages):
        self._pages = pages

    def paginate(self, **_):
        return iter(self._pages)


class FakeStates:
    """Step Functions with executions that are scripted as a list of (status, states passed so far).

    A state is still open with `…` after its name, and has failed with `!`.
    """

    def __init__(self, scripts=None, *, output=None, error="", cause=""):
        self.scripts = scripts or {}
        self.started = []
        self._now, self._over = [], False
        self._end = {"output": json.dumps(output or {}), "error": error, "cause": cause}

    def start_execution(self, **call):
        self.started.append(call)
        return {"executionArn": f"arn:execution:{call['name']}"}

    def describe_execution(self, *, executionArn):  # noqa: N803
        status, self._now = self.scripts[executionArn].pop(0)
        self._over = status != "RUNNING"
        found = {"status": status, "startDate": BEGIN}
        if status != "RUNNING":
            found |= {"stopDate": BEGIN + timedelta(seconds=10 * len(self._now)), **self._end}
        return found

    def get_paginator(self, _):
        events = []
        for place, name in enumerate(self._now):
            entered, exited = BEGIN + timedelta(seconds=10 * place), BEGIN + timedelta(seconds=10 * place + 9)
            events.append(
                {
                    "type": "TaskStateEntered",
                    "timestamp": entered,
                    "stateEnteredEventDetails": {"name": name.rstrip("…!")},
                }
            )
            if name.endswith("!"):
                events.append({"type": "TaskFailed", "timestamp": exited})
            if not name.endswith("…"):
                events.append(
                    {
                        "type": "TaskStateExited",
                        "timestamp": exited,
                        "stateExitedEventDetails": {"name": name.rstrip("!")},
                    }
                )
        if self._over:
            events.append({"type": "ExecutionFailed", "timestamp": BEGIN + timedelta(seconds=10 * len(self._now))})
        return Pages([{"events": events[:1]}, {"events": events[1:]}])


class FakeEmr:
    """EMR Serverless that knows some job runs."""

    def __init__(self, jobs):
        self._jobs = jobs

    def get_paginator(self, _):
        return Pages([{"jobRuns": [job]} for job in self._jobs])


class FakeObjects(dict):
    """Objects by address."""

    def get(self, uri):
        if uri not in self:
            raise ObjectMissing(uri)
        return self[uri]
