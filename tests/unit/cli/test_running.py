"""The states of an execution as progress."""

from __future__ import annotations

import pytest

from slackwater.cli.running import show_states
from slackwater.progress import ProgressBoard
from tests.fakes_cli import FakeStates
from tests.unit.client.test_runs import STATES, TYPES, followed

pytestmark = pytest.mark.unit


def test_completed_states_and_the_failed_state_are_shown(capsys):
    failed = [*STATES[:2], "Run joined!", "Record the failure", "Fail the run…"]
    states = FakeStates({"arn:e": [("RUNNING", ["Freeze inputs…"]), ("FAILED", failed)]}, types=TYPES)
    with ProgressBoard() as progress:
        for view in followed(states)[0]:
            show_states(progress, view)
    assert capsys.readouterr().err.splitlines() == [
        "Freeze inputs: running",
        "Freeze inputs: done 9.0 s",
        "Run joined: failed 9.0 s",
        "Record the failure: done 9.0 s",
    ]


def test_states_that_only_choose_or_end_are_not_shown(capsys):
    names = ["Freeze inputs", "Decide what to do", "Wait for the other execution", "Finish"]
    states = FakeStates({"arn:e": [("SUCCEEDED", names)]}, types={**TYPES, "Finish": "Succeed"})
    with ProgressBoard() as progress:
        show_states(progress, followed(states)[0][-1])
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == [
        "Freeze inputs",
        "Wait for the other execution",
    ]


def test_a_state_entered_again_is_shown_again(capsys):
    waited = ["Freeze inputs", "Wait for the other execution", "Freeze inputs"]
    states = FakeStates({"arn:e": [("SUCCEEDED", waited)]})
    with ProgressBoard() as progress:
        show_states(progress, followed(states)[0][-1])
    assert "Freeze inputs (2): done 9.0 s" in capsys.readouterr().err
