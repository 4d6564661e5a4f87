"""Compressed files: told by their first bytes, expanded as they are read, cut off where they would not end."""

from __future__ import annotations

import bz2
import gzip
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from slackwater.errors import DataError
from slackwater.receiver.parsing.formats import compression
from slackwater.receiver.parsing.formats.compression import expanded, expanded_file

pytestmark = pytest.mark.unit

BODY = b"".join(b"%d,line\n" % number for number in range(50_000))
HALF = len(BODY) // 2


def gz(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


def zst(body: bytes) -> bytes:
    return pa.compress(body, "zstd", asbytes=True)


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, body in files.items():
            archive.writestr(zipfile.ZipInfo(name), body, method)
    return made.getvalue()


ASIDE = {"a/": b"", "__MACOSX/a/._a.csv": b"1", "a/.DS_Store": b"2"}
WAYS = {
    "plain": lambda body: body,
    "gzip": gz,
    "zstd": zst,
    "bz2": bz2.compress,
    "zip": lambda body: zip_of({"a.csv": body}),
}
JOINED = {
    "gzip": gz(BODY[:HALF]) + gz(BODY[HALF:]),
    "zstd": zst(BODY[:HALF]) + zst(BODY[HALF:]),
    "bz2": bz2.compress(BODY[:HALF]) + bz2.compress(BODY[HALF:]),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def expand(path: Path, content: bytes) -> bytes:
    path.write_bytes(content)
    with expanded(path, name="f") as stream:
        pieces = list(iter(lambda: stream.read(10_000), b""))
    assert max(map(len, pieces), default=0) <= 10_000
    return b"".join(pieces)


class TestExpanded:
    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("body", [b"", b"x", BODY], ids=["empty", "small", "large"])
    def test_every_way(self, path, way, body):
        assert expand(path, WAYS[way](body)) == body

    @pytest.mark.parametrize("way", JOINED)
    def test_several_members(self, path, way):
        assert expand(path, JOINED[way]) == BODY

    @pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_ways_of_zip(self, path, method):
        assert expand(path, zip_of({"a.csv": BODY}, method)) == BODY

    def test_what_systems_leave_in_archives_is_let_be(self, path):
        assert expand(path, zip_of({**ASIDE, "a/a.csv": BODY})) == BODY

    @pytest.mark.parametrize("start", [b"BZh,", b"PK,", b"\x1f", b"BZh91AY"])
    def test_text_that_only_begins_alike(self, path, start):
        assert expand(path, start + BODY) == start + BODY

    def test_as_a_file(self, path):
        for way in WAYS.values():
            path.write_bytes(way(BODY))
            with expanded_file(path, name="f") as bare:
                assert bare.read_bytes() == BODY
            assert [found.name for found in path.parent.iterdir()] == ["file"]


class TestBroken:
    @pytest.mark.parametrize("way", [way for way in WAYS if way != "plain"])
    @pytest.mark.parametrize("kept", [0.5, 0.99])
    def test_cut_off(self, path, way, kept):
        content = WAYS[way](BODY)
        with pytest.raises(DataError, match=r"^f: its compressed data is broken .*: send the file again"):
            expand(path, content[: int(len(content) * kept)])

    @pytest.mark.parametrize("way", ["gzip", "bz2", "zip"])
    def test_changed_on_the_way(self, path, way):
        content = bytearray(WAYS[way](BODY))
        content[len(content) // 2] ^= 0xFF
        with pytest.raises(DataError, match=r"^f: its compressed data is broken"):
            expand(path, bytes(content))

    @pytest.mark.parametrize(
        ("files", "says"),
        [
            ({}, r"0 files \(none\)"),
            (ASIDE, r"0 files \(none\)"),
            ({"a.csv": b"", "b/c.csv": b""}, r"2 files \(a.csv, b/c.csv\)"),
        ],
        ids=["nothing", "nothing of use", "two"],
    )
    def test_archives_of_no_file_or_of_several(self, path, files, says):
        with pytest.raises(DataError, match=f"^f: a zip archive of {says}: send one in each archive"):
            expand(path, zip_of(files))

    def test_encrypted(self, path):
        content = bytearray(zip_of({"a.csv": BODY}))
        content[6] |= 1
        content[content.rindex(b"PK\x01\x02") + 8] |= 1
        with pytest.raises(DataError, match=r"^f: a.csv in it is encrypted: send it without a password"):
            expand(path, bytes(content))

    def test_a_method_that_is_not_known(self, path):
        content = bytearray(zip_of({"a.csv": BODY}))
        content[8] = 9
        content[content.rindex(b"PK\x01\x02") + 10] = 9
        with pytest.raises(DataError, match=r"broken .*compression method"):
            expand(path, bytes(content))


class TestBombs:
    @pytest.mark.parametrize("way", ["gzip", "zstd", "bz2", "zip"])
    def test_they_are_cut_off_while_they_expand(self, path, way, monkeypatch):
        monkeypatch.setattr(compression, "_HARMLESS", 2**20)
        monkeypatch.setattr(compression, "_MOST_TIMES", 10)
        path.write_bytes(WAYS[way](b"\0" * 2**23))
        pieces: list[bytes] = []
        with expanded(path, name="f") as stream, pytest.raises(DataError, match=r"^f: expands to more than 1,048,576"):
            pieces.extend(iter(lambda: stream.read(10_000), b""))
        assert 0 < sum(map(len, pieces)) <= 2**20

    def test_no_file_is_too_large_to_be_told_from_one(self, path, monkeypatch):
        monkeypatch.setattr(compression, "MOST_EXPANDED", 1000)
        with pytest.raises(DataError, match="expands to more than 1,000 bytes: send it in parts"):
            expand(path, gz(BODY))

    def test_few_bytes_may_be_many_rows(self, path):
        assert expand(path, zst(b"a,b\n" * 2**20)) == b"a,b\n" * 2**20
