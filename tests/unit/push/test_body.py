from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.receiver.parsing.rejections import NOT_UTF8, Rejection, RejectionRule
from slackwater.receiver.push.body import BatchTooLarge, Body, Limits, UnreadableBody, UnsupportedMedia
from tests.pushing import pushed_body

pytestmark = pytest.mark.unit

JSON, NDJSON = "application/json", "application/x-ndjson"


def zstd(body: bytes) -> bytes:
    return pa.compress(body, codec="zstd", asbytes=True)


def gzipped(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


PACK = {"gzip": gzipped, "zstd": zstd}


def a_body(body: bytes, content_type: str | None = NDJSON, encoding: str | None = None, **limits: int) -> Body:
    return pushed_body(body, content_type, encoding, Limits(**limits))


def read(body: bytes, content_type: str | None = NDJSON, encoding: str | None = None, **limits: int):
    """Return the raw events of a body, identified first as the receiver does."""
    pushed = a_body(body, content_type, encoding, **limits)
    assert pushed.batch_id
    return pushed.events()


@pytest.mark.parametrize(
    ("body", "content_type", "events"),
    [
        (b'{"a":1}', NDJSON, [{"a": 1}]),
        (b'{"a":1}\n', NDJSON, [{"a": 1}]),
        (b'{"a":1}\r\n{"a":2}\r\n', NDJSON, [{"a": 1}, {"a": 2}]),
        (b'\n\n{"a":1}\n  \t\n{"a":2}\n\n', NDJSON, [{"a": 1}, {"a": 2}]),
        (b'\xef\xbb\xbf{"a":1}', NDJSON, [{"a": 1}]),
        (b'\xef\xbb\xbf[{"a":1}]', JSON, [{"a": 1}]),
        (b"[]", JSON, []),
        (b" [ ] \n", "application/json; charset=UTF-8", []),
        (b'[{"a":1},\n 2, null]', JSON, [{"a": 1}, 2, None]),
        ('{"a":"d\u00e9j\u00e0 \u2028 \U0001f30a"}'.encode(), NDJSON, [{"a": "d\u00e9j\u00e0 \u2028 \U0001f30a"}]),
        (b'{"a":1,"a":2}', NDJSON, [{"a": 2}]),
        (b'{"a":1}', "Application/X-NDJSON; charset=utf-8", [{"a": 1}]),
    ],
)
def test_valid_bodies_are_read(body, content_type, events):
    assert list(read(body, content_type)) == events


@pytest.mark.parametrize(
    ("body", "content_type", "says"),
    [
        (b"", NDJSON, "empty"),
        (b"", JSON, "empty"),
        (b" \r\n\n", NDJSON, "empty"),
        (b"\xef\xbb\xbf", NDJSON, "empty"),
        (b"hello\nworld\n", NDJSON, "no line of the body is JSON"),
        (b'{"a":1}', JSON, "array of events is expected, not dict"),
        (b'{"a":1}\n{"a":2}\n', JSON, "NDJSON is sent as application/x-ndjson"),
        (b'[{"a":1}', JSON, "not JSON: "),
        (b"[\xff]", JSON, "not UTF-8"),
        (b"\xff\xfe[\x00]\x00", JSON, "not UTF-8"),
        (b"[" * 100_000, JSON, "nested too deeply"),
        (b"[" + b"9" * 5000 + b"]", JSON, "thousands of digits"),
    ],
)
def test_invalid_bodies_are_refused(body, content_type, says):
    with pytest.raises(UnreadableBody, match=says):
        read(body, content_type)


def test_an_invalid_line_does_not_affect_others():
    body = b'{"a":1}\n{"a":\n\n{"a":"\xff"}\n[1\n2]\n{"a":3},{"a":4}\n{"a":5}'
    batch = a_body(body)
    events = batch.events()
    assert [event for event in events if not isinstance(event, Rejection)] == [{"a": 1}, {"a": 5}]
    assert isinstance(events[2], Rejection)
    assert events[2].reason == "not UTF-8"
    texts, lines = batch.originals(range(7))
    assert lines.to_pylist() == [1, 2, 4, 5, 6, 7, 8]
    assert texts.take([1, 2, 5]).to_pylist() == ['{"a":', '{"a":"\\xff"}', '{"a":3},{"a":4}']


def test_lines_that_are_only_json_together_are_invalid():
    # Joined with commas these three lines are three values, too.
    events = read(b'{"a":1},{"a":2}\n{"a":[1\n2]}\n{"ok":true}')
    assert [isinstance(event, Rejection) for event in events] == [True, True, True, False]


def elements(batch: Body, indexes: Sequence[int]) -> list[str]:
    """Return the original JSON of elements of an array, which have no lines."""
    texts, lines = batch.originals(indexes)
    assert lines is None
    return texts.to_pylist()


def test_original_json_of_an_array_is_unchanged():
    batch = a_body(b'[ {"a" : 1.10},  "x, [\\"y",\n[1, 2]\t, -3e5 ,null]', JSON)
    assert elements(batch, [0, 1, 2, 3, 4]) == ['{"a" : 1.10}', '"x, [\\"y"', "[1, 2]", "-3e5", "null"]
    assert elements(batch, [1, 3]) == ['"x, [\\"y"', "-3e5"]
    assert elements(batch, []) == []


@given(
    st.lists(
        st.recursive(
            st.one_of(
                st.none(), st.integers(), st.floats(allow_nan=False), st.text(alphabet='a"\\\\,[]{} \u00e9\u2028')
            ),
            lambda values: st.one_of(st.lists(values, max_size=3), st.dictionaries(st.text(max_size=3), values)),
            max_leaves=6,
        ),
        max_size=6,
    ),
    st.sampled_from([None, 0, 3]),
)
def test_original_json_of_an_array_has_its_elements(values, indent):
    batch = a_body(json.dumps(values, indent=indent, ensure_ascii=False).encode(), JSON)
    strings = elements(batch, range(len(values)))
    assert repr([json.loads(string) for string in strings]) == repr(values)
    assert all(string == string.strip() for string in strings)


@pytest.mark.parametrize("depth", [100, 980, 1000, 1020])
def test_original_json_of_deeply_nested_elements_is_unchanged(depth):
    """orjson parses deeper values than the standard library."""
    deep = "[" * depth + '"],"' + "]" * depth
    assert elements(a_body(f"[1, {deep},2]".encode(), JSON), [1, 2]) == [deep, "2"]


@pytest.mark.parametrize("content_type", [None, "", "text/csv", "application/xml", "text/plain; charset=utf-8"])
def test_unsupported_media_types_are_refused(content_type):
    with pytest.raises(UnsupportedMedia, match="application/x-ndjson"):
        read(b"[]", content_type)


@pytest.mark.parametrize("charset", ["latin-1", '"utf-16"', "utf-8; charset=utf-7"])
def test_unsupported_charsets_are_refused(charset):
    with pytest.raises(UnsupportedMedia, match=r"charset '(latin-1|utf-16|utf-7)': send UTF-8"):
        read(b"[]", f"application/json; charset={charset}")


@pytest.mark.parametrize(
    "parameters",
    [
        "; charset=utf-8",
        ';charset="UTF-8"',
        "; charset=us-ascii ;",
        ";;",
        "; profile=https://x.example/1; charset=utf8",
    ],
)
def test_parameters_of_a_media_type_are_parsed(parameters):
    assert read(b"[1]", JSON + parameters) == [1]


@pytest.mark.parametrize(
    "parameters",
    [
        "; charset",
        "; charset=",
        '; charset="utf-8',
        "; charset = utf-8",
        "; charset*=utf-8''x",
        "; charset*0=utf-8; charset*=x",
        pytest.param("; charset*" + "1" * 5000 + "=x", id="long number"),
        '; charset=;;"',
        "; \ud800=1",
        "; charset=utf-8\x00",
    ],
)
def test_malformed_parameters_are_refused(parameters):
    with pytest.raises(UnsupportedMedia, match="is not a parameter: send application/json alone"):
        read(b"[1]", JSON + parameters)


@given(st.text(), st.text(alphabet='; ="*charset=utf-8\\\n'), st.text())
def test_any_headers_are_accepted_or_refused(parameters, likely, encoding):
    for content_type, content_encoding in (
        (parameters, None),
        (f"{JSON};{parameters}", None),
        (f"{JSON};{likely}", None),
        (JSON, encoding),
    ):
        try:
            assert read(b"[1]", content_type, content_encoding) == [1]
        except UnsupportedMedia as refused:
            assert str(refused)  # noqa: PT017 - either is right


@pytest.mark.parametrize("encoding", [None, "", "identity", "GZIP", " gzip ", "x-gzip", "zstd", "Zstd"])
def test_compressed_bodies_are_expanded(encoding):
    body = b'{"a":1}\n'
    name = (encoding or "identity").strip().lower().removeprefix("x-")
    compressed = PACK[name](body) if name in PACK else body
    assert list(read(compressed, NDJSON, encoding)) == [{"a": 1}]


@pytest.mark.parametrize("encoding", ["br", "compress", "gzip, zstd", "utf-8"])
def test_unsupported_encodings_are_refused(encoding):
    with pytest.raises(UnsupportedMedia, match=f"'{encoding}': send gzip or deflate, or no encoding"):
        read(b"[]", JSON, encoding)


@pytest.mark.parametrize("encoding", PACK)
def test_several_compressed_members_or_frames_are_one_body(encoding):
    pack = PACK[encoding]
    body = pack(b'{"a":1}\n{"a"') + pack(b"") + pack(b":2}\n")
    assert list(read(body, NDJSON, encoding)) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize("cut", [1, 3, 9])
def test_a_truncated_body_is_refused(encoding, cut):
    whole = PACK[encoding](b'{"a":1}\n')
    for body in (whole[:-cut], whole + whole[:-cut], whole + whole[:cut]):
        with pytest.raises(UnreadableBody, match=f"not valid {encoding}: Truncated"):
            read(body, NDJSON, encoding)


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize("spoil", [lambda whole: b"plain", lambda whole: whole + b"tail", lambda whole: whole + b"\0"])
def test_a_body_without_the_compression_in_its_header_is_refused(encoding, spoil):
    with pytest.raises(UnreadableBody, match=f"not valid {encoding}: "):
        read(spoil(PACK[encoding](b"[1]")), JSON, encoding)


def test_corrupt_gzip_is_refused():
    body = bytearray(gzipped(b'{"a":1}\n'))
    body[-6] ^= 1  # of its checksum
    with pytest.raises(UnreadableBody, match="incorrect data check"):
        read(bytes(body), NDJSON, "gzip")


@pytest.mark.parametrize("encoding", PACK)
def test_a_compressed_empty_body_is_empty(encoding):
    for body in (b"", PACK[encoding](b""), PACK[encoding](b" \n")):
        with pytest.raises(UnreadableBody, match="the body is empty"):
            read(body, NDJSON, encoding)


@pytest.mark.parametrize("encoding", PACK)
def test_a_compression_bomb_is_not_expanded(encoding):
    bomb = PACK[encoding](b" " * 50_000_000)
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLarge, match="expands to more than 1,000 bytes"):
            read(bomb, JSON, encoding, expanded_bytes=1000)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("encoding", PACK)
def test_many_small_frames_are_expanded_completely(encoding):
    body = PACK[encoding](b"[1,") + PACK[encoding](b" " * 200_000) * 10 + PACK[encoding](b"2]")
    assert list(read(body, JSON, encoding)) == [1, 2]


def test_a_body_above_a_limit_is_refused():
    assert len(read(b"[1,2,3]", JSON, events=3)) == 3
    assert len(read(b"1\n\n2\n\n3\n\n", events=3)) == 3
    for body, content_type in ((b"[1,2,3,4]", JSON), (b"1\n2\n3\n4", NDJSON)):
        with pytest.raises(BatchTooLarge, match="more than 3 events"):
            read(body, content_type, events=3)
    assert read(b"[1,2,3]", JSON, body_bytes=7)
    with pytest.raises(BatchTooLarge, match="has 8 bytes, the limit is 7: split the batch"):
        read(b"[1,2,3] ", JSON, body_bytes=7)
    for encoding, pack in PACK.items():
        assert read(pack(b"[1,2,3]"), JSON, encoding, expanded_bytes=7)
        with pytest.raises(BatchTooLarge, match="expands to more than 7 bytes"):
            read(pack(b"[1,2,3] "), JSON, encoding, expanded_bytes=7)


@pytest.mark.parametrize(("content_type", "separator"), [(JSON, b","), (NDJSON, b"\n")])
def test_nested_values_are_counted_before_parsing(content_type, separator):
    """Parsed values take a hundred times as much memory as their bytes in the body."""
    frame = (b"[", b"]") if content_type == JSON else (b"", b"")
    items = [b'{"a":[]}'] * 3
    body = separator.join(items).join(frame)
    max_values = body.count(b"{") + body.count(b"[")
    assert len(read(body, content_type, nested_values=max_values)) == 3
    with pytest.raises(
        BatchTooLarge,
        match=rf"has {max_values} opening brackets \({{ and \[\), the limit is {max_values - 1}: split the batch",
    ):
        read(body, content_type, nested_values=max_values - 1)


def test_a_bomb_of_empty_objects_is_never_parsed():
    bomb = gzipped(b"[" + b"{}," * 2_000_000 + b"{}]")
    assert len(bomb) < 10_000
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLarge, match=r"has 2,000,002 opening brackets \(\{ and"):
            read(bomb, JSON, "gzip")
        assert tracemalloc.get_traced_memory()[1] < 40_000_000  # parsed they would take 140 MB
    finally:
        tracemalloc.stop()


def test_the_batch_id_depends_on_the_body():
    batch_id = a_body(b'{"a":1}')
    assert batch_id.batch_id == a_body(b'{"a":1}').batch_id
    assert batch_id.batch_id != a_body(b'{"a":1}\n').batch_id
    assert len(batch_id.batch_id) == 32


@pytest.mark.parametrize(
    "string",
    [
        "[9223372036854775808, -9223372036854775809, 18446744073709551616, 123456789012345678901234567890]",
        "[9223372036854775807, -9223372036854775808, -0, -0.0, 0.10000000000000000000001]",
        '["\\ud800", "\\udc00\\ud800", "\\ud83d\\ude00"]',
        "[1e400, -1e400, 1e-400, 5e-324, 1.7976931348623157e308]",
        "[[[[{}]]]]",
    ],
)
def test_values_equal_those_of_the_standard_library(string):
    expected = repr(json.loads(string))
    assert repr(list(read(string.encode(), JSON))) == expected
    assert repr(list(read(string.encode(), NDJSON))) == f"[{expected}]"


def test_nan_and_infinity_are_read_and_rejected_later():
    nan, infinity = read(b"NaN\n-Infinity")
    assert nan != nan  # noqa: PLR0124 - not a number
    assert infinity == float("-inf")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a":1,}', "not JSON: Expecting property name enclosed in double quotes at column 8"),
        (b"  tru", "not JSON: Expecting value at column 3"),
        (b'{"a":1} \r', None),
        (b"\xef\xbb\xbf1", "not JSON: Unexpected UTF-8 BOM (decode using utf-8-sig) at column 1"),
        (b'"a\tb"', "not JSON: Invalid control character at at column 3"),
        (b"1 // one", "not JSON: Extra data at column 3"),
        (b'"\xc3"', "not UTF-8"),
        (b"[" * 100_000, "not JSON: nested too deeply"),
        (b"9" * 5000, "not JSON: it contains a number of thousands of digits"),
    ],
)
def test_invalid_lines_have_a_reason(line, reason):
    first, second = read(b"1\n" + line + b"\n")
    assert first == 1
    invalid = NOT_UTF8 if reason == "not UTF-8" else Rejection(RejectionRule.NOT_JSON, reason)
    assert second == (invalid if reason else {"a": 1})
