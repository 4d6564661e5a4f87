"""Fakes of AWS and of a terminal for the tests of the command line."""

from __future__ import annotations

import io
import json
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

from slackwater.client.client import Client
from slackwater.client.plan import Plan
from slackwater.client.resources import Connection
from slackwater.client.workspace import Workspace
from slackwater.errors import ObjectMissing

BEGIN = datetime(2013, 3, 11, 6, tzinfo=UTC)


class Terminal(io.StringIO):
    """A string buffer that is a terminal."""

    def isatty(self) -> bool:
        return True


class FakeClients(dict):
    """The clients of AWS's services by name."""

    def __call__(self, service):
        return self[service]

    def close(self):
        pass


def a_client(project=None, *, deployment=None, root=Path(), clients=None, **resources):
    """A client of no cloud, with the correlation id `c` and these resources."""
    connection = Connection(
        workspace=Workspace(root=root, project=root),
        project=project,
        deployment=deployment,
        cloud="a test",
        clients=FakeClients(clients or {}),
    )
    client = Client(correlation_id="c", connection=connection)
    vars(client).update({"deployed": project, **resources})
    return client


def use_client(monkeypatch, client):
    """Let commands use this client, or a part of one, for which the files are deployed."""
    if not isinstance(client, Client):
        vars(client).setdefault("plan", lambda _: Plan(changes=()))
        vars(client).setdefault("connection", SimpleNamespace(cloud="a test"))
    monkeypatch.setattr(Client, "open", lambda *_: nullcontext(client))


class Pages:
    """A paginator over pages in memory."""

    def __init__(self, pages):
        self._pages = pages

    def paginate(self, **_):
        return iter(self._pages)


class FakeStates:
    """Step Functions whose executions follow scripts: lists of (status, states entered so far).

    A `…` after the name of a state means that it has not exited, a `!` that it has failed. `types` gives the type of
    each state that is not a task, `services` the service that a task calls, if not `lambda`.
    """

    def __init__(self, scripts=None, *, types=None, services=None, output=None, error="", cause=""):
        self.scripts, self._types, self._services = scripts or {}, types or {}, services or {}
        self.started = []
        self._now, self._over = [], False
        self._end = {"output": json.dumps(output or {}), "error": error, "cause": cause}

    def start_execution(self, **call):
        self.started.append(call)
        return {"executionArn": f"arn:execution:{call['name']}"}

    def describe_execution(self, *, executionArn):  # noqa: N803
        status, self._now = self.scripts[executionArn].pop(0)
        self._over = status != "RUNNING"
        description = {"status": status, "startDate": BEGIN}
        if status != "RUNNING":
            description |= {"stopDate": BEGIN + timedelta(seconds=10 * len(self._now)), **self._end}
        return description

    def get_paginator(self, _):
        events = []
        for index, name in enumerate(self._now):
            entered, exited = BEGIN + timedelta(seconds=10 * index), BEGIN + timedelta(seconds=10 * index + 9)
            state = name.rstrip("…!")
            state_type = self._types.get(state, "Task")
            events.append(
                {
                    "type": f"{state_type}StateEntered",
                    "timestamp": entered,
                    "stateEnteredEventDetails": {"name": state},
                }
            )
            if state_type == "Task":
                details = {"resourceType": self._services.get(state, "lambda"), "resource": "any"}
                events.append({"type": "TaskScheduled", "timestamp": entered, "taskScheduledEventDetails": details})
            if name.endswith("!"):
                events.append({"type": "TaskFailed", "timestamp": exited})
            if not name.endswith("…"):
                events.append(
                    {
                        "type": f"{state_type}StateExited",
                        "timestamp": exited,
                        "stateExitedEventDetails": {"name": state},
                    }
                )
        if self._over:
            events.append({"type": "ExecutionFailed", "timestamp": BEGIN + timedelta(seconds=10 * len(self._now))})
        return Pages([{"events": events[:1]}, {"events": events[1:]}])


class FakeEmr:
    """EMR Serverless with job runs in memory."""

    def __init__(self, jobs):
        self._jobs = jobs

    def get_paginator(self, _):
        return self

    def paginate(self, *, createdAtAfter, createdAtBefore, **_):  # noqa: N803
        return ({"jobRuns": [job]} for job in self._jobs if createdAtAfter <= job["createdAt"] <= createdAtBefore)

    def get_job_run(self, *, applicationId, jobRunId):  # noqa: N803
        return {"jobRun": next(job for job in self._jobs if job["id"] == jobRunId)}


class FakeObjects(dict):
    """Objects by URI."""

    def get(self, uri):
        if uri not in self:
            raise ObjectMissing(uri)
        return self[uri]
