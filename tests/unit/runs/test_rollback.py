"""A rollback is a run of its day: it claims the day, repeats a version, and leaves the day on hold."""

import json
from datetime import date, timedelta

import pytest

from slackwater.errors import DayChanged, InputError
from slackwater.late.changes.choose_versions import published_version
from slackwater.late.check.facts import DayFacts
from slackwater.late.check.rules import decide
from slackwater.late.decision import DecisionRule
from slackwater.runs.day import day_of
from slackwater.runs.freeze import FreezeAction
from slackwater.runs.record import RunReason, failure_uri, publication_uri
from tests.unit.runs.test_freeze import (
    DATE,
    NOW,
    PIPELINE,
    add,
    executions,
    files,
    freeze,
    freezer,
    inputs,
    lost,
    project,
    publish,
    recorder,
    store,
    table,
)

pytestmark = pytest.mark.unit

__all__ = ["executions", "files", "freezer", "inputs", "lost", "project", "recorder", "store", "table"]  # fixtures


@pytest.fixture
def two_versions(freezer, recorder, store):
    """The runs of a day that was published, got late data, and was published again."""
    first = freeze(freezer, "one").run
    publish(recorder, first)
    add(store, source="weather", date="2013-03-10", hour="13")
    second = freeze(freezer, "one").run
    publish(recorder, second)
    return first, second


def roll_back(freezer, to=1, execution="two", reason="bad file"):
    return freeze(freezer, execution, rollback=to, reason=reason)


def test_its_run_repeats_the_identity_and_the_inputs_of_the_version(freezer, table, two_versions):
    first, second = two_versions
    frozen = roll_back(freezer)
    run = frozen.run
    assert (frozen.action, frozen.restore, run.attempt) == (FreezeAction.RUN, first.tag, 3)
    same = {"run_id", "manifest", "files", "rows", "bytes"}
    assert run.model_dump(include=same) == first.model_dump(include=same) != second.model_dump(include=same)
    assert run.prefix not in {first.prefix, second.prefix}
    assert run.tag not in {first.tag, second.tag}
    record, earlier = table.run(PIPELINE, DATE, 3), table.run(PIPELINE, DATE, 1)
    assert (record.reasons, record.rollback.to, record.rollback.reason) == ((RunReason.ROLLBACK,), 1, "bad file")
    assert (record.definition, record.code) == (earlier.definition, earlier.code)
    assert len({record.definition, record.code, ""}) == 3


def test_a_repeated_call_returns_the_rollback_that_has_claimed_the_day(freezer, two_versions):
    assert roll_back(freezer) == roll_back(freezer)


def test_only_the_job_of_the_last_stage_runs(freezer, two_versions):
    # The pipeline of these tests has one stage, which publishes.
    assert roll_back(freezer).finished == ()


def test_a_running_day_is_waited_for(freezer, store, two_versions):
    add(store, source="weather", date="2013-03-10", hour="14")
    assert freeze(freezer, "one").action is FreezeAction.RUN
    assert roll_back(freezer).action is FreezeAction.WAIT


def test_a_day_that_changes_meanwhile_is_waited_for(freezer, table, two_versions, monkeypatch):
    def changed(*_):
        raise DayChanged(DATE)

    monkeypatch.setattr(table, "save", changed)
    assert roll_back(freezer).action is FreezeAction.WAIT


@pytest.mark.parametrize(
    ("to", "message"),
    [(2, "version 2 of 2013-03-10 is the published one"), (3, "no published version 3 .*slackwater history")],
)
def test_the_published_version_and_one_that_does_not_exist_are_refused(freezer, two_versions, to, message):
    with pytest.raises(InputError, match=message):
        roll_back(freezer, to=to)


def test_a_failed_attempt_is_no_version(freezer, recorder, store, two_versions):
    add(store, source="weather", date="2013-03-10", hour="14")
    run = freeze(freezer, "one").run
    recorder.record_failure(run, error="RunFailed", cause="no memory")
    with pytest.raises(InputError, match="no published version 3"):
        roll_back(freezer, to=3)
    # The failed attempt may have committed, so the table may hold other rows than those of version 2.
    assert roll_back(freezer, to=2).action is FreezeAction.RUN


def test_a_rollback_needs_a_reason(freezer, two_versions):
    with pytest.raises(InputError, match="reason: missing"):
        roll_back(freezer, reason=" ")


def test_the_publication_puts_the_day_on_hold_in_the_same_write(freezer, recorder, table, two_versions, monkeypatch):
    run, writes = roll_back(freezer).run, []
    monkeypatch.setattr(table, "save", lambda day, run: writes.append((run, day)))
    publish(recorder, run)
    [(record, day)] = writes
    assert (record.run.attempt, day.published.run.attempt, day.active) == (3, 3, None)
    assert (day.hold.rule, day.hold.since) == ("rolled_back", NOW)
    assert day.hold.reason == "rolled back to version 1: bad file"


def test_nothing_runs_the_day_again_until_it_is_released(freezer, recorder, table, two_versions):
    publish(recorder, roll_back(freezer).run)
    day = table.day(PIPELINE, DATE)
    decision = decide(DayFacts(day=day_of(date.fromisoformat(DATE), "UTC"), record=day))
    assert (decision.decision, decision.rule) == ("hold", DecisionRule.ROLLED_BACK)
    assert decision.reason == "rolled back to version 1: bad file"
    # People have not been notified yet that the published rows have changed.
    assert decision.notification_due
    for force in (True, False):
        with pytest.raises(InputError, match="slackwater late release daily_delays --date 2013-03-10"):
            freeze(freezer, "one", force=force)
    table.save(day.model_copy(update={"hold": None}))
    # Its present inputs are not those of version 1.
    frozen = freeze(freezer, "one")
    assert (frozen.action, frozen.run.attempt) == (FreezeAction.RUN, 4)
    assert table.run(PIPELINE, DATE, 4).reasons == (RunReason.LATE_DATA,)


@pytest.mark.parametrize(
    "case",
    [
        ("AuditFailed: no column", False, False),
        ("ObjectMissing: no version", False, False),
        ("CloudError: S3", False, True),
        ("ObjectMissing: load.erp", True, True),
    ],
)
def test_a_rollback_that_is_refused_before_its_commit_leaves_the_outcome_known(
    freezer, recorder, store, two_versions, case
):
    error, is_published, is_unknown = case
    run = roll_back(freezer).run
    store.put(failure_uri(run.prefix), error.encode())
    if is_published:
        store.put(publication_uri(run.prefix), b"{}")
    recorder.record_failure(run, error="E", cause="")
    day = recorder.table.day(PIPELINE, DATE)
    assert (day.outcome_unknown, day.active, day.hold, day.published.run.attempt) == (is_unknown, None, None, 2)


def test_a_refused_rollback_does_not_make_an_unknown_outcome_known(freezer, recorder, table, store, two_versions):
    table.save(table.day(PIPELINE, DATE).model_copy(update={"outcome_unknown": True}))
    run = roll_back(freezer).run
    store.put(failure_uri(run.prefix), b"AuditFailed: no column")
    recorder.record_failure(run, error="E", cause="")
    assert table.day(PIPELINE, DATE).outcome_unknown


def test_a_comparison_names_when_the_inputs_of_the_version_were_listed(freezer, recorder, table, two_versions):
    earlier = table.run(PIPELINE, DATE, 1)
    then = earlier.started_at - timedelta(days=3)
    table.save(earlier.model_copy(update={"started_at": then}))
    publish(recorder, roll_back(freezer).run)
    publish(recorder, roll_back(freezer, to=2).run)
    publish(recorder, roll_back(freezer, to=3).run)  # a rollback to a rollback
    assert [published_version(table.run(PIPELINE, DATE, attempt)).frozen_at for attempt in (3, 4, 5)] == [
        then, NOW, then
    ]  # fmt: skip
    assert [published_version(table.run(PIPELINE, DATE, attempt)).rollback for attempt in (1, 2, 3, 4, 5)] == [
        0, 0, 1, 2, 3
    ]  # fmt: skip


def test_runs_of_older_versions_can_be_rolled_back_to(freezer, table, two_versions):
    stored = json.loads(table.run(PIPELINE, DATE, 1).model_dump_json())
    for name in ("definition", "code", "reasons", "rollback"):
        del stored[name]
    earlier = table.run(PIPELINE, DATE, 1).__class__.model_validate(stored)
    table.save(earlier)
    run = roll_back(freezer).run
    record = table.run(PIPELINE, DATE, run.attempt)
    assert (record.definition, record.code, record.rollback.to) == ("", "", 1)
