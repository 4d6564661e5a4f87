"""Which earlier attempt of a large day a run finds, so that its stages compute added objects alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import CodeDigests
from slackwater.runs import freeze
from slackwater.runs.added_objects import LARGE_ROWS, EarlierStage, find_earlier_stage
from slackwater.runs.freeze import KeptStages
from slackwater.runs.record import Run
from tests.fakes_check import KEPT, NOW, PIPELINE, PUBLICATION, World, freezer_of
from tests.fakes_runs import store_stage

pytestmark = pytest.mark.unit

DATE, EVENTS = "2013-03-10", 1000
CHECKED: dict[str, Any] = {
    "step": "data_quality",
    "depends_on": ["flights"],
    "with": {"rules": [{"rule": "not_null", "column": "origin"}]},
}
GROUPED: dict[str, Any] = {
    "step": "aggregate",
    "depends_on": ["checked"],
    "with": {"group_by": ["origin"], "measures": {"flights": {"function": "count"}}},
}


class LargeDay(World):
    """A day of one source, which publishes the rows of one stage."""

    keeps, large_rows = KEPT, EVENTS

    def __init__(self) -> None:
        super().__init__()
        self.flights = self.add("flights", DATE, "12", rows=EVENTS)
        self.define()

    def define(self, grouped: dict[str, Any] = GROUPED, *, versions: str = "stages", **code: Any) -> None:
        definition = {"pipeline": PIPELINE, "sources": ["flights"], "steps": {"checked": CHECKED, "grouped": grouped}}
        publish = {"step": "grouped", "key": ["date", "origin"]}
        pipeline = Pipeline.model_validate({**definition, "versions": versions, "publish": publish})
        self.project = self.project.model_copy(update={"pipelines": {PIPELINE: pipeline}, "code": CodeDigests(**code)})

    def start(self, **options: Any) -> Run:
        arguments = {"pipeline": PIPELINE, "date": DATE, "execution": "run", "correlation_id": "c"}
        frozen = replace(freezer_of(self, self.keeps), large_rows=self.large_rows).freeze(**arguments, **options)
        assert frozen.run
        return frozen.run

    def run_day(self, *, publish: bool = True, **options: Any) -> EarlierStage:
        """Run the day until its stage has ended; then it is published or fails. Return what later runs may find."""
        run = self.start(**options)
        manifest = store_stage(self.store, run, "grouped", rows=4, files=2)
        if publish:
            self.store.put(f"{run.prefix}publication.json", PUBLICATION.model_dump_json().encode())
            self.recorder.record_published(run)
        else:
            self.fail(run)
        return EarlierStage(manifest=manifest, inputs=run.manifest)

    def add_late(self, name: str = "late", *, rows: int = 10) -> None:
        self.add("flights", DATE, "13", name=name, rows=rows)

    def found(self, run: Run | None = None, **options: Any) -> EarlierStage | None:
        """Return what a run has found that starts now."""
        run = run or self.start(**options)
        return find_earlier_stage(run, "grouped", store=self.store)


@pytest.fixture
def day():
    return LargeDay()


@pytest.mark.parametrize("publish", [True, False])
def test_a_run_of_added_objects_finds_the_rows_of_the_earlier_attempt(day, publish):
    first = day.run_day(publish=publish)
    day.add_late()
    assert day.found() == first


def test_late_files_in_a_row_each_find_the_rows_before(day):
    earlier = day.run_day()
    for name in ("one", "two", "three"):
        day.add_late(name)
        run = day.start()
        assert day.found(run) == earlier
        day.fail(run)
        earlier = day.run_day()


def change(day):
    day.add("flights", DATE, "12", rows=EVENTS + 1)


def remove(day):
    day.store.delete([day.flights])
    day.add_late("all", rows=EVENTS)


def add_too_many(day):
    day.add_late("many", rows=EVENTS // 8)


def change_the_definition(day):
    day.define({**GROUPED, "with": {**GROUPED["with"], "measures": {"n": {"function": "count"}}}})


def change_the_code(day):
    day.define(steps={"aggregate": "new"})


def change_the_job(day):
    day.define(job="new")


def remove_a_file(day):
    day.store.delete([uri for uri in day.store.objects if "00001.arrow" in uri])


def wait_for_retention(day):
    day.time = NOW + KEPT.age


def remove_the_manifest(day):
    day.store.delete([uri for uri in day.store.objects if "/manifests/" in uri])


def remove_the_reference(day):
    day.store.delete([uri for uri in day.store.objects if uri.endswith("reference.json")])


@pytest.mark.parametrize(
    "happens",
    [
        change,
        remove,
        add_too_many,
        change_the_definition,
        change_the_code,
        change_the_job,
        remove_a_file,
        wait_for_retention,
        remove_the_manifest,
        remove_the_reference,
    ],
)
def test_the_whole_day_is_computed_if_more_has_changed_than_added_objects(day, happens):
    day.run_day(publish=False)
    day.add_late()
    happens(day)
    assert day.found() is None


def test_a_forced_run_computes_the_whole_day(day):
    day.run_day()
    day.add_late()
    assert day.found(force=True) is None


@pytest.mark.parametrize("large_rows", [EVENTS + 11, LARGE_ROWS])
def test_a_small_day_is_computed_as_a_whole(day, large_rows):
    day.run_day()
    day.add_late()
    day.large_rows = large_rows
    assert day.found() is None


def test_a_day_whose_steps_all_have_versions_is_computed_as_a_whole(day):
    day.define(versions="all")
    day.run_day()
    day.add_late()
    assert day.found() is None


def test_where_published_runs_lose_their_files_the_whole_day_is_computed(day):
    day.keeps = KeptStages(age=KEPT.age, published=False)
    day.run_day()
    day.add_late()
    assert day.found() is None


def test_a_stage_of_several_sources_is_computed_as_a_whole(day):
    definition = day.project.pipelines[PIPELINE].model_dump(by_alias=True)
    definition["sources"] = ["flights", "weather"]
    definition["steps"]["checked"]["depends_on"] = ["flights", "weather"]
    pipeline = Pipeline.model_validate(definition)
    day.project = day.project.model_copy(update={"pipelines": {PIPELINE: pipeline}})
    day.run_day()
    day.add_late()
    assert day.found() is None


def test_a_stage_that_reads_another_one_is_computed_as_a_whole(day):
    definition = day.project.pipelines[PIPELINE].model_dump(by_alias=True)
    definition["steps"]["checked"]["exchange"] = True
    day.project = day.project.model_copy(update={"pipelines": {PIPELINE: Pipeline.model_validate(definition)}})
    day.run_day()
    day.add_late()
    assert day.found() is None


def test_after_a_rollback_the_run_finds_the_latest_rows_of_which_it_has_all_objects(day):
    day.run_day()
    day.add_late("one")
    second = day.run_day()
    day.start(rollback=1, reason="the second version is wrong")
    run = day.start(rollback=1, reason="the second version is wrong")
    day.store.put(f"{run.prefix}publication.json", PUBLICATION.model_dump_json().encode())
    day.recorder.record_published(run)
    day.add_late("two")
    day.hold_decisions().release(PIPELINE, DATE, reason="the third one is right")
    assert day.found() == second


def test_a_call_after_a_crash_before_the_rows_were_found_finds_them(day, monkeypatch):
    first = day.run_day()
    day.add_late()

    def crash(*_: object, **__: object) -> None:
        raise RuntimeError("the function has ended")

    with monkeypatch.context() as context:
        context.setattr(freeze, "store_earlier_stages", crash)
        with pytest.raises(RuntimeError, match="has ended"):
            day.start()
    assert day.found() == first


def test_the_rows_of_the_latest_attempt_that_has_any_are_found(day):
    first = day.run_day()
    day.add_late("one")
    day.fail(day.start())
    day.add_late("two")
    assert day.found() == first


def test_rows_that_may_still_be_read_are_found_until_the_last_hour(day):
    first = day.run_day()
    day.add_late()
    day.time = NOW + KEPT.age - timedelta(hours=1)
    assert day.found() == first
