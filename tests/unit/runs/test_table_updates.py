"""A change of a day's record that others change at the same time."""

from __future__ import annotations

import pytest

from slackwater.errors import DayChanged
from slackwater.runs.table import MAX_WRITES, update_day
from tests.fakes_runs import DictRunTable

pytestmark = pytest.mark.unit


class Contended(DictRunTable):
    """A table in which others change the day before the first `changes` writes."""

    def __init__(self, changes):
        super().__init__()
        self.changes, self.writes = changes, 0

    def save(self, day):
        self.writes += 1
        if self.changes:
            self.changes -= 1
            super().save(self.day(day.pipeline, day.date).model_copy(update={"outcome_unknown": True}))
        super().save(day)


def counted(day):
    return day.model_copy(update={"attempts": day.attempts + 1})


@pytest.mark.parametrize("changes", [0, 1, MAX_WRITES - 1])
def test_the_change_is_made_to_the_present_record(changes):
    table = Contended(changes)
    written = update_day(table, "p", "2013-03-10", counted, what="it was counted")
    assert (written.attempts, written.version, written.outcome_unknown) == (1, changes, changes > 0)
    after = table.day("p", "2013-03-10")
    assert (after.attempts, after.outcome_unknown, after.version) == (1, changes > 0, changes + 1)


def test_a_day_that_keeps_changing_is_an_error_and_keeps_the_changes_of_others():
    table = Contended(MAX_WRITES)
    with pytest.raises(DayChanged, match="p: 2013-03-10 kept changing while it was counted"):
        update_day(table, "p", "2013-03-10", counted, what="it was counted")
    assert (table.writes, table.day("p", "2013-03-10").attempts) == (MAX_WRITES, 0)


def test_a_day_that_stays_as_it_is_is_not_written():
    table = Contended(0)
    update_day(table, "p", "2013-03-10", lambda day: day, what="nothing happened")
    assert table.writes == 0
