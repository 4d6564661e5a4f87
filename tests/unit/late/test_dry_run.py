"""A check that writes nothing decides as one that writes, and leaves everything as it is."""

from __future__ import annotations

import inspect
from copy import deepcopy

import pytest

from slackwater.late.check.dry_run import without_writes
from slackwater.pipeline.definition import Late
from slackwater.runs.table import RunTable
from tests.fakes_check import PIPELINE, five_days

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("one_thread")]


@pytest.fixture
def world():
    """A day with late data, one that has lost an object, and one that runs again after a limit."""
    world = five_days()
    definition = world.project.pipelines[PIPELINE].model_copy(update={"late": Late(max_reruns_per_day=1)})
    world.project = world.project.model_copy(update={"pipelines": {PIPELINE: definition}})
    world.store.delete(["s3://raw/raw/source=flights/date=2013-03-09/hour=17/a.parquet"])
    for date in ("2013-03-10", "2013-03-11"):
        world.add("flights", date, "20", name="late", rows=500)
    return world


@pytest.mark.parametrize("dates", [None, ["2013-03-10", "2013-03-11"]])
def test_it_decides_as_the_check_that_follows_and_writes_nothing(world, dates):
    before = deepcopy((vars(world.table), world.store.objects))
    dry = without_writes(world.checker).check(pipeline=PIPELINE, as_of=None, dates=dates)
    assert (vars(world.table), world.store.objects) == before
    report = world.checker.check(pipeline=PIPELINE, as_of=None, dates=dates)
    assert vars(world.table) != before[0]
    assert dry.model_copy(update={"seconds": report.seconds}) == report
    rules = {day.rule for day in dry.days}
    assert {"grown", "too_many"} <= rules
    assert ("vanished" in rules) == (dates is None)


def test_every_method_of_the_run_table_that_writes_is_replaced(world):
    table = without_writes(world.checker).table
    writes = [
        name
        for name, method in vars(RunTable).items()
        if inspect.isfunction(method)
        and not name.startswith("_")
        and inspect.signature(method).return_annotation in {"None", "bool"}
    ]
    before = deepcopy(vars(world.table))
    assert "save_arrival_history" in writes
    for name in writes:
        assert getattr(table, name)() is None
    assert vars(world.table) == before
