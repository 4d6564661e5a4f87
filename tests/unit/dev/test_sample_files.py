"""Samples from files: the receiver's readers, the events of the day, and no more rows than asked for."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater.dev.sample_files import source_sample, table_sample
from slackwater.errors import DataError, InputError
from slackwater.runs.period import day_of
from tests.fakes_receiver import a_source

pytestmark = pytest.mark.unit

DAY = day_of(date(2013, 3, 10), "America/New_York")
"""23 hours, from 05:00 UTC."""
NAMES = ("id", "count", "at")
ROWS = (
    ("before", 1, "2013-03-10T04:59:59.999999Z"),
    ("first", 2, "2013-03-10T05:00:00Z"),
    ("last", 3, "2013-03-11T03:59:59.999999Z"),
    ("after", 4, "2013-03-11T04:00:00Z"),
)


def as_csv(rows, path, delimiter=","):
    path.write_text("\n".join(delimiter.join(map(str, row)) for row in (NAMES, *rows)) + "\n")


def as_json(rows, path):
    path.write_text(json.dumps([dict(zip(NAMES, row, strict=True)) for row in rows]))


def as_ndjson(rows, path):
    path.write_text("".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in rows))


def as_parquet(rows, path):
    pq.write_table(pa.table(dict(zip(NAMES, zip(*rows, strict=True), strict=True))), path)


def as_xlsx(rows, path):
    workbook = openpyxl.Workbook()
    for row in (NAMES, *rows):
        workbook.active.append(row)
    workbook.save(path)


WRITERS = {"csv": as_csv, "json": as_json, "ndjson": as_ndjson, "jsonl": as_ndjson, "parquet": as_parquet}
WRITERS |= {"xlsx": as_xlsx, "tsv": lambda rows, path: as_csv(rows, path, "\t")}


def sample(*paths, rows=1000, **changes):
    return source_sample(a_source(**changes), paths, DAY, rows=rows)


def ids(taken):
    return taken.table["id"].to_pylist()


def test_old_events_of_a_sample_are_noted(tmp_path):
    as_csv([*ROWS, ("old", 5, "1970-01-21T00:00:00Z")], tmp_path / "x.csv")
    assert "1 event is of 1970-01-21: more than 20 years old." in sample(tmp_path / "x.csv").note


@pytest.mark.parametrize("suffix", WRITERS)
def test_the_suffix_decides_the_format_and_only_events_of_the_day_count(tmp_path, suffix):
    path = tmp_path / f"things.{suffix}"
    WRITERS[suffix](ROWS, path)
    taken = sample(path)
    assert taken.table.column_names == ["id", "count", "size", "good", "day", "at"]
    first, last = taken.table.to_pylist()
    assert first == {
        "id": "first",
        "count": 2,
        "size": None,
        "good": None,
        "day": None,
        "at": datetime(2013, 3, 10, 5, tzinfo=UTC),
    }
    assert (last["id"], last["count"]) == ("last", 3)
    assert (taken.origin, taken.note) == (str(path), "")


def test_options_of_the_sources_own_format_are_used_also_for_a_compressed_file(tmp_path):
    as_csv(ROWS, tmp_path / "plain", ";")
    path = tmp_path / "things.csv.gz"
    path.write_bytes(gzip.compress((tmp_path / "plain").read_bytes()))
    pull = {**a_source().pull.model_dump(mode="json"), "format": {"type": "csv", "delimiter": ";"}}
    assert ids(sample(path, pull=pull)) == ids(sample(tmp_path / "plain", pull=pull)) == ["first", "last"]


def test_reading_stops_at_the_last_row_that_is_needed(tmp_path):
    for number in range(3):
        as_csv([(f"{number}-{row}", row, ROWS[1][2]) for row in range(4)], tmp_path / f"{number}.csv")
    paths = [tmp_path / f"{number}.csv" for number in range(3)]
    (tmp_path / "2.csv").write_text('"')  # it could not be read
    taken = sample(*paths, rows=6)
    assert ids(taken) == ["0-0", "0-1", "0-2", "0-3", "1-0", "1-1"]
    assert taken.origin == "3 files"


def test_an_id_counts_once_in_its_hour(tmp_path):
    hours = ["2013-03-10T06:10:00Z", "2013-03-10T06:50:00Z", "2013-03-10T07:00:00Z"]
    as_csv([("a", 1, hours[0]), ("a", 2, hours[1]), ("b", 3, hours[1]), ("a", 4, hours[2])], tmp_path / "x.csv")
    assert sample(tmp_path / "x.csv", event_id="id").table["count"].to_pylist() == [1, 3, 4]
    assert sample(tmp_path / "x.csv").table["count"].to_pylist() == [1, 2, 3, 4]


def test_limits_of_age_count_from_the_end_of_the_day(tmp_path):
    as_csv(ROWS, tmp_path / "x.csv")
    taken = sample(tmp_path / "x.csv", timestamp={"field": "at", "max_age_days": 2, "max_future_hours": 1})
    assert ids(taken) == ["first", "last"]


def test_rejected_rows_are_counted_with_the_first_reason(tmp_path):
    as_csv([*ROWS, ("x", "many", ROWS[1][2]), ("y", 1, "soon")], tmp_path / "x.csv")
    taken = sample(tmp_path / "x.csv")
    assert ids(taken) == ["first", "last"]
    assert taken.note.startswith("2 rows rejected, the first: x.csv: line 6: count: ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.csv", None, "--input: things: none.csv: no such file"),
        ("x.csv", "id,count,at\n", "--input: things: there are no rows"),
        ("x.csv", "id,count,at\na,many,\n", "--input: things: all rows are rejected, the first: x.csv: line 2: "),
        (
            "x.csv",
            "id,count,at\na,1,2013-03-08T12:00:00Z\na,1,2013-03-09T12:00:00Z\n",
            "no event of 2013-03-10: events are from 2013-03-08 12:00 to 2013-03-09 12:00 UTC: name another --date",
        ),
        ("x.csv", "count\n1\n", "x.csv: its header lacks at, id"),
    ],
)
def test_files_without_a_row_for_the_day_are_refused(tmp_path, monkeypatch, name, content, message):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_text(content)
    with pytest.raises((InputError, DataError)) as error:
        sample(Path(name))
    assert message in str(error.value)


def test_a_file_whose_format_nothing_states_is_refused(tmp_path):
    (tmp_path / "x.dat").write_text("")
    with pytest.raises(InputError, match=r"x\.dat is none of the files \.csv, .*: rename it"):
        sample(tmp_path / "x.dat", pull=None)


def test_the_date_of_a_published_table_is_a_date(tmp_path):
    (tmp_path / "days.ndjson").write_text('{"date": "2013-03-09", "n": 1}\n')
    taken = table_sample("days", [tmp_path / "days.ndjson"], rows=3, is_published=True)
    assert taken.table.to_pylist() == [{"date": date(2013, 3, 9), "n": 1}]


def test_rows_that_are_left_out_are_counted_and_a_source_may_be_empty(tmp_path):
    rows = ["2013-03-10T12:00:00Z", "2013-03-10T12:01:00Z", "2013-03-09T12:00:00Z", "noon"]
    (tmp_path / "x.ndjson").write_text("".join(json.dumps({"id": "a", "at": at}) + "\n" for at in rows))
    taken = source_sample(a_source(event_id="id"), [tmp_path / "x.ndjson"], DAY, rows=9, may_be_empty=True)
    assert (taken.rejected, [row.line for row in taken.first_rejected]) == (1, [4])
    assert (taken.table.num_rows, taken.of_other_days, taken.duplicates) == (1, 1, 1)
    (tmp_path / "x.ndjson").write_text("")
    assert source_sample(a_source(), [tmp_path / "x.ndjson"], DAY, rows=9, may_be_empty=True).table.num_rows == 0


def test_rows_of_a_table_keep_the_types_of_their_files(tmp_path):
    pq.write_table(pa.table({"day": [date(2013, 3, 9)], "n": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"day": [date(2013, 3, 10)] * 5}), tmp_path / "b.parquet")
    taken = table_sample("days", [tmp_path / "a.parquet", tmp_path / "b.parquet"], rows=3)
    assert taken.table["day"].to_pylist() == [date(2013, 3, 9), *[date(2013, 3, 10)] * 2]
    assert taken.table["n"].to_pylist() == [1, None, None]
    pq.write_table(pa.table({"day": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"--input: days: .*day"):
        table_sample("days", [tmp_path / "a.parquet", tmp_path / "b.parquet"], rows=3)
