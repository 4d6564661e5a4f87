"""The record of a day stays far below the largest item of DynamoDB, 400 KB, however long its reasons are."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from slackwater.errors import InputError
from slackwater.formatting import shortened
from slackwater.runs.holds import MAX_EARLIER, MAX_HOLD_REASON, MAX_REASON, held, hold_ended, kept_day
from slackwater.runs.record import DayRecord, Hold
from slackwater.runs.rollback import version_to_restore
from tests.fakes_check import PIPELINE, five_days

pytestmark = pytest.mark.unit

NOW, DAY = datetime(2013, 3, 11, tzinfo=UTC), "2013-03-10"
DIGEST, REMEDY = "d" * 64, "run the day by hand"
# The longest names that AWS allows: a session of a role, and an execution of a state machine.
PRINCIPAL = f"arn:aws:sts::123456789012:assumed-role/{'r' * 64}/{'s' * 64}"
EXECUTION = f"arn:aws:states:ap-northeast-1:123456789012:execution:{'m' * 80}:{'e' * 80}"


def largest_record(character: str) -> DayRecord:
    """Return a day with as many decisions as are kept, all with reasons of 50,000 characters, that is on hold."""
    day = DayRecord(pipeline=PIPELINE, date=DAY)
    reason = f"{character * 50_000}; {REMEDY}"
    new = Hold(rule="table_changed", reason=reason, since=NOW, inputs=DIGEST, attempt=99, execution=EXECUTION)
    for number in range(MAX_EARLIER + 5):
        on_hold, inputs = held(day, new), f"{number:064}"
        if number % 2:
            person = {"principal": PRINCIPAL, "reason": character * MAX_REASON}
            day = kept_day(on_hold, inputs=inputs, now=NOW, **person)
        else:
            day = hold_ended(on_hold, reason=reason, inputs=inputs, now=NOW)
    return held(day, new)


@pytest.mark.parametrize(("character", "most"), [("x", 60_000), ("\N{WATER WAVE}", 200_000)])
def test_the_record_of_a_day_with_many_long_decisions_is_small(character: str, most: int) -> None:
    day = largest_record(character)
    assert len(day.earlier_resolutions) == MAX_EARLIER
    assert len(day.model_dump_json().encode()) < most
    # The latest decision and the hold keep more: people read them.
    assert day.hold is not None
    assert day.resolution is not None
    assert day.resolution.hold is not None
    for text in (day.hold.reason, day.resolution.reason, day.resolution.hold.reason):
        assert len(text) == MAX_HOLD_REASON
        assert text.endswith(REMEDY)


def test_long_decisions_that_are_stored_already_are_cut_with_the_next_decision() -> None:
    long = Hold(rule="vanished", reason="x" * 50_000, since=NOW)
    day = hold_ended(DayRecord(pipeline=PIPELINE, date=DAY, hold=long), reason="back", inputs="", now=NOW)
    assert day.resolution is not None
    day = day.model_copy(update={"earlier_resolutions": (day.resolution,) * MAX_EARLIER, "hold": long})
    day = hold_ended(day, reason="back", inputs="", now=NOW)
    assert len(day.model_dump_json()) < 60_000


def test_a_reason_of_a_person_has_a_largest_length() -> None:
    world = five_days()
    with pytest.raises(InputError, match=r"--reason: it has 1,001 characters: use at most 1,000"):
        world.hold_decisions().release(PIPELINE, DAY, reason="x" * (MAX_REASON + 1))
    day, earlier = world.table.day(PIPELINE, DAY), world.table.run(PIPELINE, DAY, 1)
    with pytest.raises(InputError, match=r"--reason: it has 1,001 characters: use at most 1,000"):
        version_to_restore(day, earlier, to=1, reason="x" * (MAX_REASON + 1))
    assert world.table.day(PIPELINE, DAY) == day
    assert world.hold_decisions().release(PIPELINE, DAY, reason="x" * MAX_REASON) is False


@pytest.mark.parametrize(("length", "expected"), [(0, 0), (99, 99), (100, 100), (101, 100), (5_000, 100)])
def test_a_long_string_keeps_its_beginning_and_its_end(length: int, expected: int) -> None:
    value = "".join(chr(33 + number % 90) for number in range(length))
    short = shortened(value, 100)
    assert len(short) == expected
    assert short == value or (short[:70] == value[:70] and short[-25:] == value[-25:] and " ... " in short)
