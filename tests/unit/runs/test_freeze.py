from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import cycle

import pytest

from slackwater.errors import CloudError, DayChanged, InputError, UnknownName
from slackwater.project.project import CodeDigests
from slackwater.runs.attempt_files import failure_uri
from slackwater.runs.freeze import FreezeAction, Freezer
from slackwater.runs.inputs.listing import InputListing
from slackwater.runs.inputs.manifest import read_manifest
from slackwater.runs.inputs.source_counts import CountsReader
from slackwater.runs.outcome import RunRecorder, failure_message
from slackwater.runs.record import Hold, Publication, RunState
from slackwater.runs.run_identity import is_stale
from slackwater.sources.partitions import Partition
from tests.example_project import example_project
from tests.fakes_check import KEPT
from tests.fakes_receiver import MemoryFileCache, begin_file, store_file
from tests.fakes_runs import NO_FOREIGN_TABLES, DictRunTable, DictStore, SetExecutions
from tests.fakes_state import MemoryState

pytestmark = pytest.mark.unit

PIPELINE, DATE, NOW = "daily_delays", "2013-03-10", datetime(2026, 1, 1, tzinfo=UTC)
PUBLICATION = Publication(table="t", snapshot_id="1", rows=3, replaced=0, seconds=1.0)


@pytest.fixture
def store():
    store = DictStore()
    for source in ("flights", "weather"):
        for hour in ("04", "05", "12", "23"):
            add(store, source=source, date="2013-03-10", hour=hour)
        for hour in ("03", "04"):
            add(store, source=source, date="2013-03-11", hour=hour)
    return store


def add(store, *, source, date, hour, name="a", rows=10, file=None):
    store.put(
        f"s3://raw/raw/source={source}/date={date}/hour={hour}/{name}.parquet",
        b"x" * rows,
        metadata={"rows": str(rows), **({"file": file} if file else {})},
    )


project = pytest.fixture(example_project, name="project")


@pytest.fixture
def table():
    return DictRunTable()


@pytest.fixture
def files():
    return MemoryFileCache()


@pytest.fixture
def executions():
    return SetExecutions("one", "two")


@pytest.fixture
def lost():
    """Pipelines of which a run was lost, as the freezer reports them."""
    return []


@pytest.fixture
def inputs(project, store, files, table):
    return InputListing(
        project=project, store=store, files=files, table=table, foreign=NO_FOREIGN_TABLES, raw_bucket="raw",
        now=lambda: NOW,
    )  # fmt: skip


@pytest.fixture
def freezer(inputs, table, executions, lost):
    counts = CountsReader(project=inputs.project, state=MemoryState(), files=inputs.files)
    return Freezer(
        project=inputs.project, store=inputs.store, inputs=inputs, counts=counts, table=table, executions=executions,
        exchange_bucket="exchange", keeps=KEPT, now=lambda: NOW, on_run_lost=lost.append,
    )  # fmt: skip


@pytest.fixture
def recorder(store, table):
    return RunRecorder(store=store, table=table, now=lambda: NOW)


def freeze(freezer, execution, **options):
    return freezer.freeze(pipeline=PIPELINE, date=DATE, execution=execution, correlation_id="c", **options)


def publish(recorder, run):
    recorder.store.put(f"{run.prefix}publication.json", PUBLICATION.model_dump_json().encode())
    return recorder.record_published(run).publication


def test_the_manifest_holds_exactly_the_objects_of_the_day_that_has_23_hours(freezer, store):
    run = freeze(freezer, "one").run
    manifest = read_manifest(store, run.manifest)
    hours = {(item.source, item.date, item.hour) for item in manifest.objects}
    expected = [("2013-03-10", "05"), ("2013-03-10", "12"), ("2013-03-10", "23"), ("2013-03-11", "03")]
    assert hours == {(source, *hour) for source in ("flights", "weather") for hour in expected}
    assert (run.files, run.rows, run.bytes) == (8, 80, 80)
    assert manifest.frozen_at == NOW


def test_payloads_of_the_orchestrator_stay_small(freezer, store):
    for number in range(2000):
        add(store, source="flights", date="2013-03-10", hour="12", name=f"n{number}")
    assert len(freeze(freezer, "one").model_dump_json()) < 1024


def test_a_day_without_input_is_frozen_as_empty(freezer, store):
    store.objects.clear()
    run = freeze(freezer, "one").run
    assert (run.files, run.rows, run.bytes) == (0, 0, 0)


def test_a_repeated_call_of_an_execution_returns_the_same_result(freezer):
    assert freeze(freezer, "one") == freeze(freezer, "one")


def test_a_second_execution_waits_while_the_first_runs(freezer):
    freeze(freezer, "one")
    assert freeze(freezer, "two").action is FreezeAction.WAIT


def test_one_of_two_concurrent_claims_waits(freezer, table):
    stale = table.day(PIPELINE, DATE)
    assert freeze(freezer, "one").action is FreezeAction.RUN
    table.day = lambda pipeline, date: stale  # "two" had read the day before "one" claimed it
    assert freeze(freezer, "two").action is FreezeAction.WAIT
    assert [record.execution for record in table.runs(PIPELINE)] == ["one"]


def test_a_published_day_with_the_same_inputs_is_not_run_again(freezer, recorder):
    run = freeze(freezer, "one").run
    publish(recorder, run)
    again = freeze(freezer, "two")
    assert (again.action, again.run, again.publication) == (FreezeAction.UNCHANGED, run, PUBLICATION)
    assert freeze(freezer, "two", force=True).run.attempt == 2


def test_a_run_that_measures_its_steps_runs_an_unchanged_day_and_is_recorded_as_such(freezer, recorder, table):
    publish(recorder, first := freeze(freezer, "one").run)
    again = freeze(freezer, "two", profile=True)
    assert (again.action, again.run.run_id, again.run.profiled) == (FreezeAction.RUN, first.run_id, True)
    assert freeze(freezer, "two", profile=True) == again
    record = table.run(PIPELINE, DATE, 2)
    assert (record.run.profiled, record.reasons) == (True, ("manual",))
    assert not first.profiled


@pytest.mark.parametrize(("rule", "ends"), [("shrank", True), ("audit", True), ("manifest_gone", False)])
def test_a_run_with_nothing_to_do_ends_a_hold_whose_cause_is_gone(freezer, recorder, table, rule, ends):
    publish(recorder, freeze(freezer, "one").run)
    hold = Hold(rule=rule, reason="rows are missing", since=NOW, inputs="other", execution="check")
    table.save(table.day(PIPELINE, DATE).model_copy(update={"hold": hold}))
    assert freeze(freezer, "two").action is FreezeAction.UNCHANGED
    day = table.day(PIPELINE, DATE)
    assert (day.hold is None) is ends
    if ends:
        assert (day.resolution.action, day.resolution.hold) == ("ended", hold)
        assert day.resolution.reason == "a run has found that the inputs are those of the published version"


def test_a_new_object_causes_a_new_run_and_only_its_metadata_is_read(freezer, recorder, store):
    first = freeze(freezer, "one").run
    publish(recorder, first)
    store.asked_metadata.clear()
    add(store, source="flights", date="2013-03-10", hour="12", name="late", rows=7)
    second = freeze(freezer, "two")
    assert second.action is FreezeAction.RUN
    assert second.run.run_id != first.run_id
    assert second.run.rows == first.rows + 7
    assert store.asked_metadata == ["s3://raw/raw/source=flights/date=2013-03-10/hour=12/late.parquet"]


def test_an_equal_manifest_is_stored_once(freezer, recorder, store):
    first = freeze(freezer, "one").run
    publish(recorder, first)
    an_hour_later = replace(freezer.inputs, now=lambda: NOW + timedelta(hours=1))
    puts, put = [], store.put
    store.put = lambda uri, *arguments, **options: (puts.append(uri), put(uri, *arguments, **options))
    again = freeze(replace(freezer, inputs=an_hour_later), "two", force=True).run
    assert again.manifest == first.manifest
    assert freezer.table.run(PIPELINE, DATE, 2).started_at == NOW + timedelta(hours=1)
    publish(recorder, again)
    assert first.manifest not in puts
    add(store, source="flights", date="2013-03-10", hour="12", name="late")
    assert freeze(freezer, "three").run.manifest in puts


def test_a_published_run_whose_manifest_is_gone_can_be_run_again_by_hand(freezer, recorder, store):
    first = freeze(freezer, "one").run
    publish(recorder, first)
    store.delete([first.manifest])
    again = freeze(freezer, "two", force=True)
    assert (again.action, again.run.attempt, again.run.manifest) == (FreezeAction.RUN, 2, first.manifest)
    assert read_manifest(store, first.manifest).digest == first.manifest[-69:-5]
    publish(recorder, again.run)
    assert freeze(freezer, "one").action is FreezeAction.UNCHANGED


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (CodeDigests(), False),
        (CodeDigests(job="newer"), True),
        (CodeDigests(steps={"join": "newer"}), True),
        (CodeDigests(steps={"a_step_of_others": "newer"}), False),
    ],
)
def test_a_published_run_is_stale_if_freezing_the_same_inputs_starts_a_new_run(
    freezer, recorder, project, code, expected
):
    run = freeze(freezer, "one").run
    publish(recorder, run)
    newer = project.model_copy(update={"code": code})
    assert (freeze(replace(freezer, project=newer), "two").action is FreezeAction.RUN) is expected
    assert is_stale(run, newer) is expected


def test_other_metrics_cause_no_run_and_a_run_keeps_those_of_its_start(freezer, recorder, project, table):
    publish(recorder, freeze(freezer, "one").run)
    pipeline = project.pipelines[PIPELINE]
    declared = pipeline.publish.model_copy(update={"metrics": {"flights": "max"}})
    changed = {PIPELINE: pipeline.model_copy(update={"publish": declared})}
    newer = replace(freezer, project=project.model_copy(update={"pipelines": changed}))
    assert freeze(newer, "two").action is FreezeAction.UNCHANGED
    assert freeze(newer, "two", force=True).run.attempt == 2
    kept = [table.run(PIPELINE, DATE, attempt).metrics for attempt in (1, 2)]
    assert kept == [pipeline.publish.metrics, {"flights": "max"}]


def test_the_day_of_a_lost_execution_is_taken_over_and_its_run_is_closed(freezer, executions, table, lost):
    freeze(freezer, "one")
    executions.running.remove("one")
    takeover = freeze(freezer, "two")
    assert (takeover.action, takeover.run.attempt) == (FreezeAction.RUN, 2)
    closed, running = table.runs(PIPELINE)
    assert (closed.state, running.state) == (RunState.FAILED, RunState.RUNNING)
    assert "without recording" in closed.error
    freeze(freezer, "two")
    assert lost == [PIPELINE]


def test_a_lost_run_is_reported_only_by_the_execution_that_claims_its_day(
    freezer, executions, table, lost, monkeypatch
):
    freeze(freezer, "one")
    executions.running.remove("one")
    with monkeypatch.context() as late:
        late.setattr(table, "save", conflicting_save)
        assert freeze(freezer, "two").action is FreezeAction.WAIT
    assert (table.run(PIPELINE, DATE, 1).state, lost) == (RunState.RUNNING, [])
    assert freeze(freezer, "two").action is FreezeAction.RUN
    assert (table.run(PIPELINE, DATE, 1).state, lost) == (RunState.FAILED, [PIPELINE])


def conflicting_save(day, *_):
    """Fail as `save` does when another execution has changed the day."""
    raise DayChanged(day.date)


@pytest.fixture
def after_the_run_is_read(table, monkeypatch):
    """A function whose argument is called once, after the next read of a run."""

    def patch(call):
        read = table.run

        def read_and_call(*key):
            record = read(*key)
            monkeypatch.undo()
            call()
            return record

        monkeypatch.setattr(table, "run", read_and_call)

    return patch


def test_a_run_that_is_published_while_it_is_taken_over_stays_published(
    freezer, recorder, executions, table, after_the_run_is_read
):
    run = freeze(freezer, "one").run
    executions.running.remove("one")
    after_the_run_is_read(lambda: publish(recorder, run))
    assert freeze(freezer, "two").action is FreezeAction.WAIT
    assert (table.run(PIPELINE, DATE, 1).state, table.day(PIPELINE, DATE).published.run) == (RunState.PUBLISHED, run)


def test_a_run_that_is_taken_over_while_it_is_published_stays_failed(
    freezer, recorder, executions, table, after_the_run_is_read
):
    run = freeze(freezer, "one").run
    executions.running.remove("one")
    after_the_run_is_read(lambda: freeze(freezer, "two"))
    with pytest.raises(DayChanged):
        publish(recorder, run)
    closed, running = table.runs(PIPELINE)
    assert (closed.state, running.state) == (RunState.FAILED, RunState.RUNNING)
    assert table.day(PIPELINE, DATE).published is None


def test_a_run_that_ended_by_itself_is_not_lost(freezer, recorder, lost):
    recorder.record_failure(freeze(freezer, "one").run, error="E", cause="why")
    freeze(freezer, "two")
    assert lost == []


def test_an_execution_that_is_not_known_yet_is_waited_for(freezer, executions, table):
    executions.known = {"two"}
    freeze(freezer, "one")
    assert freeze(freezer, "two").action is FreezeAction.WAIT
    later = replace(freezer, now=lambda: NOW + timedelta(minutes=3))
    assert freeze(later, "two").action is FreezeAction.RUN


def test_a_day_is_run_again_after_a_run_that_may_have_published(freezer, recorder, store, project):
    first = freeze(freezer, "one").run
    publish(recorder, first)
    newer = replace(freezer, project=project.model_copy(update={"code": CodeDigests(job="newer")}))
    recorder.record_failure(freeze(newer, "two").run, error="E", cause="after the commit, say")
    again = freeze(freezer, "one")
    assert (again.action, again.run.run_id, again.run.attempt) == (FreezeAction.RUN, first.run_id, 3)
    publish(recorder, again.run)
    assert freeze(freezer, "two").action is FreezeAction.UNCHANGED


def test_half_replaced_files_are_read_as_recorded_in_the_file_cache(freezer, store, files):
    hour = Partition("2013-03-10", "12")

    def put(uris):
        for uri in uris:
            store.put(uri, b"x", metadata={"rows": "1"})
        return set(uris)

    def read():
        run = freeze(freezer, "one", force=True).run
        freezer.table.by_day.clear()
        manifest = read_manifest(store, run.manifest)
        return {item.uri for item in manifest.objects} & (old | new)

    old = put(store_file(files, "flights", "f.csv", "old", [hour]))
    new = put(begin_file(files, "flights", "f.csv", "new", [hour]))
    assert read() == old
    store_file(files, "flights", "f.csv", "new", [hour])
    assert read() == new
    old = put(store_file(files, "flights", "g.csv", "old", [hour]))
    assert read() == old | new


def test_files_that_keep_changing_raise_a_retryable_error(freezer, store, files):
    (uri,) = store_file(files, "flights", "f.csv", "a", [Partition("2013-03-10", "12")])
    store.put(uri, b"x", metadata={"rows": "1"})
    listing, contents = store.list, cycle("ba")

    def change_and_list(prefix, **options):
        if "source=flights/" in prefix:  # Sources are listed in parallel.
            store_file(files, "flights", "f.csv", next(contents), [Partition("2013-03-10", "12")])
        return listing(prefix, **options)

    store.list = change_and_list
    with pytest.raises(DayChanged, match="files of flights kept changing"):
        freeze(freezer, "one")


def test_a_failed_run_releases_the_day(freezer, recorder, table):
    run = freeze(freezer, "one").run
    recorder.record_failure(run, error="States.TaskFailed", cause='{"StateDetails": "Trace\\nAuditFailed: no rows"}')
    assert table.run(PIPELINE, DATE, 1).error == "States.TaskFailed: AuditFailed: no rows"
    assert freeze(freezer, "two").run.attempt == 2


def test_the_message_of_a_failed_job_is_recorded(freezer, recorder, store):
    run = freeze(freezer, "one").run
    store.put(failure_uri(run.prefix), b"AuditFailed: a key stands twice")
    failure = recorder.record_failure(run, error="States.TaskFailed", cause='{"State": "FAILED"}')
    assert failure == ("AuditFailed: a key stands twice", False, "AuditFailed", True)


def test_a_very_long_reason_is_cut_and_names_the_object_that_has_all_of_it(freezer, recorder, store, table):
    run = freeze(freezer, "one").run
    whole = "AuditFailed: " + "é" * 300_000
    store.put(failure_uri(run.prefix), whole.encode())
    failure = recorder.record_failure(run, error="States.TaskFailed", cause='{"State": "FAILED"}')
    assert failure.error_type == "AuditFailed"
    assert failure.reason == f"{whole[:4000]}... (300,013 characters; all: {failure_uri(run.prefix)})"
    assert table.run(PIPELINE, DATE, 1).error == failure.reason
    assert store.get(failure_uri(run.prefix)) == whole.encode()


@pytest.mark.parametrize(
    ("error", "cause", "is_transient"),
    [
        ("States.TaskFailed", '{"State": "FAILED", "StateDetails": "the driver was lost"}', True),
        ("States.TaskFailed", '{"State": "FAILED", "StateDetails": "ExitCode: 137. Last few exceptions: ..."}', True),
        # argparse ends with 2; the others fail before the job's own code runs.
        (
            "States.TaskFailed",
            '{"State": "FAILED", "StateDetails": "failed. ExitCode: 2. Last few exceptions:"}',
            False,
        ),
        ("States.TaskFailed", '{"State": "FAILED", "StateDetails": "NoSuchFileException: /usr/a.jar"}', False),
        ("States.TaskFailed", '{"State": "FAILED", "StateDetails": "ClassNotFoundException: Catalog"}', False),
        ("States.TaskFailed", '{"State": "CANCELLED", "StateDetails": "stopped"}', False),
        ("States.TaskFailed", "not JSON", False),
        ("States.TaskFailed", "[]", False),
        ("States.Timeout", '{"State": "FAILED"}', False),
        ("EMRServerless.ValidationException", "no such application", False),
    ],
)
def test_only_a_job_that_failed_without_an_error_of_its_own_is_worth_a_second_try(
    freezer, recorder, error, cause, is_transient
):
    run = freeze(freezer, "one").run
    assert recorder.record_failure(run, error=error, cause=cause).is_transient == is_transient


def test_recording_twice_changes_nothing(freezer, recorder, table):
    run = freeze(freezer, "one").run
    publish(recorder, run)
    before = table.day(PIPELINE, DATE)
    assert not recorder.record_published(run).is_new
    assert not recorder.record_failure(run, error="late", cause="late").is_new
    assert table.day(PIPELINE, DATE) == before
    assert table.run(PIPELINE, DATE, 1).state is RunState.PUBLISHED


@pytest.mark.parametrize("date", ["2013-02-30", "20130310", "2013-W10-7", "yesterday", ""])
def test_an_invalid_date_of_a_run_is_refused(freezer, date):
    with pytest.raises(InputError, match="is not a date"):
        freezer.freeze(pipeline=PIPELINE, date=date, execution="one", correlation_id="c")


def test_a_day_that_has_not_begun_is_refused(freezer):
    with pytest.raises(InputError, match="has not begun in America/New_York"):
        freezer.freeze(pipeline=PIPELINE, date="2026-01-01", execution="one", correlation_id="c")


def test_a_pipeline_that_does_not_exist_is_refused(freezer):
    with pytest.raises(UnknownName, match=r"no pipeline 'delays'.*daily_delays"):
        freezer.freeze(pipeline="delays", date=DATE, execution="one", correlation_id="c")


def test_the_error_for_an_object_of_unknown_origin_names_its_uri(freezer, store):
    store.put("s3://raw/raw/source=flights/date=2013-03-10/hour=12/stray.parquet", b"?")
    with pytest.raises(CloudError, match=r"stray\.parquet does not say how many events"):
        freeze(freezer, "one")


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        ('{"errorType": "InputError", "errorMessage": "date: no"}', "E: date: no"),
        ("plain\nlast", "E: last"),
        ("", "E: no cause was given"),
        ("[1]", "E: [1]"),
    ],
)
def test_the_recorded_error_of_a_failure_is_one_line(cause, message):
    assert failure_message("E", cause) == message


def test_a_changed_file_of_which_one_object_was_overwritten_has_not_vanished(freezer, recorder, store):
    for hour in ("13", "14"):
        add(store, source="flights", date="2013-03-10", hour=hour, name="first", file="day.csv")
    publish(recorder, freeze(freezer, "one").run)
    store.delete([uri for uri in store.objects if uri.endswith("hour=14/first.parquet")])
    add(store, source="flights", date="2013-03-10", hour="13", name="first", file="day.csv", rows=20)
    assert freeze(freezer, "two").action is FreezeAction.RUN


def test_a_changed_file_with_fewer_rows_is_refused(freezer, recorder, store):
    add(store, source="flights", date="2013-03-10", hour="13", name="first", file="day.csv")
    publish(recorder, freeze(freezer, "one").run)
    store.delete([uri for uri in store.objects if uri.endswith("/first.parquet")])
    # Another file hides the loss in the total.
    add(store, source="flights", date="2013-03-10", hour="13", name="more", rows=50)
    add(store, source="flights", date="2013-03-10", hour="14", name="second", file="day.csv", rows=9)
    with pytest.raises(InputError, match=r"have lost 1 row .* \(1 changed with fewer rows\), such as those of day.csv"):
        freeze(freezer, "two")
