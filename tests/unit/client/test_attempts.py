"""How people name a run, and which part of an execution belongs to an attempt."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slackwater.client.days.attempts import Attempt, Span, find_attempt
from slackwater.errors import CloudError, InputError, UnknownName
from slackwater.runs.record import RunRecord, RunState
from tests.fakes_cli import BEGIN
from tests.fakes_runs import DictRunTable
from tests.unit.client.test_runs import RUN

pytestmark = pytest.mark.unit

SAME = "ab" * 16
PIPELINES = {"daily_delays": None, "beefbeefbeef": None}


def record(attempt, *, run_id=SAME, execution="arn:1", date="2013-03-10", ended=None):
    run = RUN.model_copy(update={"attempt": attempt, "run_id": run_id, "date": date})
    return RunRecord(
        run=run,
        state=RunState.FAILED if ended else RunState.RUNNING,
        execution=execution,
        started_at=BEGIN + timedelta(minutes=attempt),
        ended_at=BEGIN + timedelta(seconds=ended) if ended else None,
    )


@pytest.fixture
def table():
    """A day whose second and third attempt belong to one execution, and a day with one attempt."""
    table = DictRunTable()
    for item in (record(1, execution="arn:0"), record(2), record(3), record(1, run_id="cd" * 16, date="2013-03-11")):
        table.save(item)
    return table


@pytest.mark.parametrize(
    ("run", "date", "number", "expected"),
    [
        ("daily_delays", "2013-03-10", None, ("2013-03-10", 3, 2, None)),
        ("daily_delays", "2013-03-10", 2, ("2013-03-10", 2, None, 3)),
        ("daily_delays", "2013-03-10", 1, ("2013-03-10", 1, None, None)),
        (SAME, None, None, ("2013-03-10", 3, 2, None)),
        (SAME[:12], None, 1, ("2013-03-10", 1, None, None)),
        ("cd" * 6, None, None, ("2013-03-11", 1, None, None)),
    ],
)
def test_a_run_is_a_day_of_a_pipeline_or_a_run_id(table, run, date, number, expected):
    found = find_attempt(table, PIPELINES, run, date=date, attempt=number)
    neighbours = [item and item.run.attempt for item in (found.earlier, found.later)]
    assert (found.record.run.date, found.record.run.attempt, *neighbours) == expected


@pytest.mark.parametrize(("run", "date"), [("daily_delays", "2013-03-10"), (SAME, None)])
def test_a_run_that_ends_while_it_is_looked_up_is_found(table, run, date):
    read = table.runs

    def ending(pipeline, day=None):
        records = read(pipeline, day)
        table.save(record(3, ended=9))
        return records

    table.runs = ending
    found = find_attempt(table, PIPELINES, run, date=date, attempt=None)
    assert (found.record.run.attempt, found.earlier.run.attempt) == (3, 2)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        (("nothing", None, None), UnknownName, "no pipeline 'nothing'.* a run id has 12 to 32 hexadecimal digits"),
        (("ab" * 17, None, None), UnknownName, "no pipeline"),
        (("daily_delays", None, None), InputError, "^date: missing: .*slackwater runs daily_delays"),
        (("beefbeefbeef", None, None), InputError, "^date: missing"),
        ((SAME, "2013-03-10", None), InputError, "^date: the run abab.* has a date of its own"),
        (("daily_delays", "2013-03-09", None), InputError, "daily_delays has no run for 2013-03-09"),
        (("0" * 32, None, None), InputError, "there is no run 0000.* of a pipeline of this project"),
        (("daily_delays", "2013-03-10", 4), InputError, "^attempt: 4 is none of the attempts of daily_delays: 1, 2, 3"),
    ],
)
def test_a_wrong_name_is_an_error_with_its_remedy(table, name, error, message):
    run, date, number = name
    with pytest.raises(error, match=message):
        find_attempt(table, PIPELINES, run, date=date, attempt=number)


# An execution that waits, runs the day, loses a job, records that at 5.5 s, and runs the day once more. It decides that
# in the millisecond in which it begins again.
HISTORY = [
    *(("", 0), ("Freeze", 1), ("Wait", 2), ("Freeze", 3), ("Run", 4), ("Record", 5)),
    *(("Decide", 7), ("Freeze", 7), ("Run", 8), ("", 9)),
]
FIRST, SECOND = record(2, ended=5.5), record(3, ended=9)


@pytest.mark.parametrize(
    ("attempt", "items", "begin", "end"),
    [
        (Attempt(record=SECOND), HISTORY, 0, None),
        (Attempt(record=FIRST, later=SECOND), HISTORY[:7], 0, 7),
        (Attempt(record=SECOND, earlier=FIRST), HISTORY[7:], 7, None),
        (Attempt(record=record(2), later=SECOND), HISTORY, 0, None),  # its end was not recorded
    ],
)
def test_an_attempt_begins_where_its_inputs_are_frozen_after_the_end_of_the_one_before(attempt, items, begin, end):
    history = [(name, BEGIN + timedelta(seconds=second)) for name, second in HISTORY]
    part, span = attempt.part(history)
    assert history[part] == [(name, BEGIN + timedelta(seconds=second)) for name, second in items]
    assert span == Span(*(None if second is None else BEGIN + timedelta(seconds=second) for second in (begin, end)))


def test_an_execution_without_a_history_is_an_error_with_its_remedy():
    with pytest.raises(CloudError, match="the history of arn:1 yet: try again"):
        Attempt(record=SECOND).part([])
