"""When a day was last run again, by the records of its attempts."""

from datetime import timedelta

import pytest

from slackwater.late.check.read_facts import attempts_after_published, last_rerun_at
from slackwater.runs.record import RunReason, RunRecord, RunState
from tests.fakes_check import NOW, PIPELINE, PUBLICATION, World, five_days

pytestmark = pytest.mark.unit

DAY = "2013-03-10"
FIRST, LATE_DATA = RunReason.FIRST, RunReason.LATE_DATA


@pytest.mark.parametrize(
    ("reasons", "definition", "replaced", "is_rerun"),
    [
        ((FIRST,), "d", 0, False),
        ((FIRST,), "d", 3, False),  # an earlier run without an outcome had committed
        ((LATE_DATA,), "d", 3, True),
        ((LATE_DATA,), "d", 0, True),  # the version before had no rows
        ((), "d", 0, True),  # the repair of an unknown outcome
        ((), "", 0, False),  # recorded by an older version
        ((), "", 3, True),
    ],
)
def test_the_first_run_of_a_day_is_no_rerun(reasons, definition, replaced, is_rerun):
    record = RunRecord(
        run=World().freeze(DAY), state=RunState.PUBLISHED, execution="e", started_at=NOW, reasons=reasons,
        definition=definition, publication=PUBLICATION.model_copy(update={"replaced": replaced}),
    )  # fmt: skip
    assert last_rerun_at(record, []) == (NOW if is_rerun else None)


def test_a_published_day_without_the_record_of_its_run_was_not_run_again():
    assert last_rerun_at(None, []) is None


def test_a_rerun_counts_from_its_start_also_without_a_recorded_end():
    world = five_days()
    world.time += timedelta(hours=2)
    world.freeze(DAY, force=True)
    later = attempts_after_published(world.table.day(PIPELINE, DAY), world.table)
    assert [run.run.attempt for run in later] == [2]
    assert last_rerun_at(world.table.run(PIPELINE, DAY, 1), later) == NOW + timedelta(hours=2)
