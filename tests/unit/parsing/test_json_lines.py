"""Reading a body as one table gives the same result as reading it line by line, or is not attempted."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.receiver.parsing.event_checks import CheckedEvents, check_events
from slackwater.receiver.parsing.json_lines import count_flat_lines, read_flat_lines
from slackwater.receiver.push.body import BatchTooLarge, Body, UnreadableBody
from slackwater.receiver.writing.partitioning import split_by_hour
from slackwater.receiver.writing.raw_writer import encode_parquet
from slackwater.sources.event_schema import partner_schema
from tests.fakes_receiver import RECEIVED, a_source
from tests.pushing import pushed_body

pytestmark = pytest.mark.unit

SOURCES = {
    "plain": a_source(),
    "trimmed": a_source(trim=True, null_values=["", "NA", "-"], event_id="id"),
    "strict": a_source(unknown_fields="reject", null_values=[]),
    "ignoring": a_source(unknown_fields="ignore", timestamp={"field": "at", "timezone": "America/New_York"}),
    "limited": a_source(timestamp={"field": "at", "max_age_days": 3, "max_future_hours": 2}),
    "renamed": a_source(
        fields={
            "id": {"type": "string", "from": "count"},
            "count": {"type": "int64", "from": "id"},
            "size": {"type": "double", "decimal": ",", "thousands": "."},
            "good": {"type": "boolean", "true_values": ["yes"], "required": True},
            "at": {"type": "timestamp", "formats": ["epoch_ms"]},
        }
    ),
}
AT = b'"at":"2013-03-12T09:00:00Z"'


def read(body: bytes, source=SOURCES["plain"], *, as_table: bool = True) -> Sequence[object] | pa.Table:
    return a_body(body).events(partner_schema(source) if as_table else None)


def a_body(body: bytes) -> Body:
    """Return a pushed body whose expanded content is `body`, also if that begins with a byte order mark."""
    pushed = pushed_body(body)
    pushed.__dict__["expanded"] = body
    return pushed


def outcome(body: bytes, source, *, as_table: bool) -> tuple[CheckedEvents, list[str], list[str]] | str:
    """Return the checked events, the Parquet bytes and the original JSON of a body, or the reason of its refusal."""
    try:
        events = read(body, source, as_table=as_table)
    except UnreadableBody as error:
        return str(error)
    checked = check_events(events, source, received_at=RECEIVED)
    texts, lines = a_body(body).originals(range(len(events)))
    assert lines.to_pylist() == [
        number for number, line in enumerate(body.split(b"\n"), start=1) if line.strip(b" \t\r\n")
    ]
    return (
        checked,
        [encode_parquet(part) for _, part in split_by_hour(checked.table).runs()],
        texts.to_pylist(),
    )


def assert_readers_agree(body: bytes, source) -> None:
    result, expected = (outcome(body, source, as_table=as_table) for as_table in (True, False))
    if isinstance(expected, str):
        assert result == expected
    else:
        assert result[0].table.equals(expected[0].table)
        assert result[0].rejected == expected[0].rejected
        assert result[1:] == expected[1:]


FLAT_BODIES = [
    b'{"id":"a",' + AT + b"}",
    b'{"id":"a",' + AT + b"}\n",
    b"{}\n{}",
    b'{ "id" : "a",\t"count": -1 ,"size":-0.0,"good" :false}\n{"size":5,"good":null}\n',
    b'{"id":"\xc3\xa9 \\ud83d\\ude00 \\u0000 \\"\\\\ \\n","day":"2013-03-12"}',
    b'{"id":"a"\r}\n{\r"id":"b"}',
    b'{"\\u0069d":"a"}',
    b'{"count":9223372036854775807}\n{"count":-9223372036854775808}\n{"count":-0}',
    b'{"size":1E5}\n{"size":5e-324}\n{"size":123456789012345678901234567890}\n{"size":-1e-400}',
]


@pytest.mark.parametrize("body", FLAT_BODIES)
def test_bodies_of_flat_objects_are_read_as_a_table(body):
    assert isinstance(read(body), pa.Table)
    assert_readers_agree(body, SOURCES["plain"])


OTHER_BODIES = [
    # not exactly one object per line
    b'{"id":"a"}\n\n{"id":"b"}',
    b'{"id":"a"}\r\n{"id":"b"}',
    b'\n{"id":"a"}',
    b'{"id":"a"}\n\n',
    b'{"id":"a"}{"id":"b"}',
    b'{"id":"a"} {"id":"b"}\n{"id":"c"}',
    b'{"id":"a"},\n{"id":"b"}',
    b'{"id":\n"a"}',
    b'{"id":"a"\n}',
    b'\xef\xbb\xbf\xef\xbb\xbf{"id":"a"}',
    b'{"id":"}\n{"}',
    # not a flat object
    b'{"id":"a"}\nnull',
    b'null\n{"id":"a"}',
    b'{"id":"a"} null\n{"id":"b"}',
    b'null{"id":"a"}\n{"id":"b"}',
    b'{"id":"a"}null{"id":"b"}\n{"id":"c"}',
    b'{"id":"a"}\n[1]',
    b'{"id":"a"}\n7',
    b'{"id":{}}',
    b'{"id":[1]}',
    b'{"id":{"id":"a"}}\n{"id":"b"}',
    b'{"id":"{}"}',
    b'{"new":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n{}",
    # fields or types that the schema does not have
    b'{"new":1}',
    b'{"":1}',
    b'{"id":5}',
    b'{"count":"5"}',
    b'{"count":5.0}',
    b'{"count":1e3}',
    b'{"count":9223372036854775808}',
    b'{"size":"1.5"}',
    b'{"good":1}',
    b'{"good":"true"}',
    b'{"id":"a","id":"b"}',
    b'{"id":"a","id":null}',
    # values that JSON parsers read differently or refuse
    b'{"size":NaN}',
    b'{"size":-Infinity}\n{"size":1}',
    b'{"size":1e400}',
    b'{"size":' + b"9" * 400 + b"}",
    b'{"size":-0}',
    b'{"size":\t-0 ,"id":"a"}',
    b'{"id":"\\ud800"}',
    b'{"id":"\\udc00"}',
    b'{"id":"\xff"}',
    b'{"id":"\xed\xa0\x80"}',
    b'{"id":"a\tb"}',
    b'{"id":"a\x00b"}',
    b'{"id":"a"}\x00\n{"id":"b"}',
    b'{"id":"a",}',
    b'{"id":"a"/**/}',
    b'{"count":01}\n{"count":1}',
    b"{'id':'a'}\n{}",
    b'{"id":"a"',
    b'{"id":"a"}}\n{}',
    b"{\n}",
    b"}\n{",
]


@pytest.mark.parametrize("body", OTHER_BODIES, ids=range(len(OTHER_BODIES)))
def test_all_other_bodies_are_read_line_by_line(body):
    assert not (count_flat_lines(body) and read_flat_lines(body, partner_schema(SOURCES["plain"])))
    assert_readers_agree(body, SOURCES["plain"])


@pytest.mark.parametrize(
    "body", [b"null", b'{"id":"a"} null', b'null {"id":"a"}', b"{}null", b"{} null {}\n{}", b"{}\nnull\n{}"]
)
def test_a_null_beside_an_object_is_never_passed_to_arrow(body):
    """Arrow would crash the process."""
    assert count_flat_lines(body) == 0


def test_a_body_with_too_many_lines_is_refused_before_it_is_parsed(monkeypatch):
    monkeypatch.setattr("slackwater.receiver.parsing.json_lines.read_flat_lines", None)
    with pytest.raises(BatchTooLarge, match="more than 10,000 events"):
        read(b"{}\n" * 10_001)


def test_ten_thousand_lines_keep_their_indexes():
    lines = [json.dumps({"id": f"{n}", "count": n}) for n in range(10_000)]
    batch = a_body("\n".join(lines).encode())
    assert read(batch.content)["count"].to_pylist() == list(range(10_000))
    texts, numbers = batch.originals([0, 9_999])
    assert (texts.to_pylist(), numbers.to_pylist()) == ([lines[0], lines[9_999]], [1, 10_000])


_USUAL = {
    "id": ['"a"', '""', '"NA"', '" x "', '"\\u00e9"', '"\\ud83d\\ude00"', '"\u2028\u00e9"', '"\x7f"', "null", "7"],
    "count": ["0", "-0", "12", "9223372036854775807", "-9223372036854775808", "null"],
    "size": ["0", "-0.0", "-0", "1.5", "1E+005", "1e-400", "5e-324", "123456789012345678901", "null"],
    "good": ["true", "false", "null"],
    "day": ['"2013-03-12"', '"2013-02-30"', '"NA"', "null"],
    "at": ['"2013-03-12T09:00:00Z"', '"2013-03-08T12:00:00-05:00"', '"2013-03-12T12:00:00"', '"-"', "1363080600000"],
}
_ODD = [
    *('"5"', "5.0", "1e3", "1e400", "9223372036854775808", "NaN", "-Infinity", "tru", "01", "1.", "{}", "[1]", '"yes"'),
    *('"\\ud800"', '"\\udc00"', '"a\tb"', '"\\x"', '"}\\n{"', '"}\n{"', "", "1 //", "9" * 400, '"1.234,5"'),
]
_fields = st.sampled_from(list(_USUAL)).flatmap(
    lambda name: st.tuples(st.just(f'"{name}"'), st.sampled_from(_USUAL[name]))
)
_odd_fields = st.tuples(
    st.sampled_from(['"id"', '"size"', '"count"', '"new"', '"\\u0069d"', '""']), st.sampled_from(_ODD)
)
_blanks = st.sampled_from(["", "", "", " ", "\t", "\r"])


def _json_object(fields: list[tuple[str, str]], blank: str) -> str:
    return "{" + ",".join(f"{blank}{name}:{blank}{value}" for name, value in fields) + blank + "}"


_usual = st.builds(_json_object, st.lists(_fields, max_size=5, unique_by=lambda field: field[0]), _blanks)
_odd = st.one_of(
    st.builds(_json_object, st.lists(st.one_of(_fields, _odd_fields), max_size=4), _blanks),
    st.sampled_from(["null", "7", "", " ", "[]", "{", "}", "{}{}", "{} null", "null{}", "{},", "\x00", "\ufeff{}"]),
)
_bodies = st.builds(
    lambda lines, end, last: end.join(lines).encode() + last,
    st.one_of(st.lists(_usual, min_size=1, max_size=5), st.lists(st.one_of(_usual, _usual, _odd), max_size=5)),
    st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", " \n"]),
    st.sampled_from([b"", b"\n", b"\n", b"\r\n", b"\xff", b"\xc3\n"]),
)


@given(body=_bodies, name=st.sampled_from(list(SOURCES)))
def test_both_readers_give_the_same_result(body, name):
    assert_readers_agree(body, SOURCES[name])


@given(
    body=_bodies,
    index=st.integers(0, 400),
    inserted=st.sampled_from([b"", b"null", b"}", b"{", b'"', b"\n", b",", b"\\", b"\x00", b"\xff", b" ", b"-"]),
    deleted=st.integers(0, 3),
)
def test_both_readers_give_the_same_result_for_a_damaged_body(body, index, inserted, deleted):
    index = min(index, len(body))
    assert_readers_agree(body[:index] + inserted + body[index + deleted :], SOURCES["plain"])
