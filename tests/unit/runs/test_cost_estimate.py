"""What a run is expected to cost, compared with numpy, in decisions of checks and beside the price of the run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.arrow.reference import ArrowReference
from slackwater.costs.cost import RunCost
from slackwater.runs.cost_estimate import expected_usd, latest_runs
from slackwater.runs.record import DayRecord, PublishedRun, Rollback, RunRecord, RunState, StageRecord
from tests.fakes_check import PIPELINE, PUBLICATION, five_days
from tests.fakes_notification import a_run
from tests.fakes_runs import DictRunTable
from tests.unit.runs.test_cost import TWO_JOBS, Usage, recorder

pytestmark = pytest.mark.unit

_START = datetime(2013, 3, 11, tzinfo=UTC)


def a_record(
    rows: int,
    usd: float | None,
    *,
    number: int = 1,
    date: str = "2013-03-10",
    state: RunState = RunState.PUBLISHED,
    kept: bool = False,
) -> RunRecord:
    run = a_run(number, date=date, rows=rows)
    prefix = "s3://exchange/runs/earlier/" if kept else run.prefix
    reference = ArrowReference(manifest=f"{prefix}main/manifest.json", rows=1, bytes=1, files=1, seconds=1)
    return RunRecord(
        run=run,
        state=state,
        execution="arn",
        started_at=_START + timedelta(hours=number),
        ended_at=_START + timedelta(hours=number, minutes=1),
        stages=(StageRecord(stage="main", reference=reference),),
        cost=RunCost(usd=usd, complete=True),
    )


def test_a_run_of_an_open_day_shows_no_price() -> None:
    record = a_record(100, 1.0)
    provisional = record.model_copy(update={"run": record.run.model_copy(update={"through": _START})})
    assert (expected_usd([record], 200), expected_usd([provisional], 200)) == (2.0, None)


@given(
    runs=st.lists(st.tuples(st.integers(1, 10**12), st.floats(0.001, 1000)), min_size=1, max_size=20),
    rows=st.integers(0, 10**13),
)
def test_the_estimate_is_the_rows_times_the_median_price_of_the_last_14_runs(
    runs: list[tuple[int, float]], rows: int
) -> None:
    records = [a_record(size, usd, number=number) for number, (size, usd) in enumerate(runs, 1)]
    sizes, prices = np.array(runs[-14:]).T
    expected = float(np.median(prices / sizes)) * rows
    assert expected_usd(records[::-1], rows) == pytest.approx(expected, rel=1e-9, abs=1e-8)


def test_one_unusual_run_changes_the_estimate_of_similar_ones_little() -> None:
    usual = [a_record(1000, 0.5, number=number) for number in range(1, 8)]
    assert expected_usd([*usual, a_record(1000, 900.0, number=8)], 1100) == pytest.approx(0.55)


_MERGED = a_record(100, 0.01, number=2)
_MERGED = _MERGED.model_copy(
    update={
        "stages": (
            StageRecord(stage="main", reference=_MERGED.stages[0].reference.model_copy(update={"is_merged": True})),
        )
    }
)
_ROLLBACK = a_record(100, 0.01, number=2).model_copy(
    update={"rollback": Rollback(to=1, tag="t", reason="r", frozen_at=_START), "stages": ()}
)
_PROFILED = a_record(100, 0.01, number=2)
_PROFILED = _PROFILED.model_copy(update={"run": _PROFILED.run.model_copy(update={"profiled": True})})


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(a_record(100, None, number=2), id="no price"),
        pytest.param(a_record(100, 0.01, number=2).model_copy(update={"cost": None}), id="no cost"),
        pytest.param(a_record(0, 0.01, number=2), id="no rows"),
        pytest.param(a_record(100, 0.01, number=2, state=RunState.FAILED), id="failed"),
        pytest.param(a_record(100, 0.01, number=2, kept=True), id="a stage of an earlier run"),
        pytest.param(_MERGED, id="added objects alone"),
        pytest.param(_ROLLBACK, id="rollback"),
        pytest.param(_PROFILED, id="measured steps"),
    ],
)
def test_a_run_that_does_not_show_what_its_rows_cost_does_not_count(record: RunRecord) -> None:
    assert expected_usd([record], 100) is None
    assert expected_usd([a_record(100, 0.5), record], 200) == 1.0


def test_the_runs_of_the_14_latest_days_are_read_with_those_that_a_later_version_has_replaced() -> None:
    table = DictRunTable()
    dates = [f"2013-03-{number:02}" for number in range(1, 21)]
    for date in dates:
        table.by_day["daily_delays", date] = DayRecord(pipeline="daily_delays", date=date, attempts=2)
        for number in (1, 2):
            table.save(a_record(1, 1.0, date=date, number=number))
    runs = latest_runs(table, "daily_delays", last="2013-03-18")
    assert [(item.run.date, item.run.attempt) for item in runs] == [(d, n) for d in dates[4:18] for n in (1, 2)]
    assert latest_runs(table, "daily_delays", last="2013-02-01") == []
    # A running day was published each minute.
    last = a_record(1, 1.0, date="2013-03-18", number=1440)
    published = PublishedRun(run=last.run, publication=PUBLICATION, at=_START)
    table.by_day["daily_delays", "2013-03-18"] = DayRecord(
        pipeline="daily_delays", date="2013-03-18", attempts=1440, published=published
    )
    table.save(last)
    assert latest_runs(table, "daily_delays", last="2013-03-18") == [last]


def test_a_check_estimates_a_re_run_by_its_rows_from_the_runs_of_the_pipeline():
    world = five_days()
    record = world.table.run(PIPELINE, "2013-03-12", 1)
    world.table.save_cost(record.model_copy(update={"cost": RunCost(usd=0.5, complete=True)}))
    world.publish("2013-03-12", force=True)
    world.add("flights", "2013-03-12", "20", name="late", rows=record.run.rows)
    world.time += timedelta(hours=2)
    (decided,) = [item for item in world.check().days if item.date == "2013-03-12"]
    assert (decided.figures.input_rows, decided.figures.estimated_usd) == (2 * record.run.rows, 1.0)


def test_a_run_gets_the_estimate_of_the_runs_that_started_before_it_once_beside_its_price():
    table = DictRunTable()
    # Of the same day and of the day before; the run of the later number starts later.
    for record in (
        a_record(1000, 0.01, number=1, date="2013-03-09"),
        a_record(2000, None, number=2),
        a_record(1000, 9.0, number=3, date="2013-03-09"),
    ):
        table.by_day["daily_delays", record.run.date] = DayRecord(pipeline="daily_delays", date=record.run.date)
        cost = record.cost if record.cost.usd else None
        table.save(record.model_copy(update={"cost": cost}))
    recorder(table, Usage(attempt2=TWO_JOBS._replace(ended=False))).record_due("daily_delays")
    priced = table.run("daily_delays", "2013-03-10", 2)
    assert (priced.cost.usd, priced.estimated_usd) == (0.01180637, 0.02)
    # A later price of the same run changes nothing, although more runs have a price by then.
    table.save(a_record(1000, 5.0, number=1, date="2013-03-09"))
    recorder(table, Usage(attempt2=TWO_JOBS)).record_due("daily_delays")
    assert table.run("daily_delays", "2013-03-10", 2).estimated_usd == 0.02
