"""`slackwater diff`: what it starts, what it prints, and what it says when there is nothing to compare."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from slackwater.arrow.reference import ArrowReference
from slackwater.aws.machines import Machines
from slackwater.cli import session as session_module
from slackwater.cli.comparison import show_comparison
from slackwater.cli.main import run
from slackwater.cli.session import Session
from slackwater.late.comparison import MetricChange, Mover, RowChange, RowCounts
from slackwater.project import load_project
from slackwater.runs.difference import Amount, Change, InputChange, SourceDifference
from slackwater.runs.record import DayRecord, PublishedRun
from tests.fakes_cli import FakeObjects, FakeStates, Terminal
from tests.fakes_late import FROZEN, comparison
from tests.unit.test_cli_running import BEGIN, PUBLICATION, RUN

pytestmark = pytest.mark.unit

PROJECT = Path(__file__).resolve().parents[2] / "examples" / "nyc_flights"
WORDS = ["diff", "daily_delays", "--date", "2013-03-10", "--project", str(PROJECT)]
URI = "s3://exchange/comparisons/daily_delays/2013-03-10/1-2/comparison.json"
STATES = ["Choose the versions", "Is it to be made?", "Compare the versions", "Take the comparison"]


class Executions(FakeStates):
    """Executions that all pass through the same states."""

    def describe_execution(self, *, executionArn):  # noqa: N803
        self.scripts.setdefault(executionArn, [(self.status, list(STATES))])
        return super().describe_execution(executionArn=executionArn)


@pytest.fixture
def cloud(monkeypatch):
    """A cloud whose comparing machine ends as the test says."""

    def cloud(*, published=True, uri=URI, why="", error="", cause=""):
        reference = {"uri": uri, "before": 1, "after": 2, "differing": 1, "why": why}
        states = Executions(output=reference, error=error, cause=cause)
        states.status = "FAILED" if error else "SUCCEEDED"
        day = DayRecord(pipeline="daily_delays", date="2013-03-10")
        stands = PublishedRun(run=RUN, publication=PUBLICATION, at=BEGIN)
        day = day.model_copy(update={"published": stands}) if published else day
        session = Session(
            place=None,
            project=load_project(PROJECT),
            deployment=SimpleNamespace(compare_machine_arn="arn:compare-day"),
            cloud="fake",
        )
        session.__dict__.update(machines=Machines(states), table=SimpleNamespace(day=lambda *_: day))
        monkeypatch.setattr(session_module.Session, "open", lambda *_: session)
        objects = FakeObjects({URI: comparison().model_dump_json().encode()})
        monkeypatch.setattr(session_module, "client", lambda _: None)
        monkeypatch.setattr(session_module, "S3ObjectStore", lambda _: objects)
        return states

    return cloud


def test_the_published_version_is_compared_with_the_one_before(cloud, capsys):
    states = cloud()
    assert run(WORDS) == 0
    (call,) = states.started
    payload = json.loads(call["input"])
    assert call["stateMachineArn"] == "arn:compare-day"
    assert call["name"] == f"2013-03-10-{payload.pop('correlation_id')}"
    assert payload == {"pipeline": "daily_delays", "date": "2013-03-10", "since": "previous"}
    shown = capsys.readouterr()
    assert shown.out.startswith("daily_delays 2013-03-10: version 1 -> 2\n")
    assert [line.partition(":")[0] for line in shown.err.splitlines()] == [
        "Choose the versions", "Compare the versions", "Take the comparison",
    ]  # fmt: skip


def test_as_json_it_is_the_comparison_that_is_stored(cloud, capsys):
    cloud()
    assert run([*WORDS, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"comparison": comparison().model_dump(mode="json"), "why": None}


def test_one_version_alone_is_no_error(cloud, capsys):
    why = "2013-03-10 was published once: there is no earlier version"
    cloud(uri="", why=why)
    assert run(WORDS) == 0
    assert capsys.readouterr().out == f"{why}\n"
    assert run([*WORDS, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"comparison": None, "why": why}


def test_a_day_that_was_never_published_and_an_unknown_pipeline_start_nothing(cloud, capsys):
    states = cloud(published=False)
    assert run(WORDS) == 2
    assert "daily_delays has published nothing for 2013-03-10 (slackwater run" in capsys.readouterr().err
    assert run(["diff", "nothing", *WORDS[2:]]) == 2
    assert "no pipeline 'nothing' in this project" in capsys.readouterr().err
    assert run([*WORDS[:3], "10.3.2013", *WORDS[4:]]) == 2
    assert states.started == []


def test_a_failed_comparison_is_told_in_the_job_s_words(cloud, capsys):
    cloud(error="ComparisonFailed", cause="CloudError: the table has no tag 2013-03-10-abc-1 any more")
    assert run(WORDS) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: comparing daily_delays for 2013-03-10: CloudError: the table has no tag 2013-03-10-abc-1 any more"
    )


def busy_comparison():
    """A comparison with something of everything, and more than a screen takes."""
    keys = [{"origin": origin, "carrier": carrier} for origin in ("EWR", "JFK", "LGA") for carrier in "ABCDEF"]
    movers = tuple(Mover(key=key, before=None if n == 1 else 10.0, after=20.0) for n, key in enumerate(keys[:3]))
    columns = [f"a_rather_long_metric_{n}" for n in range(9)]
    metrics = (
        MetricChange(metric="on_time_share", total="mean", before=0.5, after=0.5),
        MetricChange(metric="flights", total="sum", before=831, after=1883, movers=movers),
        MetricChange(metric="dep_delay_mean", total="mean", before=None, after=3.25),
    )
    changed = dict.fromkeys(columns, (0.91234, 0.91235))
    examples = (
        RowChange(change=Change.ADDED, key=keys[0], values={"flights": (None, 3), "note": (None, "new\x1b[31m")}),
        RowChange(change=Change.REMOVED, key=keys[1], values={"flights": (3, None), "ok": (True, None)}),
        RowChange(change=Change.CHANGED, key={"origin": "x" * 200, "carrier": "東京"}, values=changed),
        *(RowChange(change=Change.CHANGED, key=key, values={"ok": (True, False)}) for key in keys[3:]),
    )
    file = "flights-2013-03-10-08.csv"
    changes = [
        InputChange(
            source="flights", date=day, hour=hour, file=file, change=Change.CHANGED, before=Amount(objects=1, rows=40),
            now=Amount(objects=1, rows=43), arrived=FROZEN + timedelta(days=2, hours=3, minutes=hour == "03"),
        )
        for day, hour in (("2013-03-10", "05"), ("2013-03-10", "06"), ("2013-03-11", "03"))
    ]  # fmt: skip
    pushed = InputChange(
        source="weather", date="2013-03-10", hour="12", file=None, change=Change.ADDED, now=Amount(objects=1, rows=3),
        arrived=FROZEN + timedelta(seconds=25),
    )  # fmt: skip
    gone = InputChange(
        source="weather", date="2013-03-10", hour="12", file=None, change=Change.REMOVED,
        before=Amount(objects=1, rows=2),
    )  # fmt: skip
    none = Amount()
    return comparison(
        rows=RowCounts(before=29, after=1030, added=1, removed=1, changed=1018),
        metrics=metrics,
        examples=examples,
        all_rows=ArrowReference(manifest="s3://exchange/rows/manifest.json", rows=1020, bytes=9, files=1, seconds=1),
        inputs=(
            SourceDifference(source="flights", before=none, now=none, changes=tuple(changes)),
            SourceDifference(source="weather", before=none, now=none, changes=(pushed, gone)),
        ),
    )


SCREEN = """\
daily_delays 2013-03-10: version 1 -> 2
  published 2013-03-11 06:01:22 UTC, again 2013-03-13 10:01:22 UTC, 2 days 4 h after
  29 -> 1,030 rows: 1 added, 1 removed, 1,018 changed, 11 the same

Metrics, over the day
metric                version 1  version 2    change  moved most
flights         sum         831      1,883  +126.6 %  EWR A: 10 -> 20
dep_delay_mean  mean       none       3.25       new
on_time_share   mean        0.5        0.5

Largest movers of flights
origin  carrier  version 1  version 2    change
EWR     A               10         20  +100.0 %
EWR     B             none         20       new
EWR     C               10         20  +100.0 %

Rows: 10 of 1,020
         origin                    carrier  version 1 -> 2
added    EWR                       A        flights 3, note new\\x1b[31m
removed  EWR                       B        flights 3, ok True
changed  xxxxxxxxxxxxxxxxxxxxx...  東京       a_rather_long_metric_0 0.91234 -> 0.91235, 8 more
changed  EWR                       D        ok True -> False
changed  EWR                       E        ok True -> False
changed  EWR                       F        ok True -> False
changed  JFK                       A        ok True -> False
changed  JFK                       B        ok True -> False
changed  JFK                       C        ok True -> False
changed  JFK                       D        ok True -> False
  all of them, as Arrow files: s3://exchange/rows/manifest.json

Inputs since version 1 listed its own, 2013-03-11 06:00:12 UTC
source   input                               events           hours, UTC            came
flights  flights-2013-03-10-08.csv  changed  120 -> 129 (+9)  03-10 05 to 03-11 03  2 days 3 h after
weather  pushed events              added    +3               03-10 12              25 s after
weather  pushed events              removed  -2               03-10 12              gone
"""


def test_the_whole_screen_reads_from_the_day_to_the_row_to_the_input(capsys):
    show_comparison(busy_comparison())
    shown = capsys.readouterr().out
    assert shown == SCREEN
    assert max(map(len, shown.splitlines())) <= 100


def test_on_a_terminal_it_says_the_same(monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.stdout", terminal)
    show_comparison(busy_comparison())
    shown = terminal.getvalue()
    for line in SCREEN.splitlines():
        assert line in shown


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inputs": ()}, "an input manifest is gone"),
        ({"inputs": (SourceDifference(source="flights", before=Amount(), now=Amount()),)}, "read the same inputs"),
        ({"rows": RowCounts(before=29, after=29, added=0, removed=0, changed=0)}, "29 rows, the same in both"),
        ({"metrics": ()}, "Rows\n"),
        ({"key": ("origin",)}, "version 1 -> 2"),
    ],
)
def test_a_part_that_is_missing_is_said_or_left_out(capsys, changes, words):
    if "key" in changes:
        changes = {**changes, "examples": (RowChange(change=Change.CHANGED, key={"origin": "EWR"}, values={}),)}
    show_comparison(comparison(**changes))
    assert words in capsys.readouterr().out


def test_a_table_whose_key_is_the_day_alone_is_shown_without_keys(capsys):
    row = RowChange(change=Change.CHANGED, key={}, values={"flights": (12, 13)})
    movers = (Mover(key={}, before=12, after=13),)
    metric = MetricChange(metric="flights", total="sum", before=12, after=13, movers=movers)
    show_comparison(comparison(key=(), examples=(row,), metrics=(metric,)))
    shown = capsys.readouterr().out
    assert "changed  flights 12 -> 13" in shown
    assert "+8.3 %  12 -> 13" in shown
