from __future__ import annotations

import gzip
import json
import zlib

import pytest

from slackwater.receiver.batch import Limits, TooLarge, Unparsed, UnreadableBody, UnsupportedMedia, decode

pytestmark = pytest.mark.unit

JSON, NDJSON = "application/json", "application/x-ndjson"


def read(body: bytes, content_type: str | None = NDJSON, encoding: str | None = None, **limits: int):
    return decode(body, content_type=content_type, content_encoding=encoding, limits=Limits(**limits))


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
def test_bodies_that_are_read(body, content_type, events):
    assert list(read(body, content_type).events) == events


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
def test_bodies_that_are_refused_whole(body, content_type, says):
    with pytest.raises(UnreadableBody, match=says):
        read(body, content_type)


def test_a_broken_line_spoils_no_other():
    body = b'{"a":1}\n{"a":\n\n{"a":"\xff"}\n[1\n2]\n{"a":3},{"a":4}\n{"a":5}'
    batch = read(body)
    assert [event for event in batch.events if not isinstance(event, Unparsed)] == [{"a": 1}, {"a": 5}]
    assert list(batch.lines or []) == [1, 2, 4, 5, 6, 7, 8]
    assert isinstance(batch.events[2], Unparsed)
    assert batch.events[2].reason == "not UTF-8"
    assert batch.texts([1, 2, 5]) == ['{"a":', '{"a":"\\xff"}', '{"a":3},{"a":4}']


def test_lines_that_only_together_make_json_are_broken_lines():
    # Joined with commas these three lines are three values, too.
    batch = read(b'{"a":1},{"a":2}\n{"a":[1\n2]}\n{"ok":true}')
    assert [isinstance(event, Unparsed) for event in batch.events] == [True, True, True, False]


def test_texts_of_an_array_are_as_they_were_sent():
    batch = read(b'[ {"a" : 1.10},  "x, [\\"y",\n[1, 2]\t, -3e5 ,null]', JSON)
    assert batch.lines is None
    assert batch.texts([0, 1, 2, 3, 4]) == ['{"a" : 1.10}', '"x, [\\"y"', "[1, 2]", "-3e5", "null"]
    assert batch.texts([1, 3]) == ['"x, [\\"y"', "-3e5"]
    assert batch.texts([]) == []


@pytest.mark.parametrize("content_type", [None, "", "text/csv", "application/xml", "text/plain; charset=utf-8"])
def test_other_media_are_not_read(content_type):
    with pytest.raises(UnsupportedMedia, match="application/x-ndjson"):
        read(b"[]", content_type)


def test_other_charsets_and_encodings_are_not_read():
    with pytest.raises(UnsupportedMedia, match="latin-1"):
        read(b"[]", "application/json; charset=latin-1")
    with pytest.raises(UnsupportedMedia, match="'br'"):
        read(b"[]", JSON, "br")


@pytest.mark.parametrize("encoding", [None, "", "identity", "GZIP", " gzip "])
def test_encodings(encoding):
    body = b'{"a":1}\n'
    sent = gzip.compress(body, mtime=0) if encoding and "gzip" in encoding.lower() else body
    assert list(read(sent, NDJSON, encoding).events) == [{"a": 1}]


def test_gzip_of_several_members_is_one_body():
    body = gzip.compress(b'{"a":1}\n', mtime=0) + gzip.compress(b'{"a":2}\n', mtime=0)
    assert list(read(body, NDJSON, "gzip").events) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    "body", [b"no gzip", gzip.compress(b"[1]", mtime=0)[:-9], gzip.compress(b"[1]", mtime=0) + b"tail"]
)
def test_broken_gzip(body):
    with pytest.raises(UnreadableBody, match="gzip"):
        read(body, JSON, "gzip")


def test_a_bomb_is_cut_off_while_it_expands(monkeypatch):
    bomb = gzip.compress(b" " * 50_000_000, mtime=0)
    made = []
    real = zlib.decompressobj

    class Watched:
        def __init__(self, **options):
            self._real = real(**options)

        def decompress(self, data, length):
            found = self._real.decompress(data, length)
            made.append(len(found))
            return found

        def __getattr__(self, name):
            return getattr(self._real, name)

    monkeypatch.setattr(zlib, "decompressobj", Watched)
    with pytest.raises(TooLarge, match="expands to more than 1,000 bytes"):
        read(bomb, JSON, "gzip", expanded_bytes=1000)
    assert sum(made) == 1001


def test_limits():
    assert len(read(b"[1,2,3]", JSON, events=3).events) == 3
    with pytest.raises(TooLarge, match="4 events: at most 3"):
        read(b"[1,2,3,4]", JSON, events=3)
    assert read(b"[1,2,3]", JSON, body_bytes=7)
    with pytest.raises(TooLarge, match="8 bytes: at most 7"):
        read(b"[1,2,3] ", JSON, body_bytes=7)
    assert read(gzip.compress(b"[1,2,3]", mtime=0), JSON, "gzip", expanded_bytes=7)


def test_the_batch_id_is_of_the_body():
    one = read(b'{"a":1}')
    assert one.batch_id == read(b'{"a":1}').batch_id
    assert one.batch_id != read(b'{"a":1}\n').batch_id
    assert len(one.batch_id) == 32


def test_ten_thousand_lines_keep_their_places():
    body = "\n".join(json.dumps({"n": n}) for n in range(10_000))
    batch = read(body.encode())
    assert [event["n"] for event in batch.events] == list(range(10_000))
    assert batch.texts([9_999]) == ['{"n": 9999}']
