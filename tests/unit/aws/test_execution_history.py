"""Events of executions: the state that each belongs to, and the transitions that people read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.executions.execution_history import Transition, read_history, transitions, with_states
from slackwater.aws.executions.state_machines import StateMachines
from slackwater.errors import CloudError
from tests.fakes_cli import Pages

pytestmark = pytest.mark.unit

BEGIN = datetime(2013, 3, 11, 6, tzinfo=UTC)


def history(*events):
    """Events from (id of the event before, type, details); ids count from 1, and each is a second later."""
    return [
        {"id": number, "previousEventId": previous, "type": event_type, "timestamp": at(number), **details}
        for number, (previous, event_type, details) in enumerate(events, 1)
    ]


def at(number):
    return BEGIN + timedelta(seconds=number)


def entered(name):
    return {"stateEnteredEventDetails": {"name": name, "input": "{}"}}


def exited(name):
    return {"stateExitedEventDetails": {"name": name}}


def scheduled(service):
    return {"taskScheduledEventDetails": {"resourceType": service, "resource": "any"}}


FAILED = {"taskFailedEventDetails": {"error": "Throttled", "cause": "slow down"}}
# Two branches whose events are mixed, as Step Functions writes them: the job of b is throttled once.
PARALLEL = history(
    (0, "ExecutionStarted", {"executionStartedEventDetails": {"input": "{}"}}),
    (1, "ParallelStateEntered", entered("both")),
    (2, "ParallelStateStarted", {}),
    (3, "TaskStateEntered", entered("a")),
    (3, "TaskStateEntered", entered("b")),
    (4, "TaskScheduled", scheduled("emr-serverless")),
    (5, "TaskScheduled", scheduled("lambda")),
    (7, "TaskFailed", FAILED),
    (6, "TaskSucceeded", {}),
    (8, "TaskScheduled", scheduled("lambda")),
    (9, "TaskStateExited", exited("a")),
    (10, "TaskTimedOut", {"taskTimedOutEventDetails": {"error": "States.Timeout"}}),
    (12, "ParallelStateFailed", {}),
    (13, "ExecutionFailed", {"executionFailedEventDetails": {"error": "RunFailed", "cause": "why"}}),
)


def test_an_event_belongs_to_the_state_of_its_branch():
    assert [position for _, position in with_states(PARALLEL)] == [-1, 0, 0, 1, 2, 1, 2, 2, 1, 2, 1, 2, 2, 2]


def test_transitions_name_the_state_that_failed_or_was_retried():
    assert list(transitions(PARALLEL)) == [
        Transition(at=at(1), state="", event="started"),
        Transition(at=at(2), state="both", event="entered"),
        Transition(at=at(4), state="a", event="entered"),
        Transition(at=at(5), state="b", event="entered"),
        Transition(at=at(8), state="b", event="failed", error="Throttled", cause="slow down"),
        Transition(at=at(10), state="b", event="retried"),
        Transition(at=at(12), state="b", event="timed out", error="States.Timeout"),
        Transition(at=at(13), state="b", event="failed"),
        Transition(at=at(14), state="", event="failed", error="RunFailed", cause="why"),
    ]


@pytest.mark.parametrize(
    ("event_type", "event"),
    [("Succeeded", "succeeded"), ("Failed", "failed"), ("Aborted", "aborted"), ("TimedOut", "timed out")],
)
def test_an_execution_ends_in_its_own_words(event_type, event):
    ended = history((0, "ExecutionStarted", {}), (1, f"Execution{event_type}", {}))
    assert [(item.state, item.event) for item in transitions(ended)] == [("", "started"), ("", event)]


def test_states_of_parallel_branches_have_the_service_that_they_called():
    class States:
        def describe_execution(self, **_):
            return {"status": "FAILED", "startDate": BEGIN, "stopDate": at(14)}

        def get_paginator(self, _):
            return Pages([{"events": PARALLEL[:7]}, {"events": PARALLEL[7:]}])

    assert list(read_history(States(), "arn")) == PARALLEL
    states = {state.name: state for state in StateMachines(States()).view("arn").states}
    assert {name: state.service for name, state in states.items()} == {"both": "", "a": "emr-serverless", "b": "lambda"}
    assert {name: (state.exited, state.failed) for name, state in states.items()} == {
        "both": (at(14), True),
        "a": (at(11), False),
        "b": (at(14), True),
    }


def test_states_of_a_failed_branch_end_with_the_state_around_them():
    events = history(
        (0, "ParallelStateEntered", entered("both")),
        (1, "TaskStateEntered", entered("a")),
        (1, "TaskStateEntered", entered("b")),
        (2, "TaskFailed", FAILED),
        (4, "ParallelStateFailed", {}),
        (5, "ParallelStateExited", exited("both")),
        (6, "TaskStateEntered", entered("record")),
        (7, "TaskStateExited", exited("record")),
        (8, "ExecutionSucceeded", {}),
    )

    class States:
        def describe_execution(self, **_):
            return {"status": "SUCCEEDED", "startDate": BEGIN, "stopDate": at(9)}

        def get_paginator(self, _):
            return Pages([{"events": events}])

    ended = {state.name: (state.exited, state.failed) for state in StateMachines(States()).view("arn").states}
    assert ended == {"both": (at(6), True), "a": (at(6), True), "b": (at(6), True), "record": (at(8), False)}


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("ExecutionDoesNotExist", "^could not .* arn: Step Functions keeps it for 90 days .* run from its file"),
        ("InternalFailure", "^could not .* arn: InternalFailure"),
    ],
)
@pytest.mark.parametrize(
    "read", [lambda states: StateMachines(states).view("arn"), lambda s: next(read_history(s, "arn"))]
)
def test_an_execution_that_step_functions_does_not_know_is_explained(read, code, says):
    class States:
        def describe_execution(self, **_):
            raise ClientError({"Error": {"Code": code}}, "DescribeExecution")

        def get_paginator(self, _):
            return self

        def paginate(self, **_):
            return self.describe_execution()

    with pytest.raises(CloudError, match=says):
        read(States())
