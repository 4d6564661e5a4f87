"""How a timeline is printed: the table, the bars on a terminal, and the sums."""

from __future__ import annotations

import json

import pytest

from slackwater.cli.output import to_json_value
from slackwater.cli.timeline import bars, show_timeline, timeline_document
from slackwater.client.client import Client
from slackwater.client.days.runs import RunSeconds
from slackwater.client.days.timeline import SlowestStep, StageTime, StepTime, Timeline
from slackwater.runs.record import RunRecord, RunState
from tests.example_project import PROJECT
from tests.fakes_cli import BEGIN, Terminal
from tests.unit.client.test_runs import RUN

pytestmark = pytest.mark.unit

JOINED = StageTime(
    stage="joined", state="done", start=10.0, waiting=5.0, starting=10.0, working=5.0, seconds=20.0, rows_in=950,
    rows_out=899, steps=(StepTime(name="joined", step="join", rows_in=950, rows_out=899),),
)  # fmt: skip
COUNTED = StageTime(
    stage="counted", state="failed", start=30.0, waiting=5.0, seconds=10.0, steps=(
        StepTime(name="publish", step="publish", rows_in=16, rows_out=16, seconds=2.0),
    ),
)  # fmt: skip
KEPT = StageTime(stage="kept_stage", state="kept", kept_from=1, rows_in=5, rows_out=4)


SLOWEST = SlowestStep("joined", 5.0, 3)


def a_timeline(*stages, orchestration=20.0, missing=(), slowest=SLOWEST):
    record = RunRecord(run=RUN, state=RunState.FAILED, execution="arn:e", started_at=BEGIN)
    seconds = RunSeconds(total=50.0, orchestration=orchestration)
    return Timeline(record=record, begin=BEGIN, seconds=seconds, stages=stages, slowest=slowest, missing=missing)


def test_each_stage_and_step_is_a_line(capsys):
    show_timeline(a_timeline(KEPT, JOINED, COUNTED, missing=("no permission",)))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "daily_delays 2013-03-10, attempt 2: failed, 50 s",
        "stage step state start waiting starting working rows in rows out",
        "kept_stage kept from attempt 1 5 4",
        "joined done 10 5 10 5 950 899",
        "joined (join) 950 899",
        "counted failed 30 5",
        "publish 2 16 16",
        "slowest step: joined (5.0 s, together with 2 other steps of its stage)",
        "orchestration: 20.0 s (40 %)",
        "not read: no permission",
    ]


@pytest.mark.parametrize(
    ("together", "others"), [(1, "5.0 s)"), (2, "5.0 s, together with 1 other step of its stage)")]
)
def test_other_steps_of_the_slowest_stage_are_counted(capsys, together, others):
    show_timeline(a_timeline(slowest=SlowestStep("joined", 5.0, together), orchestration=None))
    shown = capsys.readouterr().out
    assert shown.splitlines() == [
        "daily_delays 2013-03-10, attempt 2: failed, 50 s, no stage has started",
        f"slowest step: joined ({others}",
    ]


@pytest.mark.parametrize("width", [10, 25, 50])
def test_a_bar_has_the_length_of_its_seconds(width):
    lines = bars([KEPT, JOINED, COUNTED], 50.0, width=width)
    scale = width / 50
    assert [line[:11] for line in lines] == ["joined     ", "counted    "]
    joined, counted = (line[11:] for line in lines)
    for bar, second, character in ((joined, 12, "."), (joined, 20, "-"), (joined, 28, "#"), (counted, 38, "=")):
        assert bar[int(second * scale)] == character
    assert len(joined) == round(30 * scale)
    assert len(counted) == round(40 * scale)


@pytest.mark.parametrize("total", [0.0, 50.0])
def test_without_a_job_or_without_time_there_is_no_bar(total):
    assert bars([KEPT] if total else [JOINED], total, width=10) == []


def test_a_terminal_shows_bars_and_what_they_mean(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    show_timeline(a_timeline(JOINED))
    assert "#####" in terminal.getvalue()
    assert ". waiting  - starting Spark  # working" in terminal.getvalue()


def test_the_document_has_all_values():
    document = json.loads(json.dumps(to_json_value(timeline_document(a_timeline(KEPT, JOINED)))))
    assert document["slowest"] == {"name": "joined", "seconds": 5.0, "together": 3}
    assert document["seconds"] == {"total": 50.0, "spark_start": None, "spark_work": None, "orchestration": 20.0}
    assert [(stage["stage"], stage["kept_from"], len(stage["steps"])) for stage in document["stages"]] == [
        ("kept_stage", 1, 0),
        ("joined", None, 1),
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["runs", "--timeline"], "--timeline and --attempt: they are for one run"),
        (["runs", "daily_delays", "--attempt", "1"], "--timeline and --attempt: they are for one run"),
        (["runs", "daily_delays", "--timeline"], "date: missing"),
        (["runs", "ab" * 6, "--date", "2013-03-10"], "date: the run"),
        (["logs", "daily_delays"], "date: missing"),
        (["logs", "ab" * 6, "--date", "2013-03-10"], "date: the run"),
    ],
)
def test_a_run_that_is_not_named_well_is_an_error_before_anything_is_read(monkeypatch, printed_by, arguments, expected):
    monkeypatch.setattr(Client, "open", None)
    assert expected in printed_by(*arguments, *PROJECT, code=2).err
