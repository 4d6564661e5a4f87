"""Reading a body at once gives what reading it line by line gives, or is not done."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.receiver.parsing.event_checks import CheckedEvents, check_events
from slackwater.receiver.parsing.json_lines import count_flat_lines, read_flat_lines
from slackwater.receiver.push.batch import Batch, BatchTooLarge, Limits, UnreadableBody, decode
from slackwater.receiver.writing.partitioning import encode_parquet, split_by_hour
from slackwater.sources.event_schema import partner_schema
from tests.fakes_receiver import RECEIVED, a_source

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


def read(body: bytes, source=SOURCES["plain"], *, at_once: bool = True) -> Batch:
    return decode(
        body,
        content_type="application/x-ndjson",
        content_encoding=None,
        limits=Limits(),
        schema=partner_schema(source) if at_once else None,
    )


def outcome(body: bytes, source, *, at_once: bool) -> tuple[CheckedEvents, list[str], list[str]] | str:
    """Return all that a body comes to: what is accepted, to the bit, and what is rejected, or why it is refused."""
    try:
        batch = read(body, source, at_once=at_once)
    except UnreadableBody as error:
        return str(error)
    checked = check_events(batch.events, source, received_at=RECEIVED)
    places = range(len(batch.events))
    assert [batch.lines[place] for place in places] == list(batch.lines)
    return (
        checked,
        [encode_parquet(part.table) for part in split_by_hour(checked.table).parts()],
        batch.original_json(list(places)),
    )


def agree(body: bytes, source) -> None:
    found, expected = (outcome(body, source, at_once=at_once) for at_once in (True, False))
    if isinstance(expected, str):
        assert found == expected
    else:
        assert found[0].table.equals(expected[0].table)
        assert found[0].rejected == expected[0].rejected
        assert found[1:] == expected[1:]


WHOLE = [
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


@pytest.mark.parametrize("body", WHOLE)
def test_bodies_that_are_read_at_once(body):
    assert isinstance(read(body).events, pa.Table)
    agree(body, SOURCES["plain"])


PARTLY = [
    # what is no line of its own
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
    # what is no flat object
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
    # what is no event as it is expected
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
    # what others do not take for the same, or at all
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


@pytest.mark.parametrize("body", PARTLY, ids=range(len(PARTLY)))
def test_bodies_that_are_left_to_the_reader_of_lines(body):
    assert not (count_flat_lines(body) and read_flat_lines(body, partner_schema(SOURCES["plain"])))
    agree(body, SOURCES["plain"])


@pytest.mark.parametrize(
    "body", [b"null", b'{"id":"a"} null', b'null {"id":"a"}', b"{}null", b"{} null {}\n{}", b"{}\nnull\n{}"]
)
def test_arrow_never_sees_a_null_beside_an_object(body):
    """It would end the process."""
    assert count_flat_lines(body) == 0


def test_too_many_lines_are_not_even_read(monkeypatch):
    monkeypatch.setattr("slackwater.receiver.parsing.json_lines.read_flat_lines", None)
    with pytest.raises(BatchTooLarge, match="more than 10,000 events"):
        read(b"{}\n" * 10_001)


def test_ten_thousand_lines_keep_their_places():
    lines = [json.dumps({"id": f"{n}", "count": n}) for n in range(10_000)]
    batch = read("\n".join(lines).encode())
    assert batch.events["count"].to_pylist() == list(range(10_000))
    assert batch.original_json([0, 9_999]) == [lines[0], lines[9_999]]


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


def _written(fields: list[tuple[str, str]], blank: str) -> str:
    return "{" + ",".join(f"{blank}{name}:{blank}{value}" for name, value in fields) + blank + "}"


_usual = st.builds(_written, st.lists(_fields, max_size=5, unique_by=lambda field: field[0]), _blanks)
_odd = st.one_of(
    st.builds(_written, st.lists(st.one_of(_fields, _odd_fields), max_size=4), _blanks),
    st.sampled_from(["null", "7", "", " ", "[]", "{", "}", "{}{}", "{} null", "null{}", "{},", "\x00", "\ufeff{}"]),
)
_bodies = st.builds(
    lambda lines, end, last: end.join(lines).encode() + last,
    st.one_of(st.lists(_usual, min_size=1, max_size=5), st.lists(st.one_of(_usual, _usual, _odd), max_size=5)),
    st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", " \n"]),
    st.sampled_from([b"", b"\n", b"\n", b"\r\n", b"\xff", b"\xc3\n"]),
)


@settings(deadline=None, max_examples=100)
@given(body=_bodies, name=st.sampled_from(list(SOURCES)))
def test_both_readers_agree(body, name):
    agree(body, SOURCES[name])


@settings(deadline=None, max_examples=60)
@given(
    body=_bodies,
    place=st.integers(0, 400),
    piece=st.sampled_from([b"", b"null", b"}", b"{", b'"', b"\n", b",", b"\\", b"\x00", b"\xff", b" ", b"-"]),
    cut=st.integers(0, 3),
)
def test_both_readers_agree_on_what_was_damaged(body, place, piece, cut):
    place = min(place, len(body))
    agree(body[:place] + piece + body[place + cut :], SOURCES["plain"])
