"""Events that are implausibly old."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from slackwater.sources.old_events import OldEvents, find_old_events

pytestmark = pytest.mark.unit

NOW = datetime(2028, 2, 29, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([], None),
        ([("2028-02-28", 9)], None),
        ([("2028-02-28", 3), ("1970-01-21", 2)], OldEvents(2, "1970-01-21", "1970-01-21")),
        ([("2028-02-28", 9), ("2008-02-28", 1), ("0001-01-01", 1)], OldEvents(2, "0001-01-01", "2008-02-28")),
        ([("2028-02-28", 9), ("2008-02-29", 1)], None),
        ([("2028-02-28", 2), ("1970-01-21", 2)], None),
        ([("1970-01-21", 2)], None),
    ],
)
def test_a_minority_of_more_than_20_years_is_found(events, found):
    assert find_old_events(events, received_at=NOW) == found


def test_the_note_names_the_dates():
    assert OldEvents(1, "1970-01-21", "1970-01-21").note().startswith("1 event is of 1970-01-21: more than 20 years")
    assert "3 events are of 1970-01-20 to 1970-01-21:" in OldEvents(3, "1970-01-20", "1970-01-21").note()
