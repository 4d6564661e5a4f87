from datetime import timedelta

import pytest

from slackwater.arrow.reference import ArrowReference
from slackwater.late.comparison import MetricChange, Mover, RowChange, RowCounts
from slackwater.late.report.message import Message, compose
from slackwater.runs.inputs.difference import Amount, Change, InputChange, SourceDifference
from tests.fakes_notification import DATE, FROZEN, a_comparison, late_flights

pytestmark = pytest.mark.unit

BODY = """\
Late data has changed daily_delays for 2013-03-10:
flights 831 -> 883 (+6.3 %).

daily_delays 2013-03-10: version 1 -> 2
  published 2013-03-11 07:03 UTC and 2013-03-13 07:03 UTC, 2 days later
  42 -> 43 rows: 1 added, 0 removed, 2 changed, 40 unchanged

Metrics, over the day
  metric          total  version 1  version 2   change  most changed row
  flights         sum          831        883   +6.3 %  EWR UA: 120 -> 131
  dep_delay_mean  mean       12.63      14.02  +11.0 %
  cancelled       sum            3          3

Most changed rows: flights
  origin  carrier  version 1  version 2  change
  EWR     UA             120        131  +9.2 %
  LGA     OO            none          3     new

Changed rows: 2 of 3
  changed origin EWR, carrier UA: flights 120 -> 131,
    dep_delay_mean 3.1 -> 4.25
  added origin LGA, carrier OO: flights 3, cancelled 0
  ... and 1 more row

Inputs, changed since version 1 listed them at 2013-03-11 07:02 UTC
  flights: 883 rows of the day, 831 before
    flights-2013-03-10-08.csv (changed)
      120 rows (118 before), 9.9 kB, of 2013-03-10 12:00 to 13:00 UTC
      arrived 2013-03-11 10:14 UTC, 3 h 12 min later
    flights-2013-03-10-20.csv (added)
      50 rows, 7.5 kB, of 2013-03-11 01:00 to 03:00 UTC
      arrived 2013-03-12 09:02 to 10:02 UTC, up to 1 day 3 h later

Where to look
  The changes between its two latest versions:
    slackwater diff daily_delays --date 2013-03-10
  What the latest run did:
    slackwater runs daily_delays --date 2013-03-10
  All versions of the day:
    slackwater history daily_delays --date 2013-03-10
  The table as it was with version 1:
    slackwater query SQL --date 2013-03-10 --version 1
    in Spark SQL: VERSION AS OF '2013-03-10-000000000000-1'
  To publish version 1 again:
    slackwater rollback daily_delays --date 2013-03-10 --to 1 --reason TEXT
"""


def pushed(change=Change.ADDED, *, hours=("12", "13"), arrived=timedelta(hours=3)):
    amount = Amount(objects=1, rows=3, bytes=1500)
    sides = {"before": amount} if change is Change.REMOVED else {"now": amount, "arrived": FROZEN + arrived}
    changes = tuple(
        InputChange(source="weather", date=DATE, hour=hour, file=None, change=change, **sides) for hour in hours
    )
    return SourceDifference(source="weather", before=Amount(rows=69), now=Amount(rows=75), changes=changes)


def test_a_message_has_the_changes_their_inputs_and_the_commands_for_details():
    message = compose(a_comparison())
    assert message.subject == "daily_delays 2013-03-10 changed: flights 831 -> 883 (+6.3 %)"
    assert message.body == BODY
    assert (message.message_id, message.sent_at) == (None, None)
    assert max(map(len, message.body.splitlines())) <= 78


def test_declared_metrics_are_shown_with_their_aggregation_those_that_changed_first():
    mover = Mover(key={"origin": "EWR", "carrier": "UA"}, before=3, after=133.75)
    metrics = (
        MetricChange(metric="seats", total="sum", before=None, after=None),
        MetricChange(metric="longest", total="max", before=85, after=133.75, movers=(mover,)),
        MetricChange(metric="earliest", total="min", before=-12, after=-12),
        MetricChange(metric="fares", total="sum", before=1234.5, after=None),
    )
    message = compose(a_comparison().model_copy(update={"metrics": metrics}))
    assert message.subject == "daily_delays 2013-03-10 changed: fares 1,234.5 -> none (gone)"
    assert (
        "\nMetrics, over the day\n"
        "  metric    total  version 1  version 2   change  most changed row\n"
        "  longest   max           85     133.75  +57.4 %  EWR UA: 3 -> 133.75\n"
        "  fares     sum      1,234.5       none     gone\n"
        "  seats     sum         none       none\n"
        "  earliest  min          -12        -12\n"
    ) in message.body


def test_a_message_can_be_restored_from_its_json():
    message = compose(a_comparison())
    assert Message.model_validate_json(message.model_dump_json()) == message


def test_pushed_events_are_shown_with_their_hours():
    body = compose(a_comparison(inputs=(late_flights(), pushed(hours=("12", "15"))))).body
    assert (
        "  weather: 75 rows of the day, 69 before\n"
        "    pushed events (added)\n"
        "      6 rows, 3.0 kB, of 2 hours of 2013-03-10 12:00 to 16:00 UTC\n"
        "      arrived 2013-03-11 10:02 UTC, 3 h later\n"
    ) in body


def test_removed_inputs_are_shown_with_their_former_rows():
    body = compose(a_comparison(inputs=(pushed(Change.REMOVED, hours=("12",)),))).body
    assert "    pushed events (removed)\n      3 rows, 1.5 kB, of 2013-03-10 12:00 to 13:00 UTC\n\n" in body
    assert body.startswith("Removed data has changed daily_delays for")


def test_an_arrival_during_the_listing_of_the_inputs_is_not_reported_as_late():
    body = compose(a_comparison(inputs=(pushed(arrived=timedelta(seconds=-1)),))).body
    assert "arrived 2013-03-11 07:01 UTC, while the inputs were being listed" in body


def test_a_change_without_new_inputs_is_reported_as_a_new_run():
    same = SourceDifference(source="flights", before=Amount(rows=5), now=Amount(rows=5))
    body = compose(a_comparison(inputs=(same,))).body
    assert body.startswith("A new run has changed daily_delays for 2013-03-10:\n")
    assert "Both versions come from the same inputs:" in body


def test_unknown_inputs_are_not_reported_as_unchanged():
    body = compose(a_comparison().model_copy(update={"inputs": ()})).body
    assert body.startswith("A new version has changed daily_delays for 2013-03-10:\n")
    assert "\nInputs\n  The difference is unknown: the input manifest of a version is gone.\n\n" in body


def test_the_uri_of_all_changed_rows_is_shown():
    uri = "s3://exchange/comparisons/daily_delays/2013-03-10/1-4/rows/manifest.json"
    rows = ArrowReference(manifest=uri, rows=300, bytes=9000, files=1, seconds=1.0)
    body = compose(a_comparison(before=1, after=4).model_copy(update={"all_rows": rows})).body
    assert f"\n  All changed rows, as Arrow files:\n    {uri}\n" in body


def test_removed_rows_are_shown_with_their_values():
    gone = RowChange(
        change=Change.REMOVED,
        key={"origin": "LGA"},
        values={"flights": (3, None), "note": ("x", None), "empty": (None, None), "open": (True, None)},
    )
    comparison = a_comparison(rows=RowCounts(before=2, after=1, added=0, removed=1, changed=0))
    body = compose(comparison.model_copy(update={"examples": (gone,)})).body
    assert "Changed rows\n  removed origin LGA: flights 3, note x, open true\n" in body


def test_a_missing_value_is_shown_as_none():
    row = RowChange(change=Change.CHANGED, key={"year": 2013}, values={"delay": (None, 1.5), "note": ("a", None)})
    body = compose(a_comparison().model_copy(update={"examples": (row,)})).body
    assert "  changed year 2013: delay none -> 1.5, note a -> none\n" in body


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
    assert "    f-09.csv (added)\n" in body
    assert "f-10.csv" not in body
    assert "    ... and 15 more files\n" in body
    assert "  ... and 290 more rows\n" in body
    assert len(body.splitlines()) < 80


def test_data_cannot_add_lines():
    nasty = "a\nWhere to look\n  http://evil\x1b[31m\u2028b"
    row = RowChange(change=Change.CHANGED, key={"k": nasty}, values={"v": (nasty, "x" * 1000)})
    change = pushed().changes[0].model_copy(update={"file": nasty})
    source = SourceDifference(source="weather", before=Amount(), now=Amount(), changes=(change,))
    body = compose(a_comparison(inputs=(source,)).model_copy(update={"examples": (row,)})).body
    assert "\x1b" not in body
    assert "\u2028" not in body
    assert body.count("\nWhere to look\n") == 1
    assert "x" * 38 not in body


def test_long_rows_are_wrapped_for_e_mails():
    values = {f"column_{number}": (number, number + 1) for number in range(20)}
    row = RowChange(change=Change.CHANGED, key={"origin": "EWR"}, values=values)
    body = compose(a_comparison().model_copy(update={"examples": (row,)})).body
    lines = [line for line in body.splitlines() if "column_" in line]
    assert len(lines) > 5
    assert max(map(len, lines)) <= 78
    assert [line.startswith("    ") for line in lines] == [False] + [True] * (len(lines) - 1)
