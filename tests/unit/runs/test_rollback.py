"""A rollback is a run of its day: it claims the day, repeats a version, and leaves the day on hold."""

import json
from datetime import timedelta

import pytest

from slackwater.errors import DayChanged
from slackwater.late.changes.choose_versions import published_version
from slackwater.runs.freeze import FreezeAction
from slackwater.runs.record import RunReason
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


def test_the_publication_puts_the_day_on_hold_in_the_same_write(freezer, recorder, table, two_versions, monkeypatch):
    run, writes = roll_back(freezer).run, []
    monkeypatch.setattr(table, "save", lambda day, run: writes.append((run, day)))
    publish(recorder, run)
    [(record, day)] = writes
    assert (record.run.attempt, day.published.run.attempt, day.active) == (3, 3, None)
    assert (day.hold.rule, day.hold.since) == ("rolled_back", NOW)
    assert day.hold.reason == "rolled back to version 1: bad file"


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
