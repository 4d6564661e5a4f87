"""CSV files, compared with Python's csv module: cells, positions of rows, delimiters and quotes."""

from __future__ import annotations

import csv
import io
import json
import re
import tracemalloc
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from slackwater.errors import DataError
from slackwater.receiver.formats import blocks
from slackwater.receiver.formats.csv_file import cast_plain_numbers, parse_csv
from slackwater.receiver.formats.csv_records import CsvRecordFormat
from slackwater.receiver.formats.read import check_rows
from slackwater.receiver.parsing.event_checks import CheckedEvents, RejectedEvent, check_events
from slackwater.receiver.parsing.rejections import NO_REJECTIONS
from slackwater.sources.definition import Source
from slackwater.sources.fields import FieldDefinition
from slackwater.sources.file_format import Csv
from tests.fakes_receiver import RECEIVED, a_source

pytestmark = pytest.mark.unit

HEADER = b"id,count,size,good,day,at\n"
ROW = b"a,1,2.5,true,2013-03-11,2013-03-11T12:00:00Z"
INSTANT = datetime(2013, 3, 11, 12, tzinfo=UTC)
EVENT = {"id": "a", "count": 1, "size": 2.5, "good": True, "day": INSTANT.date(), "at": INSTANT}
STRING_SOURCE = a_source(fields={"at": "timestamp", "x": "string", "y": "string"}, null_values=[])
NULLS = STRING_SOURCE.model_copy(update={"null_values": ("", "NA")})
AT = "2013-03-11T12:00:00Z"


class ChunkedStream:
    """A stream that returns its bytes in chunks of one size."""

    def __init__(self, content: bytes, size: int = 2**20) -> None:
        self._file, self._size = io.BytesIO(content), size

    def read(self, size: int, /) -> bytes:
        return self._file.read(min(size, self._size))


def read(content: bytes, source: Source | None = None, *, chunk_size: int = 2**20, **options: object) -> CheckedEvents:
    """Read a whole file."""
    result = list(
        check_rows(
            parse_csv(ChunkedStream(content, chunk_size), Csv.model_validate(options), source or a_source(), name="f"),
            source or a_source(),
            received_at=RECEIVED,
        )
    )
    return CheckedEvents(
        pa.concat_tables(block.table for block in result) if result else None,
        pa.concat_tables(block.rejections for block in result) if result else NO_REJECTIONS,
    )


def rows_of(checked: CheckedEvents, *names: str) -> list[tuple[object, ...]]:
    return list(zip(*(checked.table[name].to_pylist() for name in names), strict=True))


class TestCsvFormats:
    @pytest.mark.parametrize(
        "content",
        [
            HEADER + ROW,
            HEADER.replace(b"\n", b"\r\n") + ROW + b"\r\n",
            HEADER.replace(b"\n", b"\r") + ROW + b"\r",
            b"\xef\xbb\xbf" + HEADER + ROW,
            b"\n\r\n" + HEADER + b"\n\n" + ROW + b"\n\n",
            b"at,day,good,size,count,id\n2013-03-11T12:00:00Z,2013-03-11,TRUE,2.5,1.0,a\n",
            b'"id","at",count,"size",good,day\n"a","2013-03-11T12:00:00Z","1","2.50","true","2013-03-11"\n',
        ],
    )
    def test_one_row_is_read_in_every_layout(self, content):
        checked = read(content)
        assert checked.rejected == []
        assert checked.table.to_pylist() == [{**EVENT, "_event_time": INSTANT, "_extra": None}]

    @pytest.mark.parametrize("delimiter", ["\t", ";", "|", " ", "."])
    def test_every_delimiter_is_accepted(self, delimiter):
        content = (HEADER + ROW.replace(b"2.5", b"2")).replace(b",", delimiter.encode())
        assert rows_of(read(content, delimiter=delimiter), "id", "size", "at") == [("a", 2.0, INSTANT)]

    @pytest.mark.parametrize("mark", ["§", "\n", "\r", "\0", "\x7f", "\u2028", ""])
    def test_invalid_separators_are_refused(self, mark):
        for name in ("delimiter", "quote"):
            with pytest.raises(ValidationError):
                Csv.model_validate({name: mark})

    def test_another_quote_character_is_accepted(self):
        content = b"x,y,at\n'it''s, \"so\"\n',b,2013-03-11T12:00:00Z\n"
        assert rows_of(read(content, STRING_SOURCE, quote="'"), "x", "y") == [('it\'s, "so"\n', "b")]

    def test_quotes_can_be_disabled(self):
        content = b'x,y,at\n"a,b",2013-03-11T12:00:00Z\n"c,5" x "" z,2013-03-11T12:00:00Z\n'
        assert rows_of(read(content, STRING_SOURCE, quote=None), "x", "y") == [('"a', 'b"'), ('"c', '5" x "" z')]

    def test_lines_before_the_header_are_skipped(self):
        content = b'made by "x\nfor us\r\n\r' + HEADER + b"b\n" + ROW
        checked = read(content, skip_lines=3)
        assert checked.table["id"].to_pylist() == ["a"]
        assert [(item.index, item.line, item.text) for item in checked.rejected] == [(0, 5, "b")]

    @pytest.mark.parametrize("lines", [2, 5])
    def test_skipping_more_lines_than_the_file_has(self, lines):
        with pytest.raises(DataError, match=r"^f: empty: a header"):
            read(HEADER + ROW, skip_lines=lines)

    def test_a_file_without_header_has_the_columns_of_its_definition(self):
        checked = read(b"a,2013-03-11T12:00:00Z\nb\n", columns=["id", "at"])
        assert rows_of(checked, "id", "count", "at") == [("a", None, INSTANT)]
        assert [item.reason for item in checked.rejected] == ["the row has 1 column, but the definition has 2"]
        assert read(b"", columns=["id", "at"]).table is None

    def test_missing_columns_are_null_and_unknown_columns_are_kept(self):
        content = "id,new,at,Old é,count\na,NA,2013-03-11T12:00:00Z,,NA\n".encode()
        (result,) = read(content).table.to_pylist()
        assert (result["count"], result["size"]) == (None, None)
        assert json.loads(result["_extra"]) == {"new": "NA", "Old é": ""}

    @pytest.mark.parametrize("source", [NULLS, NULLS.model_copy(update={"trim": True})])
    def test_null_values_are_null_in_all_columns_with_and_without_quotes(self, source):
        result = read(b'x,y,at\nNA,"NA",%b\n,"",%b\nna,N/A,%b\n' % ((AT.encode(),) * 3), source)
        assert rows_of(result, "x", "y") == [(None, None), (None, None), ("na", "N/A")]

    def test_values_are_trimmed(self):
        source = a_source(trim=True)
        (result,) = read(b" id ,at, count\n  a\xc2\xa0, 2013-03-11T12:00:00Z , NA \n", source).table.to_pylist()
        assert (result["id"], result["count"], result["at"]) == ("a", None, INSTANT)

    def test_numbers_with_separators_are_read(self):
        fields = {
            "at": "timestamp",
            "n": {"type": "int64", "thousands": "'"},
            "x": {"type": "double", "decimal": ",", "thousands": "."},
            "on": {"type": "boolean", "true_values": ["1"], "false_values": ["0"]},
            "day": {"type": "date", "formats": ["%d.%m.%Y"]},
        }
        content = b"at;n;x;on;day\n2013-03-11T12:00:00Z;1'234;-1.234,5;1;11.03.2013\n"
        checked = read(content, a_source(fields=fields), delimiter=";")
        assert rows_of(checked, "n", "x", "on", "day") == [(1234, -1234.5, True, INSTANT.date())]


class TestEncodings:
    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "cp1252", "cp932"])
    def test_every_encoding_is_read(self, encoding):
        string = "é" if encoding != "cp932" else "日本"
        content = f'x,y,at\n{string},"a\n{string}",{AT}\nshort{string}\n'.encode(encoding)
        for chunk_size in (1, 7, 2**20):
            checked = read(content, STRING_SOURCE, encoding=encoding, chunk_size=chunk_size)
            assert rows_of(checked, "x", "y") == [(string, f"a\n{string}")]
            assert [(item.line, item.text) for item in checked.rejected] == [(4, f"short{string}")]

    @pytest.mark.parametrize(
        ("encoding", "bad", "escaped", "reason"),
        [
            ("utf-8", b"l\xe9on", "l\\xe9on", "x: not UTF-8"),
            ("utf-8", b"\xed\xb2\x80", "\\xed\\xb2\\x80", "x: not UTF-8"),
            ("ascii", b"l\xe9on", "l\\xe9on", "x: not ASCII"),
            ("cp1252", b"\x81\x8d", "\\x81\\x8d", "x: not CP1252"),
        ],
    )
    def test_invalid_bytes_reject_only_their_row(self, encoding, bad, escaped, reason):
        row = f",y,{AT}".encode()
        checked = read(b"x,y,at\nb" + row + b"\n" + bad + row + b"\nc" + row + b"\n", STRING_SOURCE, encoding=encoding)
        assert checked.table["x"].to_pylist() == ["b", "c"]
        assert checked.rejected == [RejectedEvent(1, reason, "not_utf8", line=3, text=f"{escaped},y,{AT}")]

    def test_an_incomplete_character_at_the_end_is_rejected(self):
        content = f"x,y,at\na,b,{AT}\n".encode("utf-16-le") + b"c"
        checked = read(content, STRING_SOURCE, encoding="utf-16-le")
        assert checked.table.num_rows == 1
        assert [item.text for item in checked.rejected] == ["\\x63"]

    def test_a_header_with_invalid_bytes_is_an_error(self):
        with pytest.raises(DataError, match=r"^f: its header is not readable"):
            read(b"id,\xe9,at\n")
        with pytest.raises(DataError, match=r"header is not readable: not CP1252: is it text, and is the `encoding`"):
            read(b"id,\x81,at\n", encoding="cp1252")

    @pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "latin-1"])
    @pytest.mark.parametrize("chunk_size", [1, 2**20])
    def test_a_file_with_a_mark_of_utf_8_is_read_as_utf_8(self, encoding, chunk_size):
        content = f"x,y,at\né,a,{AT}\n".encode("utf-8-sig")
        checked = read(content + b"\xe9,a,b\n", STRING_SOURCE, encoding=encoding, chunk_size=chunk_size)
        assert checked.table["x"].to_pylist() == ["é"]
        assert [item.reason for item in checked.rejected] == ["x: not UTF-8"]

    @pytest.mark.parametrize("content", [b"", b"x", b"\xef\xbb"])
    def test_a_file_shorter_than_a_mark_has_its_own_error(self, content):
        with pytest.raises(DataError, match=r"^f: its header lacks|^f: empty"):
            read(content, STRING_SOURCE, encoding="cp1252")


class TestRejectedRows:
    def test_rejected_rows_have_their_index_line_and_original_content(self):
        rows = [
            ROW,
            b'"multi\nline ""x""",1,2,true,2013-03-11,2013-03-11T12:00:00Z',
            b"",
            b"short",
            b"l\xe9on,1,2,true,,2013-03-11T12:00:00Z",
            b"l\xe9on,1",
            b'"x\ny",bad,2,true,,2013-03-11T12:00:00Z',
            ROW,
            b"a,1,2,true,,",
            b"a,1,2,true,,2013-03-11T12:00:00Z,more",
        ]
        checked = read(HEADER + b"\n".join(rows))
        assert checked.table["id"].to_pylist() == ["a", 'multi\nline "x"', "a"]
        assert [(item.index, item.reason) for item in checked.rejected] == [
            (2, "the row has 1 column, but the header has 6"),
            (3, "id: not UTF-8"),
            (4, "the row has 2 columns, but the header has 6"),
            (5, "count: 'bad' is not a whole number"),
            (7, "at: no value, but every event needs a timestamp"),
            (8, "the row has 7 columns, but the header has 6"),
        ]
        assert [(item.line, item.text) for item in checked.rejected] == [
            (6, "short"),
            (7, "l\\xe9on,1,2,true,,2013-03-11T12:00:00Z"),
            (8, "l\\xe9on,1"),
            (9, '"x\ny",bad,2,true,,2013-03-11T12:00:00Z'),
            (12, "a,1,2,true,,"),
            (13, "a,1,2,true,,2013-03-11T12:00:00Z,more"),
        ]

    @pytest.mark.parametrize("unknown", ["keep", "ignore", "reject"])
    def test_rows_of_a_wrong_width_are_not_in_the_table_and_need_no_memory_for_its_columns(self, unknown):
        source, rows = a_source(unknown_fields=unknown), blocks.BLOCK_EVENTS - 1
        content = b"id,at" + b"".join(b",x%d" % number for number in range(200)) + b"\n" + b"a\n" * rows
        tracemalloc.start()
        try:
            (parsed,) = parse_csv(ChunkedStream(content), Csv(), source, name="f")
            assert (len(parsed.events), parsed.row_count, list(parsed.left_out)) == (0, rows, list(range(rows)))
            (checked,) = check_rows([parsed], source, received_at=RECEIVED)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        reason = "the row has 1 column, but the header has 202"
        assert checked.rejections["reason"].unique().to_pylist() == [reason]
        assert checked.rejections["index"].to_pylist() == list(range(rows))
        assert peak < 32 * 2**20

    def test_indexes_count_the_rows_of_a_wrong_width_of_earlier_blocks(self, monkeypatch):
        monkeypatch.setattr(blocks, "BLOCK_EVENTS", 3)
        bad = AT.encode().removesuffix(b"Z")
        content = b"id,at\n" + b"short\na,%s\nb,%s\n" % (AT.encode(), bad) * 5
        rejected = [(item.index, item.line, item.rule, item.text) for item in read(content).rejected]
        assert rejected == [
            one
            for row in range(0, 15, 3)
            for one in [(row, row + 2, "wrong_width", "short"), (row + 2, row + 4, "wrong_type", f"b,{bad.decode()}")]
        ]

    def test_an_unclosed_quote_rejects_the_rest_of_the_file(self):
        checked = read(HEADER + ROW + b'\n"open,1,2\n' + b"%d,x\n" * 5000 % tuple(range(5000)))
        assert checked.table["id"].to_pylist() == ["a"]
        (rejected,) = checked.rejected
        assert rejected.text.startswith('"open,1,2\n0,x')
        assert rejected.text.endswith("4999,x\n")

    def test_an_unclosed_quote_in_a_large_file_is_an_error(self, monkeypatch):
        monkeypatch.setattr(blocks, "MAX_RECORD_BYTES", 10_000)
        with pytest.raises(DataError, match="the row that starts on line 3 has more than 10,000 bytes: is a quote"):
            read(HEADER + ROW + b'\n"open,1,2\n' + b"x" * 30_000, chunk_size=1000)

    def test_an_endless_row_without_quotes_is_an_error(self, monkeypatch):
        monkeypatch.setattr(blocks, "MAX_RECORD_BYTES", 10_000)
        with pytest.raises(DataError, match="more than 10,000 bytes: write each row on one line"):
            read(HEADER + ROW + b"\n" + b"x" * 30_000, chunk_size=1000, quote=None)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "empty: a header"),
            (b"\n\n", "empty: a header"),
            (b"id,count\na,1\n", r"its header lacks at \(it has: id, count\)"),
            (b"at\n2013-03-11T12:00:00Z\n", "its header lacks id"),
            (b"id,at,id\n", "two columns have the same name: id"),
        ],
    )
    def test_a_file_with_an_invalid_header_is_an_error(self, content, message):
        with pytest.raises(DataError, match=f"^f: {message}"):
            read(content)

    def test_a_header_without_the_partner_s_name_of_a_field_is_an_error(self):
        source = a_source(fields={"at": {"type": "timestamp", "from": "When"}})
        with pytest.raises(DataError, match=r"its header lacks When \(it has: at\)"):
            read(b"at\n", source)


_CSV_FORMATS = st.builds(
    Csv,
    delimiter=st.sampled_from([",", ";"]),
    quote=st.sampled_from(['"', "'", None]),
)
_STRINGS = st.text(st.sampled_from("ab,;\"'\n\r é"), max_size=6)


def read_with_python(content: str, csv_format: Csv) -> list[list[str]]:
    """Return the rows that Python's csv module reads."""
    quoted = {"quotechar": csv_format.quote} if csv_format.quote else {"quoting": csv.QUOTE_NONE}
    return [
        row for row in csv.reader(io.StringIO(content, newline=""), delimiter=csv_format.delimiter, **quoted) if row
    ]


@settings(max_examples=300)
@given(content=st.lists(_STRINGS, max_size=12).map("".join), csv_format=_CSV_FORMATS)
@example(content='"a""b"c"d,"\n"\r\n,"open\n', csv_format=Csv())
def test_records_equal_those_of_python_s_csv_module(content, csv_format):
    data, record_format = content.encode(), CsvRecordFormat(csv_format)
    records = [data[start:end].decode() for start, end in record_format.spans(data)]
    assert [read_with_python(record, csv_format) for record in records] == [
        [row] for row in read_with_python(content, csv_format)
    ]
    complete = record_format.complete_length(data)
    assert read_with_python(content, csv_format) == [
        *read_with_python(data[:complete].decode(), csv_format),
        *read_with_python(data[complete:].decode(), csv_format),
    ]
    assert len(list(record_format.spans(data[complete:]))) <= 1


@settings(max_examples=300)
@given(
    rows=st.lists(st.lists(_STRINGS, min_size=1, max_size=4).map(",".join), max_size=8),
    ending=st.sampled_from(["\n", "\r\n", "\r"]),
    chunk_size=st.integers(1, 40),
)
def test_rows_equal_those_of_python_s_csv_module(rows, ending, chunk_size):
    content = ending.join(["x,y,at", *rows, ""])
    expected, lines = read_with_python(content, Csv())[1:], re.findall(r"[^\r\n]*(?:\r\n|\r|\n|$)", content)
    checked = read(content.encode(), STRING_SOURCE, chunk_size=chunk_size)
    indices = {item.index: item for item in checked.rejected}
    assert sorted(indices) == [index for index, row in enumerate(expected) if len(row) != 3 or row[2] != AT]
    for index, item in indices.items():
        assert read_with_python(item.text, Csv()) == [expected[index]]
        assert "".join(lines[item.line - 1 :]).startswith(item.text)
    accepted = [tuple(row[:2]) for index, row in enumerate(expected) if index not in indices]
    assert (rows_of(checked, "x", "y") if checked.table is not None else []) == accepted


_NUMBER_STRINGS = st.text(st.sampled_from("0123456789+-.eExX_ \tinfaNA"), max_size=8)
_NUMBERS = st.one_of(
    _NUMBER_STRINGS,
    st.integers(-(2**65), 2**65).map(str),
    st.floats().map(repr),
    st.integers(0, 99).map(lambda number: f"{'0' * 58}{number}"),
    st.sampled_from(
        ["0x1F", "-0x1F", " 5", "5 ", "+5", "5.0", "-0", "nan", "inf", "1e999", "1.e5", ".5", "-", ".", ""]
    ),
)


@settings(max_examples=300)
@given(strings=st.lists(_NUMBERS, min_size=1, max_size=5), type_=st.sampled_from(["int64", "double"]))
@example(strings=["0" * 59 + "5"], type_="int64")
@example(strings=["0" * 39 + "1"], type_="int64")
@example(strings=["-9223372036854775808", "9223372036854775807"], type_="int64")
def test_cast_numbers_equal_numbers_read_from_strings(strings, type_):
    source = a_source(fields={"at": "timestamp", "n": type_}, null_values=[])
    at = pa.array([AT] * len(strings))
    column = pa.array(strings, pa.string())
    quick = cast_plain_numbers(column, FieldDefinition(type=type_))
    assert check_events(pa.table({"at": at, "n": quick}), source, received_at=RECEIVED) == check_events(
        pa.table({"at": at, "n": column}), source, received_at=RECEIVED
    )
    assert quick is column or not quick.null_count
