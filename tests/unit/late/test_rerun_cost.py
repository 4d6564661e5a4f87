"""The expected price of a re-run, compared with numpy."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.arrow.reference import ArrowReference
from slackwater.costs.cost import RunCost
from slackwater.late.check.facts import DayFacts
from slackwater.late.check.read_facts import FactReader
from slackwater.late.check.rerun_cost import estimate_rerun_cost
from slackwater.late.check.reservations import reserve_reruns
from slackwater.pipeline.definition import Late
from slackwater.runs.day import day_of
from slackwater.runs.record import DayRecord, Rollback, Run, RunRecord, RunState, StageRecord
from tests.fakes_check import PIPELINE, World, five_days

pytestmark = pytest.mark.unit

_START = datetime(2013, 3, 11, tzinfo=UTC)


def _record(
    size: int, usd: float | None, *, number: int = 1, state: RunState = RunState.PUBLISHED, kept: bool = False
) -> RunRecord:
    run = Run(
        pipeline="daily_delays",
        date="2013-03-10",
        run_id="0" * 32,
        attempt=number,
        correlation_id="c",
        manifest="s3://exchange/manifests/m.json",
        prefix=f"s3://exchange/runs/daily_delays/2013-03-10/{'0' * 32}/{number}/",
        files=1,
        rows=1,
        bytes=size,
    )
    prefix = "s3://exchange/runs/earlier/" if kept else run.prefix
    reference = ArrowReference(manifest=f"{prefix}main/manifest.json", rows=1, bytes=1, files=1, seconds=1)
    return RunRecord(
        run=run, state=state, execution="arn", started_at=_START + timedelta(hours=number),
        stages=(StageRecord(stage="main", reference=reference),), cost=RunCost(usd=usd, complete=True),
    )  # fmt: skip


def _by_numpy(points: list[tuple[int, float]], size: int) -> float:
    sizes, prices = np.array([x for x, _ in points], float), np.array([y for _, y in points])
    first, second = np.triu_indices(len(points), 1)
    different = sizes[first] != sizes[second]
    first, second = first[different], second[different]
    slopes = (prices[second] - prices[first]) / (sizes[second] - sizes[first])
    slope = max(float(np.median(slopes)), 0.0) if len(slopes) else 0.0
    return max(float(np.median(prices - slope * sizes)) + slope * size, float(prices.min()))


_POINTS = st.lists(st.tuples(st.integers(0, 10**12), st.floats(0.001, 1000)), min_size=1, max_size=12)


@given(points=_POINTS, size=st.integers(0, 10**13))
def test_the_estimate_is_that_of_numpy_and_at_least_the_cheapest_run(
    points: list[tuple[int, float]], size: int
) -> None:
    records = [_record(x, y, number=number) for number, (x, y) in enumerate(points, 1)]
    estimate = estimate_rerun_cost(records, size)
    assert estimate is not None
    assert estimate == pytest.approx(_by_numpy(points, size), rel=1e-9, abs=1e-9)
    assert estimate >= min(usd for _, usd in points)


@given(points=_POINTS, sizes=st.tuples(st.integers(0, 10**13), st.integers(0, 10**13)))
def test_more_bytes_never_cost_less(points: list[tuple[int, float]], sizes: tuple[int, int]) -> None:
    records = [_record(x, y, number=number) for number, (x, y) in enumerate(points, 1)]
    fewer, more = (estimate_rerun_cost(records, size) for size in sorted(sizes))
    assert fewer is not None
    assert more is not None
    assert fewer <= more


@given(fixed=st.floats(0.01, 1), per_gb=st.floats(0.001, 5), sizes=st.sets(st.integers(0, 500), min_size=3, max_size=9))
def test_one_outlier_does_not_change_a_line_of_runs(fixed: float, per_gb: float, sizes: set[int]) -> None:
    lines = [(gb * 10**9, fixed + per_gb * gb) for gb in sorted(sizes)]
    many = [_record(x, y, number=number) for number, (x, y) in enumerate(lines * 3, 1)]
    outlier = _record(lines[0][0], 10_000.0, number=99)
    expected = fixed + per_gb * 1000
    assert estimate_rerun_cost(many, 1000 * 10**9) == pytest.approx(expected)
    assert estimate_rerun_cost([*many, outlier], 1000 * 10**9) == pytest.approx(expected)


def test_without_a_priced_run_the_cost_is_unknown() -> None:
    unpriced = _record(100, None)
    no_cost = unpriced.model_copy(update={"cost": None})
    failed = _record(100, 0.5, state=RunState.FAILED)
    kept = _record(100, 0.5, kept=True)
    assert estimate_rerun_cost([], 100) is None
    assert estimate_rerun_cost([unpriced, no_cost, failed, kept], 100) is None
    assert estimate_rerun_cost([unpriced, failed, kept, _record(100, 0.25)], 10**9) == 0.25


def test_a_run_of_added_objects_alone_does_not_show_what_a_day_costs() -> None:
    merged = _record(100, 0.01, number=2)
    reference = merged.stages[0].reference.model_copy(update={"is_merged": True})
    merged = merged.model_copy(update={"stages": (StageRecord(stage="main", reference=reference),)})
    assert estimate_rerun_cost([merged], 100) is None
    assert estimate_rerun_cost([_record(100, 0.5), merged], 100) == 0.5


def test_a_rollback_does_not_show_what_a_day_costs() -> None:
    rollback = Rollback(to=1, tag="t", reason="r", frozen_at=_START)
    cheap = _record(100, 0.01, number=2).model_copy(update={"rollback": rollback, "stages": ()})
    assert estimate_rerun_cost([cheap], 100) is None
    assert estimate_rerun_cost([_record(100, 0.5), cheap], 100) == 0.5


def test_only_the_latest_fifty_runs_count() -> None:
    old = [_record(100, 9.0, number=number) for number in range(1, 60)]
    new = [_record(100, 0.5, number=number) for number in range(60, 110)]
    assert estimate_rerun_cost(new + old, 100) == 0.5


def late_day(world: World) -> DayFacts:
    """Return the facts of 2013-03-12, which would run again."""
    definition = world.project.pipelines[PIPELINE]
    reader = FactReader(
        definition=definition, project=world.project, inputs=world.inputs, table=world.table,
        executions=world.executions, store=world.store, now=world.now,
    )  # fmt: skip
    facts = reader.read_record(day_of(date(2013, 3, 12), definition.timezone), is_in_window=True)
    return reader.read_inputs(facts)[0]


def test_runs_that_a_later_version_has_replaced_count_and_those_of_earlier_days_only_if_no_other_has_a_price():
    world = five_days()

    def price(date, usd):
        record = world.table.run(PIPELINE, date, 1)
        world.table.save_cost(record.model_copy(update={"cost": RunCost(usd=usd, complete=True)}))

    def estimate():
        (decided,) = [item for item in world.check().days if item.date == "2013-03-12"]
        return decided.figures.estimated_usd

    price("2013-03-12", 0.5)
    world.publish("2013-03-12", force=True)
    world.add("flights", "2013-03-12", "20", name="late", rows=500)
    world.time += timedelta(hours=2)
    assert estimate() == 0.5
    # Then 14 later days have runs.
    definition = world.project.pipelines[PIPELINE]
    facts = late_day(world)
    for number in range(14):
        date = f"2013-03-{number + 13}"
        world.table.by_day[PIPELINE, date] = DayRecord(pipeline=PIPELINE, date=date, attempts=1)
    later = [replace(facts, record=facts.record.model_copy(update={"date": "2013-03-26"}))]

    def estimate_later():
        (decided,) = reserve_reruns(definition, later, table=world.table, now=world.now())
        return decided.figures.estimated_usd

    # They have no price yet. Without a limit that depends on it, no more days are read.
    assert estimate_later() is None
    # Otherwise the last known one counts.
    definition = definition.model_copy(update={"late": Late(budget_per_day=9)})
    assert estimate_later() == 0.5
    priced = _record(100, 0.7).run.model_copy(update={"date": "2013-03-26"})
    world.table.records[PIPELINE, "2013-03-26", 1] = _record(100, 0.7).model_copy(update={"run": priced})
    assert estimate_later() == 0.7


@pytest.mark.parametrize(
    ("late", "days", "reads"),
    [
        (Late(), 5, [14]),
        (Late(), 14, [14]),
        (Late(budget_per_day=9), 5, [14]),
        (Late(budget_per_day=9), 13, [14]),
        (Late(budget_per_day=9), 14, [14, 366]),
        (Late(worth_per_percent=1), 14, [14, 366]),
    ],
)
def test_days_are_read_once_more_only_for_a_limit_and_if_there_are_more(late, days, reads, monkeypatch):
    world = five_days()
    world.add("flights", "2013-03-12", "20", name="late", rows=500)
    world.time += timedelta(hours=2)
    waiting = [late_day(world)]
    for number in range(days - 5):
        date = f"2013-02-{number + 1:02}"
        world.table.by_day[PIPELINE, date] = DayRecord(pipeline=PIPELINE, date=date, attempts=1)
    read, limits = world.table.days, []

    def counting(*args, limit, **options):
        limits.append(limit)
        return read(*args, limit=limit, **options)

    monkeypatch.setattr(world.table, "days", counting)
    definition = world.project.pipelines[PIPELINE].model_copy(update={"late": late})
    (decided,) = reserve_reruns(definition, waiting, table=world.table, now=world.now())
    assert (limits, decided.figures.estimated_usd) == (reads, None)
