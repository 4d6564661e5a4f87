"""`slackwater diff`: the execution it starts, and what it prints with and without a comparison."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from types import SimpleNamespace

import pytest

from slackwater.arrow.reference import ArrowReference
from slackwater.cli.commands.diff import show_comparison
from slackwater.cli.main import run
from slackwater.costs.cost import RunCost
from slackwater.late.changes.pairs import split_uri
from slackwater.late.comparison import MetricChange, MetricSplit, Mover, RowChange, RowCounts, Split
from slackwater.late.report.page import report_page
from slackwater.project.project import load_project
from slackwater.runs.inputs.difference import Amount, Change, InputChange, SourceDifference
from slackwater.runs.record import DayRecord, PublishedRun, RunRecord, RunState
from tests.example_project import EXAMPLE, PROJECT
from tests.fakes_cli import FakeObjects, FakeStates, Terminal, a_client, use_client
from tests.fakes_comparison import FROZEN, comparison
from tests.unit.client.test_runs import BEGIN, PUBLICATION, RUN
from tests.unit.runs.test_cost import a_comparison

pytestmark = pytest.mark.unit

ARGUMENTS = ["diff", "daily_delays", "--date", "2013-03-10", *PROJECT]
URI = "s3://exchange/comparisons/daily_delays/2013-03-10/1-2/comparison.json"
STATES = ["Choose the versions", "Decide whether to compare", "Compare the versions", "Read the comparison"]
TYPES = {"Decide whether to compare": "Choice"}


class Executions(FakeStates):
    """Executions that all pass through the same states."""

    def describe_execution(self, *, executionArn):  # noqa: N803
        self.scripts.setdefault(executionArn, [(self.status, list(STATES))])
        return super().describe_execution(executionArn=executionArn)


@pytest.fixture
def cloud(monkeypatch):
    """A cloud whose comparison state machine ends as the test says."""

    def cloud(
        *, published=True, uri=URI, reason="", error="", cause="", compared=(), runs=(), split=None, split_reason=""
    ):
        reference = {"uri": uri, "before": 1, "after": 2, "differing": 1, "reason": reason}
        reference |= {"split_reason": split_reason}
        stored = {URI: comparison().model_dump_json().encode()}
        stored |= {split_uri(URI.removesuffix("comparison.json")): split.model_dump_json().encode()} if split else {}
        states = Executions(types=TYPES, output=reference, error=error, cause=cause)
        states.status = "FAILED" if error else "SUCCEEDED"
        day = DayRecord(pipeline="daily_delays", date="2013-03-10")
        current_run = PublishedRun(run=RUN, publication=PUBLICATION, at=BEGIN)
        day = day.model_copy(update={"published": current_run}) if published else day
        client = a_client(
            load_project(EXAMPLE),
            deployment=SimpleNamespace(compare_machine_arn="arn:compare-day"),
            clients={"stepfunctions": states},
            run_table=SimpleNamespace(
                day=lambda *_: day, run=lambda *_: None, comparisons=lambda *_: compared, runs=lambda *_: runs
            ),
            store=FakeObjects(stored),
        )
        use_client(monkeypatch, client)
        return states

    return cloud


def test_the_published_version_is_compared_with_the_one_before(cloud, capsys):
    states = cloud()
    assert run(ARGUMENTS) == 0
    (call,) = states.started
    payload = json.loads(call["input"])
    assert call["stateMachineArn"] == "arn:compare-day"
    assert call["name"].startswith(f"2013-03-10-{payload.pop('correlation_id')}-")
    assert payload == {"pipeline": "daily_delays", "date": "2013-03-10", "since": "previous"}
    shown = capsys.readouterr()
    assert shown.out.startswith("daily_delays 2013-03-10: version 1 -> 2\n")
    assert [line.partition(":")[0] for line in shown.err.splitlines()] == [
        "Choose the versions", "Compare the versions", "Read the comparison",
    ]  # fmt: skip


def test_two_versions_are_compared_by_their_numbers(cloud, printed_by):
    published = [a_version(number) for number in (1, 2)]
    states = cloud(runs=published)
    printed_by(*ARGUMENTS, "--from", "1", "--to", "2")
    payload = json.loads(states.started[0]["input"])
    assert (payload["since"], payload["before"], payload["after"]) == ("previous", 1, 2)
    refused = printed_by(*ARGUMENTS, "--from", "2", "--to", "1", code=2).err
    assert "--from: daily_delays 2013-03-10 has no published version 2 before version 1 (versions: none)" in refused
    assert len(states.started) == 1


def a_version(number):
    run = RUN.model_copy(update={"attempt": number})
    return RunRecord(run=run, state=RunState.PUBLISHED, execution="arn:e", started_at=BEGIN)


def test_the_document_is_the_stored_comparison(cloud, document_of):
    cloud()
    assert document_of(*ARGUMENTS) == {
        "comparison": comparison().model_dump(mode="json"),
        "reason": None,
    }


def test_the_cost_of_comparing_these_two_versions_is_shown(cloud, printed_by):
    other = a_comparison("c2", before=1, after=3, cost=RunCost(usd=1.0))
    cloud(compared=[a_comparison("c1", before=1, after=2, cost=RunCost(usd=0.0119)), other])
    assert "\nCost\n  comparison: 0.0119 USD\n" in printed_by(*ARGUMENTS).out


def test_a_split_is_read_beside_the_comparison_or_its_absence_is_explained(cloud, printed_by, document_of):
    flights = MetricChange(metric="flights", total="sum", before=831, after=832)
    counts = RowCounts(before=29, after=29, added=0, removed=0, changed=1)
    split = Split(metrics=(MetricSplit.of(flights, 840),), data=counts, definition=counts, seconds=1.0)
    states = cloud(split=split)
    shown = printed_by(*ARGUMENTS, "--split").out
    assert json.loads(states.started[0]["input"])["split"] is True
    assert ["flights", "sum", "831", "+9", "(+1.1", "%)", "-8", "(-1.0", "%)", "832"] in [
        line.split() for line in shown.splitlines()
    ]
    assert document_of(*ARGUMENTS, "--split")["comparison"]["split"] == split.model_dump(mode="json")
    assert document_of(*ARGUMENTS)["comparison"]["split"] is None
    cloud(split_reason="the data is the same")
    assert "\nNo split\n  the data is the same\n" in printed_by(*ARGUMENTS, "--split").out
    assert document_of(*ARGUMENTS, "--split")["comparison"]["split_reason"] == "the data is the same"


def test_a_single_version_is_no_error(cloud, printed_by, document_of):
    reason = "2013-03-10 was published once: there is no earlier version"
    cloud(uri="", reason=reason)
    assert printed_by(*ARGUMENTS).out == f"{reason}\n"
    assert document_of(*ARGUMENTS) == {"comparison": None, "reason": reason}


def test_a_day_that_was_never_published_and_an_unknown_pipeline_start_nothing(cloud, printed_by):
    states = cloud(published=False)
    assert "daily_delays has published nothing for 2013-03-10 (slackwater run" in printed_by(*ARGUMENTS, code=2).err
    assert "no pipeline 'nothing' in this project" in printed_by("diff", "nothing", *ARGUMENTS[2:], code=2).err
    assert run([*ARGUMENTS[:3], "10.3.2013", *ARGUMENTS[4:]]) == 2
    assert states.started == []


def test_the_error_of_a_failed_comparison_is_printed(cloud, printed_by):
    cloud(error="ComparisonFailed", cause="CloudError: the table has no tag 2013-03-10-abc-1 any more")
    assert printed_by(*ARGUMENTS, code=1).err.splitlines()[-1] == (
        "error: comparing daily_delays for 2013-03-10: CloudError: the table has no tag 2013-03-10-abc-1 any more"
    )


def test_a_version_that_retention_has_removed_is_named_and_is_no_failure_of_the_cloud(cloud, printed_by):
    removed = "version 1 of daily_delays 2013-03-10 was removed by the setting version_days"
    cloud(error="ComparisonFailed", cause=f"VersionRemoved: {removed}")
    assert printed_by(*ARGUMENTS, code=2).err.splitlines()[-1] == f"error: {removed}"


def test_the_report_is_written_as_a_page(cloud, capsys, tmp_path):
    cloud()
    file = tmp_path / "report.html"
    assert run([*ARGUMENTS, "--html", str(file)]) == 0
    assert file.read_text(encoding="utf-8") == report_page(comparison())
    assert capsys.readouterr().out.startswith("daily_delays 2013-03-10: version 1 -> 2\n")


def test_a_page_that_cannot_be_written_names_the_file_and_the_option(cloud, capsys, tmp_path):
    cloud()
    file = tmp_path / "no folder" / "report.html"
    assert run([*ARGUMENTS, "--html", str(file)]) == 2
    assert f"--html: {file} cannot be written: No such file or directory" in capsys.readouterr().err


def test_without_two_versions_no_page_is_written(cloud, tmp_path):
    cloud(uri="", reason="2013-03-10 was published once: there is no earlier version")
    assert run([*ARGUMENTS, "--html", str(tmp_path / "report.html")]) == 0
    assert not list(tmp_path.iterdir())


def busy_comparison():
    """A comparison with all types of changes, and more than a report shows."""
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
  published 2013-03-11 06:01 UTC and 2013-03-13 10:01 UTC, 2 days 4 h later
  29 -> 1,030 rows: 1 added, 1 removed, 1,018 changed, 11 unchanged

Metrics, over the day
metric          total  version 1  version 2    change  most changed row
flights         sum          831      1,883  +126.6 %  EWR A: 10 -> 20
dep_delay_mean  mean        none       3.25       new
on_time_share   mean         0.5        0.5

Most changed rows: flights
origin  carrier  version 1  version 2    change
EWR     A               10         20  +100.0 %
EWR     B             none         20       new
EWR     C               10         20  +100.0 %

Changed rows: 10 of 1,020
  added origin EWR, carrier A: flights 3, note new\\x1b[31m
  removed origin EWR, carrier B: flights 3, ok true
  changed origin xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..., carrier 東京:
    a_rather_long_metric_0 0.91234 -> 0.91235, a_rather_long_metric_1 0.91234 -> 0.91235,
    a_rather_long_metric_2 0.91234 -> 0.91235, a_rather_long_metric_3 0.91234 -> 0.91235,
    a_rather_long_metric_4 0.91234 -> 0.91235, a_rather_long_metric_5 0.91234 -> 0.91235,
    a_rather_long_metric_6 0.91234 -> 0.91235, a_rather_long_metric_7 0.91234 -> 0.91235,
    a_rather_long_metric_8 0.91234 -> 0.91235
  changed origin EWR, carrier D: ok true -> false
  changed origin EWR, carrier E: ok true -> false
  changed origin EWR, carrier F: ok true -> false
  changed origin JFK, carrier A: ok true -> false
  changed origin JFK, carrier B: ok true -> false
  changed origin JFK, carrier C: ok true -> false
  changed origin JFK, carrier D: ok true -> false
  ... and 1,010 more rows
  All changed rows, as Arrow files:
    s3://exchange/rows/manifest.json

Inputs, changed since version 1 listed them at 2013-03-11 06:00 UTC
  flights: 0 rows of the day, 0 before
    flights-2013-03-10-08.csv (changed)
      129 rows (120 before), 0 Bytes, of 3 hours of 2013-03-10 05:00 to 2013-03-11 04:00 UTC
      arrived 2013-03-13 09:00 to 09:01 UTC, up to 2 days 3 h later
  weather: 0 rows of the day, 0 before
    pushed events (added)
      3 rows, 0 Bytes, of 2013-03-10 12:00 to 13:00 UTC
      arrived 2013-03-11 06:00 UTC, 25 s later
    pushed events (removed)
      2 rows, 0 Bytes, of 2013-03-10 12:00 to 13:00 UTC
"""


def test_a_report_shows_all_parts_of_a_comparison(capsys):
    show_comparison(busy_comparison())
    shown = capsys.readouterr().out
    assert shown == SCREEN
    assert max(map(len, shown.splitlines())) <= 100


def test_a_terminal_shows_the_same_report(monkeypatch):
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.stdout", terminal)
    show_comparison(busy_comparison())
    shown = [line.rstrip() for line in re.sub("\x1b\\[[0-9;]*m", "", terminal.getvalue()).splitlines()]
    for line in SCREEN.splitlines():
        assert line in shown


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"inputs": ()}, "the input manifest of a version is gone"),
        ({"inputs": (SourceDifference(source="flights", before=Amount(), now=Amount()),)}, "come from the same inputs"),
        ({"rows": RowCounts(before=29, after=29, added=0, removed=0, changed=0)}, "29 rows, the same in both versions"),
        ({"metrics": ()}, "Changed rows\n"),
        ({"key": ("origin",)}, "version 1 -> 2"),
    ],
)
def test_missing_parts_are_named_or_left_out(capsys, changes, expected):
    if "key" in changes:
        changes = {**changes, "examples": (RowChange(change=Change.CHANGED, key={"origin": "EWR"}, values={}),)}
    show_comparison(comparison(**changes))
    assert expected in capsys.readouterr().out


def test_declared_metrics_are_shown_with_their_aggregation(capsys):
    metrics = (
        MetricChange(metric="fares", total="sum", exact=True, before=99.5, after=-0.5),
        MetricChange(metric="dep_delay_p90", total="max", before=85, after=133.75),
        MetricChange(metric="seats", total="min", before=None, after=None),
    )
    show_comparison(comparison(metrics=metrics))
    shown = capsys.readouterr().out
    assert (
        "\nMetrics, over the day\n"
        "metric         total  version 1  version 2    change  most changed row\n"
        "fares          sum         99.5       -0.5  -100.5 %\n"
        "dep_delay_p90  max           85     133.75   +57.4 %\n"
        "seats          min         none       none\n"
    ) in "\n".join(line.rstrip() for line in shown.splitlines())


def test_the_report_of_a_table_without_key_columns(capsys):
    row = RowChange(change=Change.CHANGED, key={}, values={"flights": (12, 13)})
    movers = (Mover(key={}, before=12, after=13),)
    metric = MetricChange(metric="flights", total="sum", before=12, after=13, movers=movers)
    show_comparison(comparison(key=(), examples=(row,), metrics=(metric,)))
    shown = capsys.readouterr().out
    assert "changed: flights 12 -> 13" in shown
    assert "+8.3 %  12 -> 13" in shown
