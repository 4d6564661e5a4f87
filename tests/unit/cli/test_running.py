"""The states of an execution as progress."""

from __future__ import annotations

import pytest

from slackwater.cli.running import show_states, shown_states
from slackwater.errors import RunFailed
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


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (
            "DefinitionError: pipeline p: steps.rows.with.query: Division by zero. (line 2, column 3)",
            "p.yaml:6:11  steps.rows.with.query: Division by zero.",
        ),
        (
            "DefinitionError: pipeline p: steps.checked.with.rules.0.column: amount is no number",
            "p.yaml:9:45  steps.checked.with.rules.0.column: amount is no number",
        ),
        (
            "DataError: steps.checked: range of a failed in 1 of 2",
            "p.yaml:7:3  steps.checked: range of a failed in 1 of 2",
        ),
        (
            "DefinitionError: pipeline p: steps.gone.with.query: no",
            "DefinitionError: pipeline p: steps.gone.with.query: no",
        ),
        ("CloudError: no capacity", "CloudError: no capacity"),
    ],
)
def test_the_failure_of_a_step_has_its_position_in_the_file(tmp_path, monkeypatch, reason, shown):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.yaml").write_text("""\
steps:
  rows:
    with:
      query: |
        SELECT 1,
        1 / 0
  checked:
    with:
      rules: [{rule: range, min: 1, column: amount}]
""")
    with (
        pytest.raises(RunFailed) as failure,
        shown_states("p for 2024-03-04", file=tmp_path / "p.yaml", remedy="its log: ..."),
    ):
        raise RunFailed(reason)
    assert str(failure.value) == f"p for 2024-03-04: {shown}\n  its log: ..."
