"""`slackwater cost`: the table, the document, and the range of days."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from slackwater.costs.cost import RunCost, price_run
from slackwater.runs.record import RunReason, RunRecord, RunState
from tests.example_project import PROJECT, example_project
from tests.fakes_cli import a_client, use_client
from tests.unit.runs.test_cost import NOW, TWO_JOBS, a_comparison, a_record

pytestmark = pytest.mark.unit

START = datetime(2013, 3, 11, 6, tzinfo=UTC)


def priced(date: str, attempt: int, usd: float | None, **more: object) -> RunRecord:
    hours = {"vcpu_hours": 0.1, "memory_gb_hours": 0.4, "storage_gb_hours": 0.0} if usd is not None else {}
    cost = RunCost(usd=usd, region="us-east-1", prices_as_of="2026-11-22", complete=usd is not None, **hours)
    record = a_record(attempt)
    changes = {"run": record.run.model_copy(update={"date": date}), "cost": cost, "started_at": START}
    return record.model_copy(update=changes | more)


class Runs:
    """A run table of `daily_delays`."""

    def __init__(self, *records, comparisons=()):
        self.records, self.comparisons, self.asked = records, comparisons, []

    def runs_between(self, pipeline, first, last):
        self.asked.append((pipeline, first, last))
        return [r for r in self.records if pipeline == r.run.pipeline and first <= r.run.date <= last]

    def comparisons_between(self, pipeline, first, last):
        return [item for item in self.comparisons if pipeline == item.pipeline and first <= item.date <= last]

    def runs(self, pipeline, date=None):
        return self.runs_between(pipeline, "", "9")


@pytest.fixture
def shown(monkeypatch, printed_by):
    """Return what a command prints about these runs."""

    def shown(*arguments, records, comparisons=(), expected=0):
        table = Runs(*records, comparisons=comparisons)
        use_client(monkeypatch, a_client(example_project(), run_table=table))
        return table, printed_by(*arguments, *PROJECT, code=expected)

    return shown


PENDING = (
    "the USD lack 1 run or comparison, whose price is not known yet: AWS reports hours some time after a job has "
    "ended, and the daily check records them (now: slackwater monitor); of an hourly pipeline, its next run does"
)
LATE = {"reasons": (RunReason.LATE_DATA,)}
RECORDS = (
    priced("2013-03-09", 1, 0.01),
    priced("2013-03-10", 1, 0.02, estimated_usd=0.02, reasons=(RunReason.FIRST,)),
    priced("2013-03-10", 2, 0.03, state=RunState.FAILED, **LATE),
    # Expected to cost half as much, a quarter more, and exactly as much: the median is off by 25 percent.
    priced("2013-03-10", 3, 0.04, estimated_usd=0.02, **LATE),
    priced("2013-03-10", 4, 0.05, estimated_usd=0.0625, reasons=(RunReason.NEW_CODE,)),
    priced("2013-03-11", 1, None),
    a_record(9).model_copy(update={"state": RunState.RUNNING, "ended_at": None}),
)


def test_the_table_has_a_line_for_each_day_and_the_total(shown):
    _, text = shown("cost", "daily_delays", records=RECORDS)
    lines = [line.split() for line in text.out.splitlines()]
    assert lines[-6:-2] == [
        ["daily_delays", "2013-03-09", "1", "0", "0", "0.1", "0.4", "0.010000", "0.000000", "0.000000", "-"],
        ["daily_delays", "2013-03-10", "4", "3", "1", "0.4", "1.6", "0.140000", "0.000000", "0.070000", "25", "%"],
        ["daily_delays", "2013-03-11", "1", "0", "0", "-", "-", "-", "0.000000", "0.000000", "-"],
        ["total", "6", "3", "1", "0.5", "2", "0.150000", "0.000000", "0.070000", "25", "%"],
    ]
    assert text.out.splitlines()[-2:] == ["prices: us-east-1, 2026-11-22", PENDING]


def test_prices_that_stay_unknown_are_counted_apart(shown):
    given_up = RunCost(region="us-east-1", complete=True, unknown="its execution is gone")
    records = [*RECORDS, *(priced("2013-03-12", number, None, cost=given_up) for number in (1, 2))]
    _, text = shown("cost", "daily_delays", records=records)
    assert text.out.splitlines()[-3:] == [
        PENDING,
        "the USD lack 2 runs and comparisons, whose prices stay unknown",
        "unknown: its execution is gone",
    ]


def test_the_document_has_the_sums(shown):
    _, text = shown("cost", "daily_delays", "--json", records=RECORDS)
    document = json.loads(text.out)
    assert [day["date"] for day in document["days"]] == ["2013-03-09", "2013-03-10", "2013-03-11"]
    assert document["total"] == {
        "runs": 6,
        "reruns": 3,
        "failed": 1,
        "comparisons": 0,
        "vcpu_hours": 0.5,
        "memory_gb_hours": 2.0,
        "storage_gb_hours": 0.0,
        "usd": 0.15,
        "comparison_usd": 0.0,
        "late_data_usd": 0.07,
        "unknown": 1,
        "pending": 1,
        "estimate_error_percent": 25.0,
    }


def test_comparisons_are_part_of_the_costs_of_their_day(shown):
    def compared(name, after, usd=None):
        cost = RunCost(usd=usd, vcpu_hours=1.0, jobs=1, complete=True) if usd else None
        return a_comparison(name, after=after, cost=cost)

    # Attempt 3 was caused by late data, attempt 4 by new code.
    comparisons = [compared("c1", 3, 1.0), compared("c2", 4, 2.0), compared("c3", 3)]
    _, text = shown("cost", "daily_delays", "--json", records=RECORDS, comparisons=comparisons)
    document = json.loads(text.out)
    assert [day["comparisons"] for day in document["days"]] == [0, 3, 0]
    total = document["total"]
    assert (total["comparisons"], total["comparison_usd"], total["vcpu_hours"]) == (3, 3.0, 2.5)
    assert (total["usd"], total["late_data_usd"]) == (0.15 + 3, 0.07 + 1)
    assert (total["unknown"], total["pending"]) == (2, 2)
    _, text = shown("cost", "daily_delays", records=RECORDS, comparisons=comparisons)
    assert ["total", "6", "3", "1", "2.5", "2", "3.150000", "3.000000", "1.070000", "25", "%"] in [
        line.split() for line in text.out.splitlines()
    ]


@pytest.mark.parametrize(
    ("records", "usd"),
    [
        # Older versions recorded neither reasons nor a definition.
        ([priced("2013-03-09", 1, 0.5), priced("2013-03-09", 2, 0.25)], 0.25),
        ([priced("2013-03-09", 2, 0.5, definition="d")], 0),
        ([priced("2013-03-09", 3, 0.25, reasons=(RunReason.REPAIR,))], 0),
    ],
)
def test_a_run_without_reasons_counts_as_late_data_if_it_has_no_definition_and_is_not_the_first(shown, records, usd):
    _, text = shown("cost", "--json", records=records)
    assert json.loads(text.out)["total"]["late_data_usd"] == usd


def test_only_the_runs_of_the_range_are_read(shown):
    table, text = shown("cost", "daily_delays", "--from", "2013-03-09", "--to", "2013-03-09", records=RECORDS)
    assert table.asked == [("daily_delays", "2013-03-09", "2013-03-09T23")]  # with the hours of an hourly pipeline
    assert "2013-03-10" not in text.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "2013-03-10", "--to", "2013-03-09"], "from: 2013-03-10 is after to"),
        (["no_such_pipeline"], "no_such_pipeline"),
    ],
)
def test_a_wrong_argument_is_a_usage_error(shown, arguments, message):
    _, text = shown("cost", *arguments, records=RECORDS, expected=2)
    assert message in text.err


def test_without_runs_there_is_nothing_to_show(shown):
    _, text = shown("cost", records=[])
    assert text.out == "no runs in this range have ended\n"
    _, text = shown("cost", "--json", records=[])
    assert json.loads(text.out)["total"]["usd"] is None


def test_the_list_of_runs_has_the_price_of_each(shown):
    _, text = shown("runs", "daily_delays", records=[RECORDS[0], RECORDS[5]])
    header, first, second = [line.split() for line in text.out.splitlines() if "2013" in line or "USD" in line]
    column = header.index("USD") - len(header)
    assert "0.010000" in first
    assert "-" in second
    assert column < 0


def test_why_a_price_is_unknown_is_printed(shown):
    gone = RunCost(complete=True, unknown="its Spark application was deleted")
    record = a_record().model_copy(update={"cost": gone, "ended_at": NOW + timedelta(hours=1)})
    _, text = shown("cost", records=[record])
    assert "unknown: its Spark application was deleted" in text.out


def test_a_region_without_prices_is_named_with_the_file_and_the_remedy(shown):
    cost = price_run(TWO_JOBS, region="eu-north-1", architecture="x86_64")
    _, text = shown("cost", records=[a_record().model_copy(update={"cost": cost})])
    assert (
        "unknown: no prices of eu-north-1 on x86_64: add them to "
        "src/slackwater/costs/eu-north-1.json as docs/cost.md says, and deploy"
    ) in text.out.replace("\n", " ")
