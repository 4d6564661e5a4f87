"""The choice of the two versions of a day to compare, and the state machine of the comparison job."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonata
import pytest

from lambdas import compare_versions
from slackwater.errors import InputError, ObjectMissing, RunFailed
from slackwater.late.changes.choose_versions import CompareAction, CompareSince, Versions
from slackwater.late.changes.job_claims import (
    MAX_FAILED_JOBS,
    MAX_STARTED_JOBS,
    JobClaim,
    abandoned_comparisons,
    claim_uri,
)
from slackwater.late.changes.pairs import VersionPair, comparison_uri, job_failure_uri, job_started_uri, pair_uri
from slackwater.late.comparison import ComparisonReference
from slackwater.runs.record import DayRecord, Publication, PublishedRun, RunRecord, RunState
from tests.fakes_comparison import comparison, version
from tests.fakes_functions import use_resources
from tests.fakes_notification import a_run
from tests.fakes_runs import DictRunTable, DictStore, SetExecutions

pytestmark = pytest.mark.unit

PIPELINE, DATE = "daily_delays", "2013-03-10"
BEGIN = datetime(2013, 3, 11, 6, tzinfo=UTC)
NOW = BEGIN + timedelta(days=30)
MACHINE = json.loads(Path("step_functions/compare_day.asl.json").read_text())
STATES = MACHINE["States"]


class Days(DictRunTable):
    """A run table with one day, whose attempts have the states that a test sets."""

    def set_states(self, *states: RunState, notified: int = 1) -> None:
        published = None
        for attempt, state in enumerate(states, start=1):
            run = a_run(attempt)
            publication = Publication(table="t", snapshot_id=str(attempt), rows=1, replaced=0, seconds=1.0)
            started = BEGIN + timedelta(days=attempt)
            record = RunRecord(run=run, state=state, execution="arn:e", started_at=started)
            if state is RunState.PUBLISHED:
                ended = started + timedelta(minutes=1)
                record = record.model_copy(update={"publication": publication, "ended_at": ended})
                published = PublishedRun(run=run, publication=publication, at=ended)
            self.records[PIPELINE, DATE, attempt] = record
        self.by_day[PIPELINE, DATE] = DayRecord(
            pipeline=PIPELINE, date=DATE, published=published, notified_attempt=notified
        )


GIVEN_UP: list[str] = []
"""The pipelines of the comparisons that were given up in a test."""
PUBLISHED, FAILED, RUNNING = RunState.PUBLISHED, RunState.FAILED, RunState.RUNNING


@pytest.fixture
def store():
    return DictStore()


@pytest.fixture
def table():
    return Days()


@pytest.fixture
def versions(store, table):
    GIVEN_UP.clear()
    return Versions(
        store=store, table=table, exchange_bucket="exchange", executions=SetExecutions("arn:one"), now=lambda: NOW,
        put_metric=lambda _metric, _value, *, pipeline: GIVEN_UP.append(pipeline),
    )  # fmt: skip


def choose(versions, since=CompareSince.PREVIOUS, execution="arn:one", **numbers):
    correlation_id = f"c-{execution[4:]}"
    return versions.choose(
        pipeline=PIPELINE, date=DATE, since=since, execution=execution, correlation_id=correlation_id, **numbers
    )


@pytest.mark.parametrize(
    ("numbers", "pair"),
    [({}, (3, 5)), ({"before": 1}, (1, 5)), ({"after": 3}, (2, 3)), ({"before": 1, "after": 3}, (1, 3))],
)
def test_two_other_versions_are_compared_by_their_numbers(versions, table, numbers, pair):
    table.set_states(PUBLISHED, PUBLISHED, PUBLISHED, FAILED, PUBLISHED)
    chosen = choose(versions, **numbers)
    assert (chosen.action, chosen.before, chosen.after) == (CompareAction.COMPARE, *pair)
    assert f"{pair[0]}-{pair[1]}" in chosen.prefix


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"after": 4}, "--to: daily_delays 2013-03-10 has no published version 4 (versions: 1, 2, 3, 5)"),
        (
            {"before": 9},
            "--from: daily_delays 2013-03-10 has no published version 9 before version 5 (versions: 1, 2, 3)",
        ),
        ({"before": 3, "after": 2}, "--from: daily_delays 2013-03-10 has no published version 3 before version 2 (v"),
        ({"before": 1, "after": 1}, "no published version 1 before version 1 (versions: none)"),
    ],
)
def test_a_version_that_was_not_published_before_the_other_one_is_refused(versions, table, numbers, message):
    table.set_states(PUBLISHED, PUBLISHED, PUBLISHED, FAILED, PUBLISHED)
    with pytest.raises(InputError, match=re.escape(message)):
        choose(versions, **numbers)


def test_the_first_version_has_none_before_it(versions, table):
    table.set_states(PUBLISHED, PUBLISHED)
    chosen = choose(versions, after=1)
    assert (chosen.action, chosen.comparison.reason) == (
        CompareAction.NOTHING, "1 is the first version: there is no earlier version",
    )  # fmt: skip


@pytest.mark.parametrize(
    "case",
    [
        ((PUBLISHED, PUBLISHED), 1, CompareSince.PREVIOUS, (1, 2)),
        ((PUBLISHED, PUBLISHED, FAILED, PUBLISHED, RUNNING), 1, CompareSince.PREVIOUS, (2, 4)),
        ((PUBLISHED, PUBLISHED, PUBLISHED), 1, CompareSince.NOTIFIED, (1, 3)),
        ((PUBLISHED, PUBLISHED, PUBLISHED), 2, CompareSince.NOTIFIED, (2, 3)),
        ((FAILED, PUBLISHED, PUBLISHED, PUBLISHED), 0, CompareSince.NOTIFIED, (2, 4)),
        ((FAILED, PUBLISHED, PUBLISHED), 1, CompareSince.NOTIFIED, (2, 3)),
        ((PUBLISHED, PUBLISHED), 2, CompareSince.PREVIOUS, (1, 2)),
    ],
)
def test_the_published_version_is_compared_with_the_previous_or_the_notified_one(versions, table, store, case):
    states, notified, since, pair = case
    table.set_states(*states, notified=notified)
    chosen = choose(versions, since)
    before, after = pair
    prefix = f"s3://exchange/comparisons/{PIPELINE}/{DATE}/{before}-{after}/"
    assert (chosen.action, chosen.before, chosen.after, chosen.prefix) == (CompareAction.COMPARE, before, after, prefix)
    assert chosen.comparison is None
    stored = VersionPair.model_validate_json(store.get(pair_uri(prefix)))
    assert (stored.pipeline, stored.date, stored.before.attempt, stored.after.attempt) == (
        PIPELINE,
        DATE,
        before,
        after,
    )
    record = table.run(PIPELINE, DATE, after)
    assert stored.after.tag == record.run.tag
    assert stored.after.snapshot_id == str(after)
    assert (stored.after.frozen_at, stored.after.published_at) == (record.started_at, record.ended_at)


@pytest.mark.parametrize(
    "case",
    [
        ((FAILED, PUBLISHED, FAILED), 2, CompareSince.PREVIOUS, "published once: there is no earlier version"),
        ((PUBLISHED,), 1, CompareSince.NOTIFIED, "published once: there is no earlier version"),
        (
            (PUBLISHED, PUBLISHED),
            2,
            CompareSince.NOTIFIED,
            "people were already notified of the published version of 2013-03-10",
        ),
    ],
)
def test_without_two_versions_there_is_nothing_to_compare(versions, table, store, case):
    states, notified, since, reason = case
    table.set_states(*states, notified=notified)
    chosen = choose(versions, since)
    assert (chosen.action, chosen.comparison.uri, chosen.comparison.differing) == (CompareAction.NOTHING, "", 0)
    assert reason in chosen.comparison.reason
    assert not store.objects


def test_a_day_that_was_never_published_is_an_input_error(versions, table):
    with pytest.raises(InputError, match="daily_delays has published nothing for 2013-03-10"):
        choose(versions)
    table.set_states(FAILED, RUNNING)
    with pytest.raises(InputError, match="published nothing"):
        choose(versions)


def test_a_pair_is_compared_once(versions, table, store):
    table.set_states(PUBLISHED, PUBLISHED)
    prefix = choose(versions).prefix
    store.put(comparison_uri(prefix), comparison().model_dump_json().encode())
    chosen = choose(versions)
    reference = ComparisonReference(uri=comparison_uri(prefix), before=1, after=2, differing=1)
    assert (chosen.action, chosen.comparison) == (CompareAction.KNOWN, reference)
    assert versions.compared(prefix) == reference
    table.set_states(PUBLISHED, PUBLISHED, PUBLISHED)
    assert choose(versions).action is CompareAction.COMPARE


def test_the_metrics_are_those_of_the_later_version_s_run(versions, table, store):
    table.set_states(PUBLISHED, PUBLISHED, PUBLISHED)
    for attempt, metrics in ((1, {"flights": "max"}), (2, {"flights": "sum"}), (3, {})):
        record = table.records[PIPELINE, DATE, attempt].model_copy(update={"metrics": metrics})
        table.records[PIPELINE, DATE, attempt] = RunRecord.model_validate_json(record.model_dump_json())
    prefix = choose(versions).prefix
    assert VersionPair.model_validate_json(store.get(pair_uri(prefix))).metrics == {}
    table.set_states(PUBLISHED, PUBLISHED)
    table.records[PIPELINE, DATE, 2] = table.records[PIPELINE, DATE, 2].model_copy(update={"metrics": {"n": "min"}})
    assert VersionPair.model_validate_json(store.get(pair_uri(choose(versions).prefix))).metrics == {"n": "min"}


def test_a_comparison_with_other_fields_is_computed_again(versions, table, store):
    table.set_states(PUBLISHED, PUBLISHED)
    store.put(comparison_uri(choose(versions).prefix), b'{"pipeline": "daily_delays"}')
    assert choose(versions).action is CompareAction.COMPARE


def test_payloads_of_the_orchestrator_stay_small(versions, table):
    table.set_states(*[PUBLISHED] * 300)
    assert len(choose(versions).model_dump_json()) < 1024


def test_executions_that_compare_the_same_pair_at_the_same_time_share_a_job(versions, table):
    table.set_states(PUBLISHED, PUBLISHED)
    one, again, other = choose(versions), choose(versions), choose(versions, execution="arn:other")
    assert one == again == other
    assert (one.action, one.correlation_id) == (CompareAction.COMPARE, "c-one")
    table.set_states(PUBLISHED, PUBLISHED, PUBLISHED)
    assert choose(versions).job != one.job
    # Its cost counts once for a job: for the execution that starts it.
    compared = [(item.before, item.after, item.execution) for item in table.comparisons(PIPELINE, DATE)]
    assert compared == [(1, 2, "arn:one"), (2, 3, "arn:one")]
    assert table.comparisons(PIPELINE, DATE)[0].started_at == NOW


def test_the_pair_of_an_execution_that_has_ended_without_a_comparison_is_compared_by_another_job(versions, table):
    table.set_states(PUBLISHED, PUBLISHED)
    jobs = []
    for execution in ("arn:one", "arn:two", "arn:three"):
        versions.executions.running = {execution}
        versions.executions.known.add(execution)
        jobs.append(choose(versions, execution=execution).job)
        assert choose(versions, execution="arn:other").job == jobs[-1]
    assert len(set(jobs)) == 3
    assert len(table.comparisons(PIPELINE, DATE)) == 3


def fail(versions, number, since=CompareSince.NOTIFIED):
    """An execution chooses, its job fails, and the execution ends; return what it has chosen."""
    execution = f"arn:try-{number}"
    versions.executions.known.add(execution)
    chosen = choose(versions, since, execution)
    versions.store.put(job_failure_uri(chosen.prefix, chosen.job), f"SparkException: {number}".encode())
    return chosen


def kill(versions, number, since=CompareSince.NOTIFIED):
    """An execution chooses, its job starts and is killed, and the execution ends; return what it has chosen."""
    execution = f"arn:killed-{number}"
    versions.executions.known.add(execution)
    chosen = choose(versions, since, execution)
    versions.store.put(job_started_uri(chosen.prefix, chosen.job), b"")
    return chosen


def given_up(versions):
    day = versions.table.day(PIPELINE, DATE)
    return [item.reason for item in abandoned_comparisons([day], store=versions.store, exchange_bucket="exchange")]


@pytest.mark.parametrize(
    ("states", "pair", "command"),
    [((PUBLISHED, PUBLISHED), "1 with 2", "diff"), ((PUBLISHED,) * 3, "1 with 3", "run --force")],
)
def test_a_comparison_that_always_fails_is_given_up_once(versions, table, states, pair, command):
    table.set_states(*states)
    jobs = {fail(versions, number).job for number in range(MAX_FAILED_JOBS)}
    assert (len(jobs), GIVEN_UP, given_up(versions)) == (MAX_FAILED_JOBS, [], [])
    for number in range(2):
        with pytest.raises(RunFailed) as error:
            choose(versions, CompareSince.NOTIFIED, f"arn:refused-{number}")
        assert str(error.value) == (
            f"the comparison of {PIPELINE} {DATE}, version {pair}, has failed 5 times and is not tried again: fix the "
            f"cause, then `slackwater {command} {PIPELINE} --date {DATE}`. Its error: SparkException: 4"
        )
    assert (GIVEN_UP, given_up(versions)) == ([PIPELINE], [str(error.value)])


def test_a_job_that_was_stopped_or_never_started_is_no_failed_one(versions, table):
    table.set_states(PUBLISHED, PUBLISHED)
    for number in range(2 * MAX_FAILED_JOBS):
        versions.executions.known.add(f"arn:stopped-{number}")
        assert choose(versions, CompareSince.NOTIFIED, f"arn:stopped-{number}").action is CompareAction.COMPARE
    for number in range(MAX_FAILED_JOBS):
        fail(versions, number)
    versions.executions.known.add("arn:stopped")
    with pytest.raises(RunFailed, match=r"has failed 5 times .* Its error: SparkException: 4$"):
        choose(versions, CompareSince.NOTIFIED, "arn:stopped")
    assert GIVEN_UP == [PIPELINE]


@pytest.mark.parametrize(
    ("failed", "error"),
    [
        (0, "No job has stored an error: the logs of the jobs show how they ended"),
        (1, "Its error: SparkException: 100"),
    ],
)
def test_a_comparison_whose_jobs_are_killed_without_an_error_is_given_up_too(versions, table, store, failed, error):
    table.set_states(PUBLISHED, PUBLISHED)
    for number in range(failed):
        fail(versions, 100 + number)
    for number in range(MAX_STARTED_JOBS):
        assert kill(versions, number).action is CompareAction.COMPARE
    # A repeated call of the last execution finds its own claim.
    versions.executions.running.add(f"arn:killed-{number}")
    assert choose(versions, CompareSince.NOTIFIED, "arn:other").action is CompareAction.COMPARE
    versions.executions.running.clear()
    assert GIVEN_UP == []
    for number in range(2):
        with pytest.raises(RunFailed) as refused:
            choose(versions, CompareSince.NOTIFIED, f"arn:refused-{number}")
        assert str(refused.value) == (
            f"the comparison of {PIPELINE} {DATE}, version 1 with 2, was tried 20 times without a result and is not "
            f"tried again: fix the cause, then `slackwater diff {PIPELINE} --date {DATE}`. {error}"
        )
    assert (GIVEN_UP, given_up(versions)) == ([PIPELINE], [str(refused.value)])
    # A person can try again, as often as they like.
    for number in (10, 11):
        assert fail(versions, number, CompareSince.PREVIOUS).action is CompareAction.COMPARE
    store.put(comparison_uri(choose(versions).prefix), comparison().model_dump_json().encode())
    assert (choose(versions, CompareSince.NOTIFIED).action, given_up(versions)) == (CompareAction.KNOWN, [])


def test_tries_of_a_person_and_jobs_without_capacity_give_no_comparison_up(versions, table, store):
    table.set_states(PUBLISHED, PUBLISHED)
    for number in range(MAX_STARTED_JOBS):
        kill(versions, f"diff-{number}", CompareSince.PREVIOUS)
        versions.executions.known.add(f"arn:queued-{number}")
        assert choose(versions, CompareSince.NOTIFIED, f"arn:queued-{number}").action is CompareAction.COMPARE
    # Monitorings whose jobs have started count, whoever compares in between.
    for number in range(MAX_STARTED_JOBS):
        assert kill(versions, number).action is CompareAction.COMPARE
        kill(versions, f"again-{number}", CompareSince.PREVIOUS)
    with pytest.raises(RunFailed, match="was tried 20 times without a result"):
        choose(versions, CompareSince.NOTIFIED, "arn:refused")


def test_a_claim_of_an_older_version_is_readable_and_counts_as_no_started_job(versions, table, store):
    table.set_states(PUBLISHED, PUBLISHED)
    prefix = choose(versions).prefix
    old = JobClaim(execution="arn:old", correlation_id="c", at=NOW).model_dump_json(exclude_defaults=True)
    assert "started" not in old
    for number in range(MAX_STARTED_JOBS):
        store.put(claim_uri(prefix, number), old.encode())
    versions.executions.known.add("arn:old")
    assert kill(versions, 1).action is CompareAction.COMPARE
    stored = JobClaim.model_validate_json(store.get(claim_uri(prefix, MAX_STARTED_JOBS)))
    assert (stored.by_monitoring, stored.started_before) == (True, 0)


def test_a_new_version_of_a_day_is_compared_although_an_earlier_comparison_was_given_up(versions, table):
    table.set_states(PUBLISHED, PUBLISHED)
    for number in range(MAX_FAILED_JOBS):
        fail(versions, number)
    with pytest.raises(RunFailed):
        choose(versions, CompareSince.NOTIFIED, "arn:refused")
    table.set_states(PUBLISHED, PUBLISHED, PUBLISHED)
    assert fail(versions, 10).action is CompareAction.COMPARE
    assert given_up(versions) == []


def test_a_comparison_that_succeeds_at_the_last_try_while_another_execution_chooses_is_not_given_up(
    versions, table, store
):
    table.set_states(PUBLISHED, PUBLISHED)
    for number in range(MAX_FAILED_JOBS):
        prefix = fail(versions, number).prefix

    def ends(execution):
        store.put(comparison_uri(prefix), comparison().model_dump_json().encode())
        return False

    versions.executions.is_running = ends
    assert choose(versions, CompareSince.NOTIFIED, "arn:other").action is CompareAction.KNOWN
    assert GIVEN_UP == []


def test_an_execution_that_ends_while_another_chooses_has_stored_the_comparison(versions, table, store):
    table.set_states(PUBLISHED, PUBLISHED)
    prefix, is_running = choose(versions).prefix, versions.executions.is_running

    def ends(execution):
        store.put(comparison_uri(prefix), comparison().model_dump_json().encode())
        versions.executions.running.clear()
        return is_running(execution)

    versions.executions.is_running = ends
    assert choose(versions, execution="arn:other").action is CompareAction.KNOWN
    assert [item.execution for item in table.comparisons(PIPELINE, DATE)] == ["arn:one"]


def test_a_very_long_error_of_a_comparison_is_cut(versions, table, store):
    table.set_states(PUBLISHED, PUBLISHED)
    uri = job_failure_uri(choose(versions).prefix, "j")
    store.put(uri, b"DataError: " + b"x" * 300_000)
    reason = versions.failure(prefix=choose(versions).prefix, job="j", error="E", cause="c")
    assert reason == f"DataError: {'x' * 3989}... (300,011 characters; all: {uri})"


def test_a_job_that_wrote_no_error_has_that_of_step_functions(versions, table, store):
    table.set_states(PUBLISHED, PUBLISHED)
    chosen = choose(versions)

    def failure(job):
        return versions.failure(prefix=chosen.prefix, job=job, error="States.TaskFailed", cause="Task failed")

    store.put(job_failure_uri(chosen.prefix, chosen.job), b"CloudError: no tag")
    assert failure(chosen.job) == "CloudError: no tag"
    assert failure("f" * 32) == "States.TaskFailed: Task failed"


class TestMachine:
    """The functions as the machine calls them: its expressions, evaluated one state after another."""

    @pytest.fixture
    def call(self, monkeypatch, versions):
        use_resources(monkeypatch, compare_versions, versions=versions)
        variables: dict[str, Any] = {}

        def call(state: str, state_input: Any = None) -> Any:
            task = STATES[state]
            name = variables.get("name", "one")
            context = {"Execution": {"Id": f"arn:{name}", "Name": name}, "State": {"RetryCount": 0}}
            states = {"input": state_input, "context": context}
            payload = evaluated(task["Arguments"]["Payload"], states, variables)
            result = compare_versions.handler(payload, None)
            after = {**states, "result": {"Payload": result}}
            variables.update(evaluated(task.get("Assign", {}), after, variables))
            return evaluated(task["Output"], after, variables) if "Output" in task else None

        call.variables = variables
        return call

    def comparison_request(self, **more: str) -> dict[str, str]:
        return {"pipeline": PIPELINE, "date": DATE, "since": "previous", **more}

    def test_the_machine_uses_jsonata_and_one_function(self):
        assert MACHINE["QueryLanguage"] == "JSONata"
        functions = {
            state["Arguments"]["FunctionName"] for state in STATES.values() if "Payload" in state.get("Arguments", {})
        }
        assert functions == {"${CompareVersionsFunction}"}

    def test_a_pair_goes_to_the_job_and_comes_back_as_a_reference(self, call, table, store):
        table.set_states(PUBLISHED, PUBLISHED)
        chosen = call("Choose the versions", self.comparison_request(correlation_id="c-1"))
        states = {"input": chosen, "context": {"State": {"RetryCount": 2}}}
        (choice,) = STATES["Decide whether to compare"]["Choices"]
        assert evaluated(choice["Condition"], states, call.variables) is True
        job = evaluated(STATES["Compare the versions"]["Arguments"], states, call.variables)
        assert job["ClientToken"] == chosen["job"]
        assert len(job["ClientToken"]) <= 64
        assert job["Name"] == "daily_delays 2013-03-10 compare 1-2"
        entry_point_arguments = job["JobDriver"]["SparkSubmit"]["EntryPointArguments"]
        arguments = dict(zip(entry_point_arguments[::2], entry_point_arguments[1::2], strict=True))
        assert json.loads(arguments.pop("--comparison")) == {
            "pipeline": PIPELINE, "date": DATE, "prefix": chosen["prefix"], "job": chosen["job"],
            "correlation_id": "c-1",
        }  # fmt: skip
        assert arguments == {
            "--project": "${ProjectUri}", "--catalog-table": f"warehouse.${{WarehouseDatabase}}.{PIPELINE}",
        }  # fmt: skip
        with pytest.raises(ObjectMissing):
            call("Read the comparison")
        store.put(comparison_uri(chosen["prefix"]), comparison(before=version(1)).model_dump_json().encode())
        output = call("Read the comparison")
        assert output == {
            "uri": comparison_uri(chosen["prefix"]), "before": 1, "after": 2, "differing": 1, "reason": "",
            "split_reason": "",
        }  # fmt: skip

    def test_the_numbers_of_two_versions_are_passed_on(self, call, table):
        table.set_states(PUBLISHED, PUBLISHED, PUBLISHED)
        chosen = call("Choose the versions", self.comparison_request() | {"before": 1, "after": 3})
        assert (chosen["before"], chosen["after"]) == (1, 3)

    def test_two_executions_send_the_same_request(self, call, table):
        table.set_states(PUBLISHED, PUBLISHED)
        requests = []
        for name in ("one", "other"):
            call.variables["name"] = name
            chosen = call("Choose the versions", self.comparison_request(correlation_id=f"c-{name}"))
            states = {"input": chosen, "context": {"State": {"RetryCount": 0}}}
            requests.append(evaluated(STATES["Compare the versions"]["Arguments"], states, call.variables))
        assert requests[0] == requests[1]
        assert requests[0]["Tags"]["slackwater:correlation"] == "c-one"

    def test_a_known_comparison_or_a_single_version_starts_no_job(self, call, table):
        table.set_states(PUBLISHED)
        chosen = call("Choose the versions", self.comparison_request())
        (choice,) = STATES["Decide whether to compare"]["Choices"]
        assert evaluated(choice["Condition"], {"input": chosen}, call.variables) is False
        result = evaluated(STATES["Take the known comparison"]["Output"], {"input": chosen}, call.variables)
        (choice,) = STATES["Decide whether to split"]["Choices"]
        assert evaluated(choice["Condition"], {"input": result}, {**call.variables, "split": True}) is False
        assert (result["uri"], result["after"]) == ("", 1)
        assert call.variables["correlation_id"] == "one"

    def test_a_failed_job_fails_the_machine_with_the_error_of_the_job(self, call, table, store):
        table.set_states(PUBLISHED, PUBLISHED)
        chosen = call("Choose the versions", self.comparison_request())
        store.put(job_failure_uri(chosen["prefix"], chosen["job"]), b"CloudError: the tag is gone")
        call.variables["error"] = {"Error": "States.TaskFailed"}
        call("Find out why it failed")
        failed = STATES["Fail the comparison"]
        assert evaluated(failed["Cause"], {}, call.variables) == "CloudError: the tag is gone"
        assert failed["Error"] == "ComparisonFailed"


def evaluated(template: Any, states: dict[str, Any], variables: dict[str, Any]) -> Any:
    """Return a template with its JSONata expressions evaluated."""
    if isinstance(template, dict):
        return {name: evaluated(value, states, variables) for name, value in template.items()}
    if isinstance(template, list):
        return [evaluated(value, states, variables) for value in template]
    if not (isinstance(template, str) and template.startswith("{%")):
        return template
    expression = jsonata.Jsonata(template.removeprefix("{%").removesuffix("%}"))
    for name, value in {**variables, "states": states}.items():
        expression.assign(name, value)
    return expression.evaluate(None)
