"""Inferring definitions: the type of each column, what is left to the user, and the layout of files."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import math
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from slackwater.errors import DataError, DefinitionError
from slackwater.project.project import load_source
from slackwater.receiver.formats.read import read_file
from slackwater.receiver.inference import read_sample
from slackwater.receiver.inference.infer import InferredDefinition, infer_definition
from slackwater.receiver.parsing.event_checks import check_events
from slackwater.sources.definition import Source
from tests.fakes_receiver import RECEIVED

pytestmark = pytest.mark.unit

AT = "2013-03-08T12:00:00Z"


@pytest.fixture
def infer(tmp_path):
    def infer(content: str | bytes, name: str = "feed.csv", **options: Any) -> InferredDefinition:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return infer_definition(tmp_path / name, name=name, **options)

    return infer


def column(*values: str, name: str = "c") -> str:
    """A CSV file with one column of these values beside a timestamp."""
    return f"{name}|at\n" + "".join(f"{value}|{AT}\n" for value in values)


def fields(inferred: InferredDefinition) -> dict[str, Any]:
    return yaml.safe_load(inferred.definition)["fields"]


def comments(inferred: InferredDefinition) -> str:
    """All comments as one line."""
    return " ".join(line.partition("#")[2].strip() for line in inferred.definition.splitlines() if "#" in line)


@pytest.mark.parametrize(
    ("values", "field", "comment"),
    [
        (["1", "-2", "0"], "int64", ""),
        (["1", "2.5", "1e3"], "double", ""),
        (["1.0", "2.0"], "double", ""),
        (["true", "FALSE"], "boolean", ""),
        (["Y", "n"], {"type": "boolean", "true_values": ["Y"], "false_values": ["n"]}, "only 'Y' and 'n'"),
        (["Y", "Y"], "string", ""),
        (["00501", "10001"], "string", "leading zeros, such as '00501'"),
        (["00.5", "1.5"], "string", "leading zeros, such as '00.5'"),
        (["+49123", "1"], "string", "signs, such as '+49123'"),
        (["9223372036854775807", "1"], "int64", ""),
        (["9223372036854775808", "1"], "string", "more than 64 bits, such as 9223372036854775808"),
        (["9" * 5000], "string", "more than 64 bits"),
        (["0.1", "39.020000000000003"], "double", ""),
        (["0.1", "12345678901234567.89"], "string", "more digits than a double has, such as '12345678901234567.89'"),
        (["1.5", "1e999"], "string", ""),
        (["1.5", "inf"], "string", ""),
        (["1.5", "NaN"], "double", "'NaN' means no value in c"),
        (["1.234,5", "2,5"], {"type": "double", "decimal": ",", "thousands": "."}, "'1.234,5'"),
        (["1,234.5", "2"], {"type": "double", "thousands": ","}, ""),
        (["1,5", "2,25"], {"type": "double", "decimal": ","}, ""),
        (["1 234 567", "5"], {"type": "int64", "thousands": " "}, ""),
        (["1.234.567", "1.234"], {"type": "int64", "decimal": ",", "thousands": "."}, ""),
        (["1.234", "2.345"], "double", "if it groups thousands"),
        (["2013-03-08", "2013-12-31"], "date", ""),
        (["2013-02-30", "2013-12-31"], "string", ""),
        (["13.03.2013", "01.02.2013"], {"type": "date", "formats": ["%d.%m.%Y"]}, "'13.03.2013' is 2013-03-13"),
        (["8 May 2013", "8 June 2013"], {"type": "date", "formats": ["%d %B %Y"]}, ""),
        ([AT, "2013-03-08T12:00+01:00"], "timestamp", ""),
        (["20130308", "20130309"], "int64", "may also be a date: with %Y%m%d, '20130308' is 2013-03-08"),
        (["1362700800"], "int64", "may also be a timestamp: with epoch_s, '1362700800' is 2013-03-08T00:00:00Z"),
        (["", ""], "string", "no value in the sample"),
        (["NA", "N/A"], "string", "'NA' also occurs in c, and is kept as a string"),
        (["Ökonomie", "日本語", "a'b", "#x: {"], "string", ""),
    ],
)
def test_a_column_has_the_first_type_that_fits_all_values(infer, values, field, comment):
    inferred = infer(column(*values))
    assert fields(inferred)["c"] == field
    assert comment in comments(inferred)
    assert inferred.rejected == 0


MIXED = {
    "json": json.dumps([{"at": AT, "c": "2013-03-08T13:00:00+01:00"}, {"at": AT, "c": 1362744000000}]),
    "csv": column("2013-03-08T13:00:00+01:00", "1362744000000"),
}


@pytest.mark.parametrize("name", MIXED)
def test_epochs_and_iso_timestamps_in_one_column_are_read_by_two_formats(infer, tmp_path, name):
    inferred = infer(MIXED[name], f"feed.{name}")
    assert fields(inferred)["c"] == {"type": "timestamp", "formats": ["epoch_ms", "iso8601"]}
    quoted = "1362744000000" if name == "json" else "'1362744000000'"
    assert f"{quoted} is 2013-03-08T12:00:00Z; '2013-03-08T13:00:00+01:00' is 2013-03-08T12" in comments(inferred)
    assert inferred.rejected == 0
    source = Source.model_validate(yaml.safe_load(inferred.definition))
    (block,) = read_file(tmp_path / f"feed.{name}", source, name="f", received_at=RECEIVED)
    assert block.table["c"].to_pylist() == [datetime(2013, 3, 8, 12, tzinfo=ZoneInfo("UTC"))] * 2


def test_seconds_and_milliseconds_in_one_column_are_read_by_two_formats(infer):
    inferred = infer("ts,n\n1362744000000,1\n1362744000,2\n")
    assert fields(inferred)["ts"] == {"type": "timestamp", "formats": ["epoch_ms", "epoch_s"]}
    assert "such as '1362744000' and '1362744000000'" in comments(inferred)
    assert inferred.rejected == 0
    assert fields(infer(column("1362744000000", "136274400000", "1362744000", name="ts")))["ts"] == "int64"


@pytest.mark.parametrize("number", ["7", "1362744000000000"])
def test_other_numbers_beside_timestamps_make_a_string(infer, number):
    assert fields(infer(column(AT, number)))["c"] == "string"


def test_seconds_beside_timestamps_are_decided_by_the_user(infer):
    inferred = infer(column(AT, "1362744000"))
    expected = [{"type": "timestamp", "formats": [unit, "iso8601"]} for unit in ("epoch_s", "epoch_ms")]
    assert (fields(inferred)["c"], alternatives(inferred, "c")) == ("string", expected)


def test_of_numbers_with_separators_the_value_that_does_not_fit_is_named(infer):
    values = [f"{n},5" for n in range(50)]
    shown = comments(infer(column(*values, "n/v")))
    assert "double (decimal \",\") but for 1 of 51 values; row 51: 'n/v' is not a number" in shown
    shown = comments(infer(column(*[f"{n}.234,5" for n in range(1, 51)], "n/v")))
    assert 'double (decimal ",", thousands ".") but for 1 of 51 values' in shown


@pytest.mark.parametrize(
    ("header", "repeats", "expected"),
    [
        ("order_id", 11, "order_id is nearly unique: 11 repeats; choose it as event_id if repeats are the same event"),
        ("order_id", 1, "order_id is nearly unique: 1 repeat; choose"),
        ("order_id", 30, ""),
        ("city", 11, ""),
        ("id,order_id", 11, ""),
    ],
)
def test_an_id_with_a_few_repeats_is_named(infer, header, repeats, expected):
    rows = [f"{n}," * header.count(",") + f"o{max(n, repeats)},{AT}" for n in range(200)]
    shown = comments(infer("\n".join([f"{header},at", *rows])))
    assert expected in shown
    assert ("nearly unique" in shown) == bool(expected)


@pytest.mark.parametrize(
    ("name", "values", "field"),
    [
        ("order_date", ["20130308", "20130309"], {"type": "date", "formats": ["%Y%m%d"]}),
        ("ts", ["1362700800000"], {"type": "timestamp", "formats": ["epoch_ms"]}),
        ("ts", ["1362700800000000"], "int64"),
        ("dep_time", ["517", "1830"], "int64"),
        ("createdAt", ["10/Oct/2000:13:55:36 -0700"], {"type": "timestamp", "formats": ["%d/%b/%Y:%H:%M:%S %z"]}),
        ("time", ["20130308T120000Z"], {"type": "timestamp", "formats": ["%Y%m%dT%H%M%S%z"]}),
        ("time", ["2013-03-08 12:00 -05"], {"type": "timestamp", "formats": ["%Y-%m-%d %H:%M %z"]}),
        ("time", ["13/03/2013 1:05 PM +0100"], {"type": "timestamp", "formats": ["%d/%m/%Y %I:%M %p %z"]}),
        (
            "time",
            ["13/03/2013 13:05:01 +0100", "13/03/2013 13:05:01.5 +0100"],
            {"type": "timestamp", "formats": ["%d/%m/%Y %H:%M:%S %z", "%d/%m/%Y %H:%M:%S.%f %z"]},
        ),
    ],
)
def test_the_name_of_a_column_decides_whether_numbers_are_times(infer, name, values, field):
    found = fields(infer(column(*values, name=name)))
    found = next(iter(found.values()))
    assert (found if isinstance(found, str) else {key: found[key] for key in found if key != "from"}) == field


UNDECIDED = {
    "day or month first": (
        ["01/02/2013", "03/04/2013"],
        [{"type": "date", "formats": [f"%{order[0]}/%{order[1]}/%Y"]} for order in ("dm", "md")],
        [[date(2013, 2, 1), date(2013, 4, 3)], [date(2013, 1, 2), date(2013, 3, 4)]],
    ),
    "three orders": (
        ["01-02-03"],
        [{"type": "date", "formats": [format_]} for format_ in ("%d-%m-%y", "%m-%d-%y", "%y-%m-%d")],
        [[date(2003, 2, 1)], [date(2003, 1, 2)], [date(2001, 2, 3)]],
    ),
    "equal values today": (
        ["01.01.2013", "02.02.2013"],
        [{"type": "date", "formats": [f"%{order[0]}.%{order[1]}.%Y"]} for order in ("dm", "md")],
        [[date(2013, 1, 1), date(2013, 2, 2)]] * 2,
    ),
    "thousands or decimals": (
        ["1,234", "5"],
        [{"type": "double", "decimal": ","}, {"type": "int64", "thousands": ","}],
        [[1.234, 5.0], [1234, 5]],
    ),
}


def alternatives(inferred: InferredDefinition, name: str) -> list[dict[str, Any]]:
    """The commented lines that may replace the line of a field."""
    lines = [line.strip() for line in inferred.definition.splitlines()]
    return [yaml.safe_load(line[1:])[name] for line in lines if line.startswith(f"#   {name}: ")]


@pytest.mark.parametrize(("values", "expected", "read"), UNDECIDED.values(), ids=UNDECIDED)
def test_of_several_readings_none_is_chosen(infer, tmp_path, values, expected, read):
    inferred = infer(column(*values))
    assert fields(inferred)["c"] == "string"
    assert alternatives(inferred, "c") == expected
    assert inferred.undecided == {"fields.c": f"{len(expected)} readings fit all values"}
    content = yaml.safe_load(inferred.definition)
    for alternative, column_of_values in zip(expected, read, strict=True):
        source = Source.model_validate({**content, "fields": {**content["fields"], "c": alternative}})
        (block,) = read_file(tmp_path / "feed.csv", source, name="f", received_at=RECEIVED)
        assert block.table["c"].to_pylist() == column_of_values


def test_readings_are_shown_with_a_value_that_they_read_differently(infer):
    shown = comments(infer(column("01/01/2013", "03/04/2013")))
    assert "'03/04/2013' is 2013-04-03" in shown
    assert "'03/04/2013' is 2013-03-04" in shown


@pytest.mark.parametrize(
    ("value", "kept", "formats"),
    [
        ("01/02/2013 10:00", "string", ["%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M"]),
        ("01/02/2013 10:00 UTC", "string", ["%d/%m/%Y %H:%M UTC", "%m/%d/%Y %H:%M UTC"]),
        ("01/02/2013 10:00 +0100", "string", ["%d/%m/%Y %H:%M %z", "%m/%d/%Y %H:%M %z"]),
        ("1362700800", "int64", ["epoch_s", "epoch_ms"]),
        ("1362700800.5", "double", ["epoch_s", "epoch_ms"]),
        ("2013-03-08", "date", ["%Y-%m-%d"]),
    ],
)
def test_an_event_timestamp_without_a_decided_reading_is_not_valid(infer, tmp_path, value, kept, formats):
    inferred = infer(f"time,v\n{value},a\n")
    has_offset = "%z" in formats[0] or "epoch" in formats[0]
    timezone = "UTC" if "UTC" in formats[0] else None if has_offset else "DECIDE the timezone"
    content = yaml.safe_load(inferred.definition)
    assert (content["timestamp"].get("timezone"), fields(inferred)["time"]) == (timezone, kept)
    expected = [{"type": "timestamp", "formats": [format_]} for format_ in formats]
    assert alternatives(inferred, "time") == expected
    (tmp_path / "feed.yaml").write_text(inferred.definition)
    with pytest.raises(
        DefinitionError, match=r"timestamp\.timezone" if "DECIDE" in str(timezone) else r"timestamp\.field.*'time' must"
    ):
        load_source(tmp_path / "feed.yaml")
    decided = {**content, "timestamp": {"field": "time", "timezone": "UTC"}}
    with pytest.raises(ValueError, match="'time' must be listed"):
        Source.model_validate(decided)
    for alternative in expected:
        source = Source.model_validate({**decided, "fields": {**content["fields"], "time": alternative}})
        (block,) = read_file(tmp_path / "feed.csv", source, name="f", received_at=RECEIVED)
        assert (block.table.num_rows, block.rejected) == (1, [])


def test_timestamps_without_an_offset_need_the_time_zone(infer, tmp_path):
    inferred = infer("at,seen\n2013-03-08 12:00,2013-03-08 12:00\n2013-03-08T12:00Z,2013-07-08 12:00\n")
    assert fields(inferred) == {"at": "timestamp", "seen": "timestamp"}
    assert "both are read as the first hour: if your data has it, have UTC or offsets sent" in comments(inferred)
    path = tmp_path / "feed.yaml"
    path.write_text(inferred.definition)
    with pytest.raises(DefinitionError, match=r"timestamp\.timezone: no such timezone: 'DECIDE the timezone'"):
        load_source(path)
    path.write_text(inferred.definition.replace("DECIDE the timezone", "Europe/Berlin"))
    (block,) = read_file(tmp_path / "feed.csv", load_source(path), name="f", received_at=RECEIVED)
    berlin, utc = ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")
    assert block.table["at"].to_pylist() == [
        datetime(2013, 3, 8, 12, tzinfo=berlin),
        datetime(2013, 3, 8, 12, tzinfo=utc),
    ]
    assert block.table["seen"].to_pylist() == [datetime(2013, month, 8, 12, tzinfo=berlin) for month in (3, 7)]


@pytest.mark.parametrize(
    ("at", "seen", "seen_field", "timezone"),
    [
        (AT, "2013-03-08 12:00", "string", None),
        (AT, "2013-03-08T12:00+01:00", "timestamp", None),
        ("2013-03-08 12:00:00 UTC", "2013-03-08 12:00", "string", "UTC"),
        ("2013-03-08 12:00:00 UTC", AT, "timestamp", "UTC"),
        ("2013-03-08 12:00", "2013-03-08 12:00:00 UTC", "string", "DECIDE the timezone"),
    ],
)
def test_the_time_zone_of_the_event_timestamp_is_not_used_for_others(infer, at, seen, seen_field, timezone):
    inferred = infer(f"at,seen\n{at},{seen}\n")
    assert (fields(inferred)["seen"], yaml.safe_load(inferred.definition)["timestamp"].get("timezone")) == (
        seen_field,
        timezone,
    )
    assert ("without an offset from UTC: to read them" in comments(inferred)) == (seen_field == "string")


@pytest.mark.parametrize(
    ("header", "row", "field"),
    [
        ("seen,created_at", f"{AT},{AT}", "created_at"),
        ("created_at,event_time", f"{AT},{AT}", "event_time"),
        ("x,seen_time", f"{AT},{AT}", "seen_time"),
        ("event_time,x", f",{AT}", "x"),
        ("day,x", f"2013-03-08,{AT}", "x"),
    ],
)
def test_the_event_timestamp_has_a_value_in_every_row_and_a_good_name(infer, header, row, field):
    inferred = infer(f"{header}\n{row}\n{AT},{AT}\n" if ",," not in f",{row}" else f"{header}\n{row}\n")
    assert yaml.safe_load(inferred.definition)["timestamp"]["field"] == field


@pytest.mark.parametrize("content", ["a,b\n1,2\n", f"a,time\n1,{AT}\n2,\n", f"a,time\n1,{AT}\n2,soon\n"])
def test_without_an_event_timestamp_validation_names_the_field(infer, tmp_path, content):
    inferred = infer(content)
    (tmp_path / "feed.yaml").write_text(inferred.definition)
    assert inferred.undecided == {"timestamp.field": "no column has a timestamp in every row"}
    with pytest.raises(DefinitionError, match=r"timestamp\.field"):
        load_source(tmp_path / "feed.yaml")


@pytest.mark.parametrize(
    ("header", "rows", "event_id", "comment"),
    [
        ("id,at", ["1", "2"], "id", "id is unique in all 2 rows, and never empty"),
        ("feed_id,at", ["a", "b"], "feed_id", "feed_id is unique in all 2 rows"),
        ("shop_id,at", ["a", "b"], None, "shop_id is unique in all 2 rows, and never empty: set event_id if"),
        ("id,at", ["1", "1"], None, ""),
        ("id,at", ["1", ""], None, ""),
        ("id,at", ["1.5", "2.5"], None, ""),
        ("name,at", ["a", "b"], None, ""),
    ],
)
def test_the_event_id_is_unique_and_named_like_an_id(infer, header, rows, event_id, comment):
    inferred = infer(f"{header}\n" + "".join(f"{row},{AT}\n" for row in rows))
    assert yaml.safe_load(inferred.definition).get("event_id") == event_id
    assert comment in comments(inferred)
    assert ("unique" in comments(inferred)) == bool(comment)


def test_null_strings_need_a_column_with_a_type(infer):
    content = f"n,s,u,at\n1,NA,-,{AT}\nNA,a,b,{AT}\nN/A,N/A,b,{AT}\n"
    inferred = infer(content)
    assert yaml.safe_load(inferred.definition)["null_values"] == ["", "NA", "N/A"]
    assert fields(inferred)["n"] == "int64"
    assert "'NA' means no value in n: the other values have a type" in comments(inferred)
    assert "'NA' also occurs in s, and becomes null there too" in comments(inferred)
    assert "'-' also occurs in u, and is kept as a string" in comments(inferred)


@pytest.mark.parametrize(
    ("value", "bad", "field", "says"),
    [
        ("7", "abc", "int64", "int64 but for 2 of 100 values; row 51: 'abc' is not a whole number"),
        ("2.5", "2,5", "double", "double but for 2 of 100 values; row 51: '2,5' is not a number"),
        (AT, "2013-02-30T12:00Z", "timestamp", "timestamp but for 2 of 100 values; row 51: '2013-02-30T12:00Z' is"),
        (
            "13/03/2013",
            "?!",
            {"type": "date", "formats": ["%d/%m/%Y"]},
            "date (%d/%m/%Y) but for 2 of 100 values; row 51: '?!' is not a date",
        ),
        ("true", "maybe", "boolean", "boolean but for 2 of 100 values; row 51: 'maybe' is neither"),
    ],
)
def test_one_bad_value_of_a_hundred_is_rejected_and_two_make_a_string(infer, value, bad, field, says):
    values = [value] * 100
    values[50] = bad
    inferred = infer(column(*values))
    assert fields(inferred)["c"] == field
    assert f"1 of 100 rows would be rejected, such as row 51: '{bad}'" in comments(inferred)
    assert inferred.rejected == 1
    values[60] = bad
    inferred = infer(column(*values))
    assert fields(inferred)["c"] == "string"
    assert says in comments(inferred)


def test_an_odd_id_makes_a_string(infer):
    assert fields(infer(column(*map(str, range(999)), "X7", name="order_no")))["order_no"] == "string"


def test_odd_values_in_json_leave_a_field_of_its_type(infer):
    rows = [{"at": AT, "ts": 1362744000000 + n, "amount": n / 2, "name": f"n{n}"} for n in range(400)]
    rows[7] |= {"ts": 1362744000}
    rows[20] |= {"ts": {}, "amount": [1]}
    rows[30] |= {"ts": "yesterday", "amount": True, "name": {"a": 1}}
    inferred = infer("".join(f"{json.dumps(row)}\n" for row in rows), "feed.ndjson")
    assert fields(inferred) == {
        "at": "timestamp",
        "ts": {"type": "timestamp", "formats": ["epoch_ms", "epoch_s"]},
        "amount": "double",
        "name": "string",
    }
    assert "2 of 400 rows would be rejected, such as row 21: [1]" in comments(inferred)
    assert inferred.rejected == 2


def test_a_row_of_totals_in_a_workbook_is_rejected_and_named(infer, tmp_path):
    workbook = openpyxl.Workbook()
    workbook.active.append(["Ticket", "Data/Hora", "Valor"])
    for n in range(1, 200):
        at = datetime(2026, 10, 22, n % 24, 30)
        workbook.active.append([f"t{n}", at if n % 3 else f"{at:%d/%m/%Y %H:%M}", n / 2 if n % 5 else f"1.{n:03},50"])
    workbook.active.append(["TOTAL", None, "19.900,50"])
    workbook.save(tmp_path / "book.xlsx")
    inferred = infer((tmp_path / "book.xlsx").read_bytes(), "vendas.xlsx")
    assert fields(inferred)["data_hora"] == {
        "type": "timestamp",
        "from": "Data/Hora",
        "formats": ["%d/%m/%Y %H:%M"],
    }
    assert fields(inferred)["valor"] == {"type": "double", "from": "Valor", "decimal": ",", "thousands": "."}
    assert yaml.safe_load(inferred.definition)["timestamp"]["field"] == "data_hora"
    shown = comments(inferred)
    assert "a date or timestamp in 199 of 200 rows. 1 row would be rejected, such as row 201: 'TOTAL'" in shown
    assert "'22/10/2026 03:30' is 2026-10-22T03:30:00" in shown
    assert inferred.rejected == 1


LAYOUTS = {
    "semicolon": ("a;at\n1,5;{at}\n", {"type": "csv", "delimiter": ";"}, 1),
    "tab": ("a\tat\n1\t{at}\n", {"type": "csv", "delimiter": "\t"}, 1),
    "commas in text": ("id|t|at\n1|a, b, c|{at}\n2|d, e, f|{at}\n", {"type": "csv", "delimiter": "|"}, 2),
    "decimal commas": ("n;p;at\n" + "a;1,5;{at}\n" * 9, {"type": "csv", "delimiter": ";"}, 9),
    "quoted line ends": ('"a\nb",at\n"x, ""y""\nz",{at}\n', "csv", 1),
    "one column": ("at\n{at}\n{at}\n", "csv", 2),
    "byte order mark": ("\ufeffa,at\n1,{at}\n", "csv", 1),
    "no header": ("1,{at},a\n2,{at},b\n", {"type": "csv", "columns": ["column_1", "column_2", "column_3"]}, 2),
    "no header, equal cells": (
        "1,1,{at}\n2,3,{at}\n",
        {"type": "csv", "columns": ["column_1", "column_2", "column_3"]},
        2,
    ),
    "lines before": ("Report\nof today\n\na,b,at\n1,2,{at}\n3,4,{at}\n5,6,{at}\n", {"type": "csv", "skip_lines": 3}, 3),
    "same name twice": ("a,a,at\n1,2,{at}\n", {"type": "csv", "skip_lines": 1, "columns": ["a", "a_2", "at"]}, 1),
    "no name": ("a,,at\n1,2,{at}\n", {"type": "csv", "skip_lines": 1, "columns": ["a", "column_2", "at"]}, 1),
}


@pytest.mark.parametrize(("content", "file_format", "rows"), LAYOUTS.values(), ids=LAYOUTS)
def test_the_layout_of_a_csv_file_is_found(infer, content, file_format, rows):
    inferred = infer(content.format(at=AT))
    assert yaml.safe_load(inferred.definition)["pull"]["format"] == file_format
    assert (inferred.rows, inferred.rejected) == (rows, 0)


def test_semicolons_in_text_divide_no_column(infer):
    inferred = infer("note\nhello; world; x\nplain text\nother, with comma\n")
    assert yaml.safe_load(inferred.definition)["pull"]["format"] == "csv"
    assert fields(inferred) == {"note": "string"}


@pytest.mark.parametrize(
    ("encoding", "expected", "comment"),
    [
        ("utf-8", "csv", ""),
        ("cp1252", {"type": "csv", "encoding": "cp1252"}, "Not UTF-8. In cp1252 it contains 'Größe'"),
        ("utf-16", {"type": "csv", "encoding": "utf-16"}, ""),
    ],
)
def test_the_encoding_is_found(infer, encoding, expected, comment):
    inferred = infer(f"Größe,at\nMüller,{AT}\n".encode(encoding))
    assert yaml.safe_load(inferred.definition)["pull"]["format"] == expected
    assert fields(inferred) == {"groe": {"type": "string", "from": "Größe"}, "at": "timestamp"}
    assert (comment in comments(inferred), inferred.rejected) == (True, 0)


def test_replacement_characters_that_a_file_contains_are_utf_8(infer):
    inferred = infer(f"name,at\ncaf\ufffd,{AT}\n".encode())
    assert yaml.safe_load(inferred.definition)["pull"]["format"] == "csv"


def test_a_delimiter_of_the_header_is_preferred(infer):
    inferred = infer(f"name;price\na;1,5\nb;2,5\n{AT},1\nd,2\n")
    assert yaml.safe_load(inferred.definition)["pull"]["format"] == {"type": "csv", "delimiter": ";"}


def test_rows_that_the_receiver_rejects_are_counted_and_quoted(infer):
    inferred = infer(
        f"a,b,at\n1,2,{AT}\n3,{AT}\nx,4,{AT}\n".encode() + b"y,\xff\xc3\xa9\xc3\xa9," + AT.encode() + b"\n"
    )
    assert (inferred.rows, inferred.rejected) == (4, 2)
    assert "- row 2: the row has 2 columns, but the header has 3 - row 4: b: not UTF-8" in comments(inferred)


def test_whitespace_is_trimmed_if_a_type_needs_it(infer):
    inferred = infer(f"id, at , v\n1, {AT} , NA\n2, {AT}, 5\n")
    assert yaml.safe_load(inferred.definition)["trim"] is True
    assert (fields(inferred), inferred.rejected) == ({"id": "int64", "at": "timestamp", "v": "int64"}, 0)
    assert "trim" not in yaml.safe_load(infer(f"a,at\n x ,{AT}\n").definition)


def test_names_become_valid_and_unique(infer):
    header = ["Order No.", "orderNo", "名前", "2013", "no", "x" * 70, 'a"#: \n', "at"]
    content = io.StringIO()
    content.write(",".join('"' + name.replace('"', '""') + '"' for name in header) + "\n" + "a," * 7 + AT + "\n")
    inferred = infer(content.getvalue())
    names = ["order_no", "order_no_2", "column_3", "column_2013", "no", "x" * 63, "a", "at"]
    assert list(fields(inferred)) == names
    assert [field["from"] for field in list(fields(inferred).values())[:4]] == header[:4]
    assert inferred.rejected == 0


@pytest.mark.parametrize(
    ("name", "source", "files"),
    [
        ("flights-2013-03-08-04.csv", "flights", "flights-{date}*.csv"),
        ("Orders_20130308.csv.gz", "orders", "Orders_{date:%Y%m%d}.csv.gz"),
        ("orders 99999999.csv", "orders", "orders 99999999-{date}.csv"),
        ("2013_03_08.csv", "source", "{date:%Y_%m_%d}.csv"),
        ("a{b}*.csv", "a_b", "a*b**-{date}.csv"),
    ],
)
def test_the_file_name_gives_the_name_of_the_source_and_the_pattern(infer, name, source, files):
    content = f"a,at\n1,{AT}\n".encode()
    inferred = infer(gzip.compress(content) if name.endswith("gz") else content, name)
    definition = yaml.safe_load(inferred.definition)
    assert (inferred.source, definition["source"], definition["pull"]["files"]) == (source, source, files)


def test_a_url_becomes_the_folder_of_the_pull(infer):
    inferred = infer(f"a,at\n1,{AT}\n", "x.csv", url="https://h.example/a/b-2013-03-08.csv", source="mine")
    pull = yaml.safe_load(inferred.definition)["pull"]
    assert (inferred.source, pull["url"], pull["files"], pull["listing"]) == (
        *("mine", "https://h.example/a", "b-{date}.csv", "none"),
    )


EVENTS = [{"id": 1, "at": AT, "n": [{"x": 1}], "m": 1.5, "v": None}, {"id": 2, "at": AT, "n": None, "m": "a", "v": 2}]


@pytest.mark.parametrize("name", ["feed.json", "feed.ndjson"])
def test_json_that_no_field_can_hold_stays_in_the_column_for_unknown_fields(infer, tmp_path, name):
    content = json.dumps(EVENTS) if name == "feed.json" else "\n\n".join(map(json.dumps, EVENTS))
    inferred = infer(content, name)
    assert fields(inferred) == {"id": "int64", "at": "timestamp", "v": "int64"}
    assert "No field for 'n': values are nested: stored as JSON" in comments(inferred)
    assert "No field for 'm': values are float, string: stored as JSON" in comments(inferred)
    source = Source.model_validate(yaml.safe_load(inferred.definition))
    (block,) = read_file(tmp_path / name, source, name=name, received_at=RECEIVED)
    assert [json.loads(extra) for extra in block.table["_extra"].to_pylist()] == [
        {key: event[key] for key in "nm"} for event in EVENTS
    ]


def test_nested_values_become_fields_by_their_paths(infer, tmp_path):
    visits = [
        {"id": 1, "booking": {"id": "b1", "at": AT, "room": {"no": 7}, "tags": ["x"]}},
        {"id": 2, "booking": {"id": "b2", "at": AT, "room": None}},
    ]
    inferred = infer("\n".join(map(json.dumps, visits)), "visits.ndjson")
    assert fields(inferred) == {
        "id": "int64",
        "booking_id": {"type": "string", "from": "booking.id"},
        "booking_at": {"type": "timestamp", "from": "booking.at"},
        "booking_room_no": {"type": "int64", "from": "booking.room.no"},
    }
    assert "No field for 'booking.tags': values are nested: stored as JSON" in comments(inferred)
    source = Source.model_validate(yaml.safe_load(inferred.definition))
    assert source.timestamp.field == "booking_at"
    (block,) = read_file(tmp_path / "visits.ndjson", source, name="v", received_at=RECEIVED)
    assert block.table.select(["booking_id", "booking_room_no", "_extra"]).to_pylist() == [
        {"booking_id": "b1", "booking_room_no": 7, "_extra": '{"booking":{"tags":["x"]}}'},
        {"booking_id": "b2", "booking_room_no": None, "_extra": None},
    ]


@pytest.mark.parametrize(
    "value",
    [{"b": 1, "c.d": 2}, {f"k{n}": n for n in range(51)}, "text", {}],
    ids=["a dot in a key", "a map with many keys", "not always an object", "no key"],
)
def test_an_object_without_clear_paths_stays_in_the_column_for_unknown_fields(infer, value):
    events = [{"at": AT, "a": value}, {"at": AT, "a": {}}]
    assert fields(infer("\n".join(map(json.dumps, events)), "a.ndjson")) == {"at": "timestamp"}


def test_a_key_with_a_dot_comes_before_a_path(infer):
    events = [{"at": AT, "a.b": 1, "a": {"b": "x"}, "c": {"d": "y"}}]
    expected = {"a_b": {"type": "int64", "from": "a.b"}, "at": "timestamp", "c_d": {"type": "string", "from": "c.d"}}
    assert fields(infer(json.dumps(events), "a.json")) == expected


def test_of_a_json_object_the_list_is_read_and_has_to_be_pushed(infer):
    inferred = infer(
        json.dumps({"count": 2, "items": [{"id": 1, "at": AT}, {"id": 2, "at": AT}]}, indent=1), "feed.json"
    )
    definition = yaml.safe_load(inferred.definition)
    assert "no object with the list 'items'" in comments(inferred)
    source = Source.model_validate(definition)
    assert (source.pull, inferred.rows) == (None, 2)
    assert check_events([{"id": 1, "at": AT}, {"id": 2, "at": AT}], source, received_at=RECEIVED).rejected == []


@pytest.mark.parametrize(
    ("values", "field", "rejected"),
    [
        (["1", 2, 3], "int64", 0),
        (["01", 2, 3], "string", 0),
        ([1, 2.5, 10**20 + 1], "double", 0),
        ([10**30, 5, "x"], "string", 0),
        ([1.5, math.nan, math.inf], "double", 2),
        ([True, "false", None], "boolean", 0),
        (["\ud800", "a", "b"], "string", 1),
    ],
)
def test_mixed_json_values_have_a_type_if_one_reads_all(infer, values, field, rejected):
    inferred = infer("\n".join(json.dumps({"at": AT, "v": value}) for value in values), "feed.ndjson")
    assert (fields(inferred)["v"], inferred.rejected) == (field, rejected)
    assert (f"rejects {rejected} row" in comments(inferred)) == bool(rejected)


def test_the_columns_of_a_parquet_file_keep_their_types(infer):
    noon = datetime(2013, 3, 8, 12)
    arrays = {
        "at": (pa.array([noon, noon], pa.timestamp("ms", "Europe/Berlin")), "timestamp"),
        "local": (pa.array([noon, noon], pa.timestamp("ns")), None),
        "day": (pa.array([date(2013, 3, 8), None], pa.date32()), "date"),
        "small": (pa.array([1, 2], pa.uint8()), "int64"),
        "huge": (pa.array([2**64 - 1, 1], pa.uint64()), "string"),
        "price": (pa.array([1, 2], pa.decimal128(18, 2)), "double"),
        "exact": (pa.array([10**17 + 1, 2], pa.decimal128(20, 2)), "string"),
        "single": (pa.array([1.5, 2], pa.float32()), "double"),
        "category": (pa.array(["a", "b"]).dictionary_encode(), "string"),
        "list": (pa.array([[1], []]), None),
        "time": (pa.array([1, 2], pa.time32("s")), None),
        "none": (pa.nulls(2), "string"),
    }
    written = io.BytesIO()
    pq.write_table(pa.table({name: array for name, (array, _) in arrays.items()}), written)
    for content in (written.getvalue(), bz2.compress(written.getvalue())):
        inferred = infer(content, "feed.parquet")
        assert fields(inferred) == {name: field for name, (_, field) in arrays.items() if field}
        assert inferred.rejected == 0


def test_the_cells_of_a_workbook_keep_their_types(infer):
    written, workbook = io.BytesIO(), openpyxl.Workbook()
    for row in (
        [],
        ["id", "when", "day", "n", "mixed", None],
        [1, datetime(2013, 3, 8, 12), date(2013, 3, 8), 1.5, "x"],
        [2, datetime(2013, 3, 8, 13), date(2013, 3, 9), 2, date(2013, 3, 9)],
    ):
        workbook.active.append(row)
    workbook.save(written)
    for content in (written.getvalue(), gzip.compress(written.getvalue())):
        inferred = infer(content, "feed.xlsx")
        assert fields(inferred) == {"id": "int64", "when": "timestamp", "day": "date", "n": "double", "mixed": "string"}
        assert inferred.undecided == {"timestamp.timezone": "there are timestamps without an offset from UTC"}
        assert (inferred.rows, inferred.rejected) == (2, 0)


@pytest.mark.parametrize("line_end", ["\n", "\r", "\x85", "\u2028"])
def test_a_line_end_in_a_name_does_not_end_a_comment(infer, line_end):
    name = f"v{line_end}x: 1"
    inferred = infer(json.dumps({"at": AT, name: math.nan}), "feed.ndjson")
    assert inferred.rejected == 1
    ((_, field),) = [item for item in fields(inferred).items() if item[0] != "at"]
    assert field == {"type": "double", "from": name}


def parquet(*names: str, rows: int = 1) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.Table.from_arrays([pa.array(["a"] * rows)] * len(names), names=list(names)), written)
    return written.getvalue()


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        (b"", "feed.csv", "feed.csv: empty: send a sample with at least one row"),
        (b" \n\n", "feed.json", "feed.json: empty"),
        (b"a,b\n", "feed.csv", "feed.csv: no rows: send"),
        (b"[]", "feed.json", "feed.json: no rows"),
        (b"[1, 2]", "feed.json", "feed.json: no rows"),
        (b"[1, 2", "feed.json", "feed.json: not JSON: a comma or the end of the array is expected"),
        (b'{"a": 1', "feed.json", "not NDJSON, and not JSON: Expecting"),
        (b'{\n"a": 1\n}', "feed.json", "one JSON object with 0 lists"),
        (parquet("a", "a"), "feed.parquet", "two columns have the same name: a: rename one of them"),
        (parquet("a", rows=0), "feed.parquet", "feed.parquet: no rows"),
        (b"PAR1 and no more", "feed.parquet", "not readable as Parquet"),
        (b"\xd0\xcf\x11\xe0\0\0", "feed.xls", "feed.xls: neither text in UTF-8 nor Parquet nor an .xlsx workbook"),
        (b"PK\x03\x04 and no more", "feed.xlsx", "its compressed data is broken"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:-9], "feed.csv.gz", "its compressed data is broken"),
    ],
)
def test_a_file_without_readable_rows_is_an_error(infer, content, name, says):
    with pytest.raises(DataError, match=says):
        infer(content, name)


@pytest.mark.parametrize("name", ["feed.csv", "feed.ndjson", "feed.json", "feed.parquet"])
def test_of_a_long_file_the_first_rows_are_read_and_the_definition_says_so(infer, monkeypatch, name):
    monkeypatch.setattr(read_sample, "MAX_ROWS", 10)
    events = [{"v": str(number) if number < 10 else "late", "at": AT} for number in range(11)]
    contents = {
        "feed.csv": lambda: "v,at\n" + "".join(f"{event['v']},{event['at']}\n" for event in events),
        "feed.ndjson": lambda: "\n".join(map(json.dumps, events)),
        "feed.json": lambda: json.dumps(events),
        "feed.parquet": lambda: pa.table({key: [event[key] for event in events] for key in ("v", "at")}),
    }
    content = contents[name]()
    if isinstance(content, pa.Table):
        written = io.BytesIO()
        pq.write_table(content, written)
        content = written.getvalue()
    inferred = infer(content, name)
    assert (fields(inferred)["v"], inferred.rows, inferred.is_complete, inferred.rejected) == ("int64", 10, False, 0)
    assert "only its first 10 rows. The others were not read" in comments(inferred)


@pytest.mark.parametrize("name", ["feed.csv", "feed.ndjson", "feed.json", "feed.csv.gz"])
def test_the_beginning_of_a_download_is_read_to_its_last_complete_row(infer, name):
    events = [{"v": number, "at": AT} for number in range(1000)]
    lines = "\n".join(map(json.dumps, events))
    csv = "v,at\n" + "".join(f"{event['v']},{AT}\n" for event in events)
    contents = {"feed.csv": csv, "feed.ndjson": lines, "feed.json": json.dumps(events)}
    content = contents.get(name, csv).encode()
    content = gzip.compress(content) if name.endswith("gz") else content
    inferred = infer(content[: len(content) * 2 // 3], name, is_whole=False)
    assert fields(inferred) == {"v": "int64", "at": "timestamp"}
    assert 100 < inferred.rows < 1000
    # The receiver reads no element of an array without an end.
    assert (inferred.is_complete, inferred.rejected) == (False, None if name == "feed.json" else 0)


def test_the_beginning_of_a_parquet_file_is_refused(infer):
    with pytest.raises(DataError, match="larger than 16 MiB, and its format can only be read as a whole"):
        infer(parquet("a")[:-20], "feed.parquet", is_whole=False)


def test_the_sample_stays_the_only_file_of_its_folder(infer, tmp_path):
    infer(gzip.compress(parquet("a")), "feed.parquet")
    assert [path.name for path in Path(tmp_path).iterdir()] == ["feed.parquet"]
