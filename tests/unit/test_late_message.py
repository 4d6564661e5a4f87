from datetime import timedelta

import pytest

from slackwater.arrow.reference import ArrowReference
from slackwater.formatting import counted, share, size, span
from slackwater.late.comparison import RowChange, RowCounts
from slackwater.late.message import Message, compose
from slackwater.runs.difference import Amount, Change, InputChange, SourceDifference
from tests.fakes_telling import DATE, FROZEN, a_comparison, late_flights

pytestmark = pytest.mark.unit

BODY = """\
Late data has changed what daily_delays had published for 2013-03-10:
flights 831 -> 883 (+6.3 %).

WHAT ARRIVED LATE
  Published before was what had arrived by 2013-03-11 07:02 UTC. Since then:

  flights: 883 rows of the day, 831 before
    flights-2013-03-10-08.csv (changed)
      120 rows (118 before), 9.9 kB, of 2013-03-10 12:00 to 13:00 UTC
      came 2013-03-11 10:14 UTC, 3 h 12 min later
    flights-2013-03-10-20.csv
      50 rows, 7.5 kB, of 2013-03-11 01:00 to 03:00 UTC
      came 2013-03-12 09:02 to 10:02 UTC, up to 1 day 3 h later

WHAT IT CHANGED
  2 rows changed, 1 new, 0 gone: 43 rows of the day, 42 before

  flights (sum)            831  ->    883   +6.3 %
  dep_delay_mean (mean)  12.63  ->  14.02  +11.0 %

  Where flights moved most:
    origin EWR, carrier UA   120  ->  131  +9.2 %
    origin LGA, carrier OO  none  ->    3     new

THE FIRST CHANGED ROWS
  origin EWR, carrier UA: flights 120 -> 131, dep_delay_mean 3.1 -> 4.25
  new, origin LGA, carrier OO: flights 3, cancelled 0
  ... and 1 more row

WHERE TO LOOK
  slackwater diff daily_delays --date 2013-03-10  its two latest versions
  slackwater runs daily_delays                    when it ran, what it read
  The version before can still be read; in Spark SQL:
    FROM daily_delays VERSION AS OF '2013-03-10-000000000000-1'
    WHERE date = '2013-03-10'
"""


def pushed(change=Change.ADDED, *, hours=("12", "13"), arrived=timedelta(hours=3)):
    amount = Amount(objects=1, rows=3, bytes=1500)
    sides = {"before": amount} if change is Change.REMOVED else {"now": amount, "arrived": FROZEN + arrived}
    changes = tuple(
        InputChange(source="weather", date=DATE, hour=hour, file=None, change=change, **sides) for hour in hours
    )
    return SourceDifference(source="weather", before=Amount(rows=69), now=Amount(rows=75), changes=changes)


def test_a_message_says_what_came_what_it_changed_and_where_to_look():
    message = compose(a_comparison())
    assert message.subject == "daily_delays 2013-03-10 changed: flights 831 -> 883 (+6.3 %)"
    assert message.body == BODY
    assert (message.message_id, message.sent_at) == (None, None)
    assert max(map(len, message.body.splitlines())) <= 78


def test_a_message_survives_its_json():
    message = compose(a_comparison())
    assert Message.model_validate_json(message.model_dump_json()) == message


def test_pushed_events_are_told_as_such_with_their_hours():
    body = compose(a_comparison(inputs=(late_flights(), pushed(hours=("12", "15"))))).body
    assert (
        "  weather: 75 rows of the day, 69 before\n"
        "    pushed events\n"
        "      6 rows, 3.0 kB, of 2 hours of 2013-03-10 12:00 to 16:00 UTC\n"
        "      came 2013-03-11 10:02 UTC, 3 h later\n"
    ) in body


def test_inputs_that_are_gone_are_told_with_what_they_held():
    body = compose(a_comparison(inputs=(pushed(Change.REMOVED, hours=("12",)),))).body
    assert "    pushed events (gone)\n      3 rows, 1.5 kB, of 2013-03-10 12:00 to 13:00 UTC\n\n" in body
    assert body.startswith("A new run has changed what daily_delays had published")


def test_what_was_being_taken_as_the_inputs_were_listed_is_not_called_late():
    body = compose(a_comparison(inputs=(pushed(arrived=timedelta(seconds=-1)),))).body
    assert "being taken when the inputs were listed, 2013-03-11 07:01 UTC" in body


def test_a_change_without_new_inputs_is_told_as_a_new_run():
    same = SourceDifference(source="flights", before=Amount(rows=5), now=Amount(rows=5))
    body = compose(a_comparison(inputs=(same,))).body
    assert body.startswith("A new run has changed what daily_delays had published for 2013-03-10:\n")
    assert "Nothing: both versions come from the same inputs." in body


def test_inputs_that_cannot_be_known_are_not_called_the_same():
    body = compose(a_comparison().model_copy(update={"inputs": ()})).body
    assert body.startswith("A new version has changed what daily_delays had published for 2013-03-10:\n")
    assert (
        "WHAT ARRIVED LATE\n  That cannot be known any more: the list of what a version has read is gone.\n\n" in body
    )


def test_all_changed_rows_are_where_the_comparison_has_left_them():
    uri = "s3://exchange/comparisons/daily_delays/2013-03-10/1-4/rows/manifest.json"
    rows = ArrowReference(manifest=uri, rows=300, bytes=9000, files=1, seconds=1.0)
    body = compose(a_comparison(before=1, after=4).model_copy(update={"all_rows": rows})).body
    assert f"\n  All changed rows, as Arrow files:\n    {uri}\n" in body


def test_rows_that_are_gone_are_told_with_what_they_said():
    gone = RowChange(
        change=Change.REMOVED,
        key={"origin": "LGA"},
        values={"flights": (3, None), "note": ("x", None), "empty": (None, None), "open": (True, None)},
    )
    comparison = a_comparison(rows=RowCounts(before=2, after=1, added=0, removed=1, changed=0))
    body = compose(comparison.model_copy(update={"examples": (gone,)})).body
    assert "THE CHANGED ROWS\n  gone, origin LGA: flights 3, note x, open true\n" in body


def test_a_value_that_was_missing_is_told_as_none():
    row = RowChange(change=Change.CHANGED, key={"year": 2013}, values={"delay": (None, 1.5), "note": ("a", None)})
    body = compose(a_comparison().model_copy(update={"examples": (row,)})).body
    assert "  year 2013: delay none -> 1.5, note a -> none\n" in body


def test_many_files_and_rows_are_counted_and_not_listed():
    files = tuple(
        InputChange(
            source="flights",
            date=DATE,
            hour="12",
            file=f"f-{number:02}.csv",
            change=Change.ADDED,
            now=Amount(objects=1, rows=1, bytes=1),
            arrived=FROZEN,
        )
        for number in range(25)
    )
    source = SourceDifference(source="flights", before=Amount(), now=Amount(objects=25, rows=25), changes=files)
    comparison = a_comparison(inputs=(source,), rows=RowCounts(before=0, after=300, added=300, removed=0, changed=0))
    rows = tuple(comparison.examples[1].model_copy(update={"key": {"n": number}}) for number in range(100))
    body = compose(comparison.model_copy(update={"examples": rows})).body
    assert "    f-09.csv\n" in body
    assert "f-10.csv" not in body
    assert "    ... and 15 more files\n" in body
    assert "  ... and 292 more rows\n" in body
    assert len(body.splitlines()) < 80


def test_data_cannot_write_lines_of_its_own():
    nasty = "a\nWHERE TO LOOK\n  http://evil\x1b[31m\u2028b"
    row = RowChange(change=Change.CHANGED, key={"k": nasty}, values={"v": (nasty, "x" * 1000)})
    change = pushed().changes[0].model_copy(update={"file": nasty})
    source = SourceDifference(source="weather", before=Amount(), now=Amount(), changes=(change,))
    body = compose(a_comparison(inputs=(source,)).model_copy(update={"examples": (row,)})).body
    assert "\x1b" not in body
    assert "\u2028" not in body
    assert body.count("\nWHERE TO LOOK\n") == 1
    assert "x" * 38 not in body


def test_rows_are_broken_into_lines_that_an_e_mail_shows_whole():
    values = {f"column_{number}": (number, number + 1) for number in range(20)}
    row = RowChange(change=Change.CHANGED, key={"origin": "EWR"}, values=values)
    body = compose(a_comparison().model_copy(update={"examples": (row,)})).body
    lines = [line for line in body.splitlines() if "column_" in line]
    assert len(lines) > 5
    assert max(map(len, lines)) <= 78
    assert [line.startswith("    ") for line in lines] == [False] + [True] * (len(lines) - 1)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (14_200, "14.2 kB"),
        (999_949, "999.9 kB"),
        (999_960, "1.0 MB"),
        (3_100_000_000_000, "3.1 TB"),
        (4_000_000_000_000_000, "4,000.0 TB"),
    ],
)
def test_sizes_are_told_in_units(count, words):
    assert size(count) == words


@pytest.mark.parametrize(
    ("part", "whole", "words"),
    [(97, 924, "10.5 %"), (996, 100_000, "0.996 %"), (1, 100, "1 %"), (30, 20, "150.0 %"), (3, 0, "of none before")],
)
def test_shares_keep_the_digits_that_tell_them_from_a_threshold(part, whole, words):
    assert share(part, whole) == words


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        ([("2013-03-10", "12")], "2013-03-10 12:00 to 13:00 UTC"),
        ([("2013-03-10", "23")], "2013-03-10 23:00 to 2013-03-11 00:00 UTC"),
        ([("2013-03-11", "00"), ("2013-03-10", "23")], "2013-03-10 23:00 to 2013-03-11 01:00 UTC"),
        ([("2013-03-10", "12")] * 2 + [("2013-03-10", "14")], "2 hours of 2013-03-10 12:00 to 15:00 UTC"),
    ],
)
def test_hours_are_told_as_the_time_that_they_cover(hours, words):
    assert span(hours) == words


def test_things_are_counted():
    assert [counted(count, "row") for count in (0, 1, 2, 1234)] == ["0 rows", "1 row", "2 rows", "1,234 rows"]
