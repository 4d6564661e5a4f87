"""Which stages of earlier attempts a run keeps."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import CodeDigests
from slackwater.runs.finished_stages import finished_stages
from slackwater.runs.freeze import KeptStages
from slackwater.runs.record import Run
from slackwater.runs.step_versions import store_lookups
from tests.fakes_check import KEPT, PIPELINE, PUBLICATION, World, freezer_of
from tests.fakes_runs import store_stage

pytestmark = pytest.mark.unit

DATE = "2013-03-10"
STEPS: dict[str, Any] = {
    "delays": {"step": "sql", "depends_on": ["flights"], "with": {"query": "SELECT 1"}, "exchange": True},
    "winds": {"step": "sql", "depends_on": ["weather"], "with": {"query": "SELECT 2"}, "exchange": True},
    "named": {"step": "select", "depends_on": ["delays"], "with": {"columns": ["a"]}, "exchange": True},
    "end": {"step": "join", "depends_on": ["named", "winds"], "with": {"keys": ["a"]}},
}
POSITIONS = {"delays": 0, "winds": 1, "named": 2}


class Attempts(World):
    """A day whose runs finish some stages and then fail or publish."""

    keeps = KEPT

    def __init__(self) -> None:
        super().__init__()
        for source in ("flights", "weather"):
            self.add(source, DATE, "12")
        self.define(STEPS)

    def define(self, steps: dict[str, Any], code: CodeDigests | None = None, *, versions: str = "stages") -> None:
        definition = {"pipeline": PIPELINE, "sources": ["flights", "weather"], "steps": steps, "versions": versions}
        pipeline = Pipeline.model_validate({**definition, "publish": {"step": "end", "key": ["date"]}})
        update = {"pipelines": {PIPELINE: pipeline}, "code": code or CodeDigests()}
        self.project = self.project.model_copy(update=update)

    def start(self, **options: Any) -> tuple[Run, set[str]]:
        """Start a run; return it, and the stages that it keeps."""
        freezer = freezer_of(self, self.keeps)
        arguments = {"pipeline": PIPELINE, "date": DATE, "execution": "run", "correlation_id": "c"}
        frozen = freezer.freeze(**arguments, **options)
        assert freezer.freeze(**arguments, **options) == frozen, "Step Functions may repeat the call"
        return frozen.run, {stage for stage, position in POSITIONS.items() if position in frozen.finished}

    def fail(self, *finished: str, **options: Any) -> Run:
        """Run the day until the stages `finished` have ended; then it fails."""
        run, kept = self.start(**options)
        for stage in finished:
            assert stage not in kept
            store_stage(self.store, run, stage, rows=1, files=2)
        self.recorder.record_failure(run, error="E", cause="")
        return run

    def publish_day(self, *computed: str) -> Run:
        run, _ = self.start()
        for stage in computed:
            store_stage(self.store, run, stage, rows=1, files=2)
        self.store.put(f"{run.prefix}publication.json", PUBLICATION.model_dump_json().encode())
        self.recorder.record_published(run)
        return run


@pytest.fixture
def world():
    return Attempts()


ALL = ("delays", "winds", "named", "end")


def test_a_run_that_measures_its_steps_keeps_no_stage(world):
    world.fail("delays", "winds")
    assert world.start(profile=True)[1] == set()


@pytest.mark.parametrize("finished", [(), ("winds",), ("delays", "winds"), ("delays", "named"), ALL[:3]])
def test_a_run_after_a_failure_keeps_the_finished_stages(world, finished):
    first = world.fail(*finished)
    second, kept = world.start()
    assert kept == set(finished)
    by_name = {record.stage: record.reference for record in finished_stages(second, store=world.store)}
    assert list(by_name) == [stage for stage in ALL if stage in finished]
    assert all(reference.manifest.startswith(first.prefix) for reference in by_name.values())


def test_the_job_that_publishes_runs_also_if_its_stage_is_finished(world):
    world.fail(*ALL)
    run, kept = world.start()
    assert kept == set(POSITIONS)
    assert [record.stage for record in finished_stages(run, store=world.store)][-1] == "end"


def test_stages_that_different_attempts_have_finished_are_kept_together(world):
    world.fail("delays")
    world.fail("winds")
    assert world.start()[1] == {"delays", "winds"}


@pytest.mark.parametrize(
    ("finished", "may_have_published"),
    [((), False), (("delays", "winds"), False), (("delays", "winds", "named"), True)],
)
def test_a_run_that_fails_before_its_last_stage_leaves_the_outcome_known(world, finished, may_have_published):
    world.fail(*finished)
    assert world.table.day(PIPELINE, DATE).outcome_unknown is may_have_published


@pytest.mark.parametrize(
    ("state", "finished", "may_have_published"),
    [("FAILED", ALL[:3], False), ("FAILED", ALL, True), ("CANCELLED", ALL[:3], True)],
)
def test_a_last_job_that_has_failed_before_its_stage_was_written_has_not_published(
    world, state, finished, may_have_published
):
    """A job that was cancelled may go on for a while."""
    run, _ = world.start()
    for stage in finished:
        store_stage(world.store, run, stage, rows=1, files=2)
    world.recorder.record_failure(run, error="States.TaskFailed", cause=json.dumps({"State": state}))
    assert world.table.day(PIPELINE, DATE).outcome_unknown is may_have_published


def test_a_stage_that_fails_does_not_make_an_unknown_outcome_known(world):
    world.fail("delays", "winds", "named")
    world.define(STEPS, CodeDigests(job="new"))
    world.fail()
    assert world.table.day(PIPELINE, DATE).outcome_unknown


def test_late_data_of_one_branch_leaves_the_other_as_it_is(world):
    world.publish_day(*ALL)
    world.add("flights", DATE, "13", name="late")
    assert world.start()[1] == {"winds"}


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({"winds": {**STEPS["winds"], "with": {"query": "SELECT 3"}}}, {"delays", "named"}),
        ({"delays": {**STEPS["delays"], "with": {"query": "SELECT 3"}}}, {"winds"}),
        ({"named": {**STEPS["named"], "with": {"columns": ["b"]}}}, {"delays", "winds"}),
        ({"end": {**STEPS["end"], "with": {"keys": ["b"]}}}, {"delays", "winds", "named"}),
    ],
)
def test_a_new_definition_runs_the_changed_stages_and_those_that_read_them(world, changed, kept):
    world.fail(*ALL)
    world.define({**STEPS, **changed})
    assert world.start()[1] == kept


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ({"job": "new"}, set()),
        ({"steps": {"sql": "new"}}, set()),
        ({"steps": {"select": "new"}}, {"delays", "winds"}),
        ({"steps": {"outliers": "new"}}, {"delays", "winds", "named"}),
    ],
)
def test_new_code_runs_the_stages_that_execute_it(world, code, kept):
    world.fail(*ALL)
    world.define(STEPS, CodeDigests(**code))
    assert world.start()[1] == kept


def test_a_forced_run_keeps_nothing_and_later_runs_keep_its_stages(world):
    world.fail("delays")
    assert world.start(force=True)[1] == set()
    world.recorder.record_failure(world.start(force=True)[0], error="E", cause="")
    forced = world.fail("delays", force=True)
    run, kept = world.start()
    assert kept == {"delays"}
    (record,) = finished_stages(run, store=world.store)
    assert record.reference.manifest.startswith(forced.prefix)


def test_a_stage_that_reads_an_api_is_kept_only_until_the_day_is_published(world):
    world.define({**STEPS, "winds": {"step": "read_api", "with": {"url": "u"}, "exchange": True}})
    world.fail("delays", "winds")
    assert world.start()[1] == {"delays", "winds"}
    world.recorder.record_failure(world.start()[0], error="E", cause="")
    world.publish_day("named", "end")
    world.add("flights", DATE, "13", name="late")
    assert world.start()[1] == set()


@pytest.mark.parametrize("part", ["00001.arrow", "delays/manifest.json", "delays/reference.json", "stages.json"])
def test_a_stage_of_which_anything_was_removed_is_computed_again(world, part):
    world.fail("delays")
    world.store.delete([uri for uri in world.store.objects if part in uri])
    assert world.start()[1] == set()


def test_a_run_looks_at_five_earlier_attempts_only(world):
    world.fail("delays")
    for _ in range(5):
        world.define({**STEPS, "delays": {**STEPS["delays"], "with": {"query": "SELECT 4"}}})
        world.fail()
    world.define(STEPS)
    assert world.start()[1] == set()


@pytest.mark.parametrize(("age", "kept"), [(timedelta(days=28, hours=23), {"delays"}), (timedelta(days=29), set())])
def test_a_stage_whose_files_may_be_removed_during_the_run_is_computed_again(world, age, kept):
    world.fail("delays")
    world.time += age
    assert world.start()[1] == kept


def test_where_published_runs_lose_their_files_only_stages_of_failed_runs_are_kept(world):
    world.keeps = KeptStages(age=KEPT.age, published=False)
    world.fail("winds")
    world.publish_day("delays", "named", "end")
    world.add("flights", DATE, "13", name="late")
    assert world.start()[1] == {"winds"}


class TestVersionsOfAllSteps:
    """A pipeline with `versions: all`."""

    STEPS: dict[str, Any] = {**STEPS, "named": {**STEPS["named"], "exchange": False}}
    """Without an exchange after `named`, whose stage is `end` then."""

    @pytest.fixture
    def world(self):
        world = Attempts()
        world.define(self.STEPS, versions="all")
        return world

    def test_switching_it_on_keeps_the_identity_of_the_run_and_computes_its_stages_again(self, world):
        world.define(self.STEPS)
        first = world.fail("delays", "winds")
        world.define(self.STEPS, versions="all")
        second, kept = world.start()
        assert (second.run_id, kept) == (first.run_id, set())

    def test_late_data_of_one_branch_leaves_the_other_as_it_is(self, world):
        world.publish_day("delays", "winds", "end")
        world.add("flights", DATE, "13", name="late")
        assert world.start()[1] == {"winds"}

    def test_a_stage_whose_step_has_looked_up_another_branch_is_kept_in_attempts_of_one_run_only(self, world):
        first, _ = world.start()
        store_lookups(first.stage_prefix("winds"), ("delays",), store=world.store)
        for stage in ("delays", "winds"):
            store_stage(world.store, first, stage, rows=1, files=2)
        world.recorder.record_failure(first, error="E", cause="")
        again = world.fail()
        references = {record.stage for record in finished_stages(again, store=world.store)}
        assert references == {"delays", "winds"}
        world.add("flights", DATE, "13", name="late")
        assert world.start()[1] == set()
