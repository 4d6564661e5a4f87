from __future__ import annotations

import io
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import DataError
from slackwater.receiver.formats import json_file
from slackwater.receiver.formats.json_file import parse_json_array
from slackwater.receiver.formats.read import check_rows
from slackwater.receiver.parsing.event_checks import CheckedEvents, check_events
from slackwater.sources.definition import Source
from tests.fakes_receiver import RECEIVED, a_source

pytestmark = pytest.mark.unit

AT = "2013-03-08T12:00:00Z"
SOURCE = a_source()


def read(content: str | bytes, source: Source = SOURCE) -> list[CheckedEvents]:
    raw = content.encode() if isinstance(content, str) else content
    return list(check_rows(parse_json_array(io.BytesIO(raw), name="things.json"), source, received_at=RECEIVED))


def accepted(result: Sequence[CheckedEvents]) -> list[dict[str, object]]:
    return [row for block in result for row in block.table.to_pylist()]


def rejected(result: Sequence[CheckedEvents]) -> list[tuple[int, str, str | None]]:
    return [(item.index, str(item.rule), item.text) for block in result for item in block.rejected]


@pytest.mark.parametrize("content", ["[]", " [ \n] \n", "\ufeff[]"])
def test_an_empty_array_has_no_events(content):
    assert read(content) == []


def test_rejected_elements_keep_their_original_json():
    strings = [
        '{"id": "a",\n "at": "2013-03-08T12:00:00Z"}',
        "null",
        '"],[{"',
        '{"id": "b", "at": "2013-03-08T12:00:00Z", "count": 9223372036854775808}',
        '{"id": "c", "at": "2013-03-08T12:00:00Z", "size": NaN}',
        '{"id": "\\ud800", "at": "2013-03-08T12:00:00Z"}',
        '{"at"  : "2013-03-08T12:00:00Z"}',
        '{"id": "ü"}',
        "-1.5e+3",
    ]
    result = read("[" + " ,\r\n\t".join(strings) + "]")
    assert [row["id"] for row in accepted(result)] == ["a"]
    rules = ["not_an_object", "not_an_object", "wrong_type", "wrong_type", "wrong_type", "missing", "missing"]
    rules.append("not_an_object")
    assert rejected(result) == [(index, rules[index - 1], strings[index]) for index in range(1, len(strings))]
    assert all(item.line is None for block in result for item in block.rejected)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "a JSON array is expected"),
        (b'{"id": "a"}', "a JSON array is expected"),
        (b'{"id": "a"}\n{"id": "b"}\n', "set the format to ndjson"),
        (b"[", "not JSON: Expecting value"),
        (b"[1", "a comma or the end of the array"),
        (b"[1,]", "not JSON: Expecting value"),
        (b"[1 2]", "a comma or the end of the array"),
        (b"[1.5.2]", "a comma or the end of the array"),
        (b'[{"id": "a]', "not JSON: Unterminated string"),
        (b"[{'id': 1}]", "not JSON: Expecting property name"),
        (b"[1] [2]", "there is text after the array"),
        (b'["\xff"]', "not UTF-8"),
        (b'["\xc3', "not UTF-8"),
        pytest.param(b"[" * 100_000, "not JSON: nested too deeply", id="deep"),
        pytest.param(
            b"[" + b"1" * 5_000 + b", 2]",
            r"not JSON: it contains a number of thousands of digits \(about character 1\)",
            id="digits",
        ),
    ],
)
@pytest.mark.parametrize("block", [1, 2**21])
@pytest.mark.usefixtures("recursion_limit")
def test_files_that_are_not_an_array_are_errors(monkeypatch, content, reason, block):
    monkeypatch.setattr(json_file, "BLOCK_BYTES", block)
    with pytest.raises(DataError, match=rf"^things\.json: .*{reason}"):
        read(content)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ('{"id": "' + "x" * 500 + '"}', "Unterminated string starting at, {} (about character 36)"),
        ('{"id": "x", y"}', "Expecting property name enclosed in double quotes, {} (about character 41)"),
        ("0." + "1" * 500, "a number without an end, {} (about character 29)"),
    ],
)
def test_an_event_above_the_size_limit_is_an_error(monkeypatch, bad, problem):
    monkeypatch.setattr(json_file, "BLOCK_BYTES", 16)
    monkeypatch.setattr(json_file, "MAX_RECORD_BYTES", 200)
    stream = io.BytesIO(b"[" + b" " * 20 + b'"first",' + bad.encode() + b" " * 10_000 + b"]")
    with pytest.raises(DataError) as raised:
        list(parse_json_array(stream, name="things.json"))
    problem = problem.format("or a value of more than 200 characters")
    assert str(raised.value) == f"things.json: not JSON: {problem}"
    assert stream.tell() < 1000


NUMBERS = st.integers(-(10**25), 10**25) | st.floats() | st.sampled_from([1e100, 1.5e-7])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
EVENTS = st.fixed_dictionaries({"id": st.text(max_size=3), "at": st.sampled_from([AT, None])}, optional={"x": VALUES})


@given(st.lists(EVENTS | VALUES, max_size=8), st.integers(1, 40), st.booleans(), st.sampled_from([None, 1]))
def test_blocks_give_the_same_result_as_the_whole_file(values, size, ascii_only, indent):
    content = json.dumps(values, ensure_ascii=ascii_only, indent=indent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_file, "BLOCK_BYTES", size)
        result = read(content.encode(errors="surrogatepass"))
    whole = check_events(json.loads(content), SOURCE, received_at=RECEIVED)
    assert accepted(result) == whole.table.to_pylist()
    indices = [(item.index, item.reason, item.rule) for block in result for item in block.rejected]
    assert indices == [(item.index, item.reason, item.rule) for item in whole.rejected]
    for item in (item for block in result for item in block.rejected):
        assert repr(json.loads(item.text or "")) == repr(values[item.index])
