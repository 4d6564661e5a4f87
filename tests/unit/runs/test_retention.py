"""Retention: which Arrow files are removed after a run has published its day, and what stays."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lambdas import record_run
from slackwater.arrow.files import read_batches, write_files
from slackwater.errors import AccessDenied, CloudError, ObjectMissing
from slackwater.runs import outcome
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.record import RunRecord, RunState
from tests.fakes_check import PUBLICATION, World
from tests.fakes_functions import use_resources

pytestmark = pytest.mark.unit

DATE = "2013-03-10"


@pytest.fixture
def world():
    world = World()
    world.add("flights", DATE, "12")
    return world


@pytest.fixture
def recorder(world):
    return RunRecorder(store=world.store, table=world.table, now=world.now)


def write_run(world, run, *, stages=("joined", "counted"), files=3):
    """Write what the jobs of an attempt write, and return the URIs of the Arrow files."""
    uris = [f"{run.arrow_prefix}{stage}/{number:05d}.arrow" for stage in stages for number in range(files)]
    documents = [f"{run.stage_prefix(stage)}{name}.json" for stage in stages for name in ("manifest", "reference")]
    for uri in (*uris, *documents, f"{run.prefix}publication.json", f"{run.prefix}loads.json"):
        world.store.put(uri, b"{}")
    return uris


def stored(world):
    return set(world.store.objects)


def test_the_arrow_files_have_a_prefix_of_their_own(world):
    run = world.freeze(DATE)
    assert run.prefix.startswith("s3://exchange/runs/")
    assert run.arrow_prefix == run.prefix.replace("/runs/", "/arrow/")


def test_exactly_the_arrow_files_of_a_published_attempt_are_removed(world, recorder):
    first = world.publish(DATE)
    kept = write_run(world, first)
    second = world.publish(DATE, force=True)
    removed = write_run(world, second)
    before = stored(world)
    assert recorder.remove_arrow_files(second) == len(removed) == 6
    assert before - stored(world) == set(removed)
    assert stored(world) > {*kept, second.manifest, *(item for item in before if item.startswith("s3://raw/"))}


def test_an_active_run_of_the_day_keeps_its_files_when_those_of_the_published_run_are_removed(world, recorder):
    published = world.publish(DATE)
    write_run(world, published)
    active = world.freeze(DATE, force=True)
    kept = write_run(world, active)
    assert recorder.remove_arrow_files(published) == 6
    assert recorder.remove_arrow_files(active) == 0
    assert stored(world) > set(kept)


def test_a_run_that_was_closed_as_lost_keeps_its_files_even_if_it_reports_a_publication(world, recorder):
    run = world.freeze(DATE)
    write_run(world, run)
    lost = world.table.run(run.pipeline, DATE, 1).model_copy(update={"state": RunState.FAILED})
    world.table.save(lost)
    world.store.put(f"{run.prefix}publication.json", PUBLICATION.model_dump_json().encode())
    recorder.record_published(run)
    assert recorder.remove_arrow_files(run) == 0


def test_a_run_that_the_table_does_not_contain_removes_nothing(world, recorder):
    run = world.freeze(DATE)
    uris = write_run(world, run)
    world.table.records.clear()
    with pytest.raises(CloudError, match="no attempt 1"):
        recorder.remove_arrow_files(run)
    assert stored(world) > set(uris)


def test_a_call_is_bounded_and_the_next_one_removes_the_rest(world, recorder, monkeypatch):
    monkeypatch.setattr(outcome, "REMOVED_AT_ONCE", 4)
    run = world.publish(DATE)
    write_run(world, run)
    assert [recorder.remove_arrow_files(run) for _ in range(3)] == [4, 2, 0]


def test_a_call_after_a_crash_between_deletions_removes_the_rest(world, recorder, monkeypatch):
    run = world.publish(DATE)
    uris = write_run(world, run)
    delete = world.store.delete

    def crash(uris):
        delete(list(uris)[:2])
        raise CloudError("could not delete")

    monkeypatch.setattr(world.store, "delete", crash)
    with pytest.raises(CloudError):
        recorder.remove_arrow_files(run)
    monkeypatch.undo()
    assert recorder.remove_arrow_files(run) == 4
    assert not stored(world) & set(uris)


@pytest.mark.parametrize("columns", [None, ["name"]])
def test_reading_a_removed_file_says_that_retention_removed_it(world, recorder, columns):
    run = world.publish(DATE)
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    batch = pa.RecordBatch.from_pydict({"id": [1], "name": ["x"]}, schema=schema)
    (file,) = write_files([batch], prefix=f"{run.arrow_prefix}counted/", schema=schema, store=world.store)
    recorder.remove_arrow_files(run)
    with pytest.raises(ObjectMissing, match=f"{file.uri} does not exist: it was removed by retention"):
        list(read_batches(file, schema=schema, store=world.store, columns=columns))


class TestTheFunctionThatRecordsRuns:
    """`lambdas/record_run`, with the setting `intermediate_days`."""

    @pytest.fixture
    def record(self, world, monkeypatch):
        def record(run, *, intermediate_days, event="published", **more):
            settings = {"intermediate_days": intermediate_days}
            use_resources(monkeypatch, record_run, settings, store=world.store, run_table=world.table)
            return record_run.handler({"event": event, "run": run.model_dump(), **more}, None)

        return record

    @pytest.fixture
    def run(self, world):
        """A run whose jobs have ended, and the URIs of its Arrow files."""
        run = world.publish(DATE)
        uris = write_run(world, run)
        world.store.put(f"{run.prefix}publication.json", PUBLICATION.model_dump_json().encode())
        running = RunRecord(run=run, state=RunState.RUNNING, execution="run", started_at=world.now())
        world.table.save(running)
        return run, set(uris)

    def test_0_days_remove_them_at_once_also_when_the_call_is_repeated(self, world, run, record):
        run, uris = run
        answers = [record(run, intermediate_days="0") for _ in range(2)]
        assert answers[0] == answers[1]
        assert not stored(world) & uris

    def test_more_days_leave_them_to_the_lifecycle_rule(self, world, run, record):
        run, uris = run
        record(run, intermediate_days="1")
        assert stored(world) > uris

    def test_a_failure_leaves_them_to_the_lifecycle_rule(self, world, run, record):
        run, uris = run
        record(run, intermediate_days="0", event="failed", error="RunFailed", cause="", retried=False)
        assert stored(world) > uris

    def test_a_published_run_succeeds_even_if_they_cannot_be_removed(self, world, run, record, monkeypatch):
        run, uris = run

        def refuse(_):
            raise AccessDenied("s3:DeleteObject")

        monkeypatch.setattr(world.store, "delete", refuse)
        assert record(run, intermediate_days="0")["rows"] == 3
        assert world.table.run(run.pipeline, DATE, 1).state is RunState.PUBLISHED
        assert stored(world) > uris
