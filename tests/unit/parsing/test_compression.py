"""Compressed files: detected by their first bytes, decompressed while they are read, up to a limit."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from slackwater.errors import DataError
from slackwater.receiver.parsing import compression
from slackwater.receiver.parsing.compression import BrokenData, ExpandsTooFar, decompressed_file, open_decompressed
from tests.memory import python_peak

pytestmark = pytest.mark.unit

BODY = b"".join(b"%d,line\n" % number for number in range(50_000))
HALF = len(BODY) // 2


def gz(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)


def zst(body: bytes) -> bytes:
    return pa.compress(body, "zstd", asbytes=True)


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    created = io.BytesIO()
    with zipfile.ZipFile(created, "w", method) as archive:
        for name, body in files.items():
            archive.writestr(zipfile.ZipInfo(name), body, method)
    return created.getvalue()


ASIDE = {"a/": b"", "__MACOSX/a/._a.csv": b"1", "a/.DS_Store": b"2"}
COMPRESSIONS = {
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
    with open_decompressed(path, name="f") as stream:
        pieces = list(iter(lambda: stream.read(10_000), b""))
    assert max(map(len, pieces), default=0) <= 10_000
    return b"".join(pieces)


class TestExpandedFiles:
    @pytest.mark.parametrize("method", COMPRESSIONS)
    @pytest.mark.parametrize("body", [b"", b"x", BODY], ids=["empty", "small", "large"])
    def test_every_compression_is_detected_and_expanded(self, path, method, body):
        assert expand(path, COMPRESSIONS[method](body)) == body

    @pytest.mark.parametrize("method", JOINED)
    def test_several_members_are_expanded(self, path, method):
        assert expand(path, JOINED[method]) == BODY

    @pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_all_compression_methods_of_zip_are_expanded(self, path, method):
        assert expand(path, zip_of({"a.csv": BODY}, method)) == BODY

    def test_files_that_systems_add_to_archives_are_ignored(self, path):
        assert expand(path, zip_of({**ASIDE, "a/a.csv": BODY})) == BODY

    @pytest.mark.parametrize("start", [b"BZh,", b"PK,", b"\x1f", b"BZh91AY"])
    def test_data_that_only_starts_like_compressed_data_is_unchanged(self, path, start):
        assert expand(path, start + BODY) == start + BODY

    def test_the_expanded_file_is_temporary(self, path):
        for compress in COMPRESSIONS.values():
            path.write_bytes(compress(BODY))
            with decompressed_file(path, name="f") as bare:
                assert bare.read_bytes() == BODY
            assert [result.name for result in path.parent.iterdir()] == ["file"]


class TestBytes:
    @pytest.mark.parametrize("method", COMPRESSIONS)
    def test_bytes_are_expanded_like_a_file(self, method):
        with open_decompressed(COMPRESSIONS[method](BODY), name="f") as stream:
            assert stream.read(len(BODY) + 1) == BODY

    @pytest.mark.parametrize("codec", [None, "gzip", "zstd"])
    def test_a_given_codec_is_not_detected(self, codec):
        content = {None: gz(BODY), "gzip": gz(gz(BODY)), "zstd": zst(gz(BODY))}[codec]
        with open_decompressed(content, codec=codec, name="f") as stream:
            assert stream.read(len(BODY)) == gz(BODY)

    @pytest.mark.parametrize(("codec", "compress"), [(None, bytes), ("gzip", gz), ("zstd", zst)])
    def test_a_given_limit_is_the_largest_content(self, codec, compress):
        content = compress(b"x" * 100)
        with open_decompressed(content, codec=codec, name="f", max_bytes=100) as stream:
            assert stream.read(101) == b"x" * 100
        with (
            open_decompressed(content, codec=codec, name="f", max_bytes=99) as stream,
            pytest.raises(ExpandsTooFar, match="f: expands to more than 99 bytes"),
        ):
            stream.read(100)

    def test_bytes_that_are_not_compressed_as_given_are_broken(self):
        with open_decompressed(b"plain", codec="gzip", name="f") as stream, pytest.raises(BrokenData) as error:
            stream.read(1)
        assert isinstance(error.value.__cause__, OSError)


class TestBrokenFiles:
    @pytest.mark.parametrize("method", [method for method in COMPRESSIONS if method != "plain"])
    @pytest.mark.parametrize("fraction", [0.5, 0.99])
    def test_truncated_data_is_an_error(self, path, method, fraction):
        content = COMPRESSIONS[method](BODY)
        with pytest.raises(DataError, match=r"^f: its compressed data is broken .*: send the file again"):
            expand(path, content[: int(len(content) * fraction)])

    @pytest.mark.parametrize("method", ["gzip", "bz2", "zip"])
    def test_changed_data_is_an_error(self, path, method):
        content = bytearray(COMPRESSIONS[method](BODY))
        content[len(content) // 2] ^= 0xFF
        with pytest.raises(DataError, match=r"^f: its compressed data is broken"):
            expand(path, bytes(content))

    @pytest.mark.parametrize(
        ("files", "message"),
        [
            ({}, r"0 files \(none\)"),
            (ASIDE, r"0 files \(none\)"),
            ({"a.csv": b"", "b/c.csv": b""}, r"2 files \(a.csv, b/c.csv\)"),
        ],
        ids=["nothing", "nothing of use", "two"],
    )
    def test_an_archive_without_exactly_one_file_is_an_error(self, path, files, message):
        with pytest.raises(DataError, match=f"^f: a zip archive of {message}: send one file per archive"):
            expand(path, zip_of(files))

    def test_an_encrypted_archive_is_an_error(self, path):
        content = bytearray(zip_of({"a.csv": BODY}))
        content[6] |= 1
        content[content.rindex(b"PK\x01\x02") + 8] |= 1
        with pytest.raises(DataError, match=r"^f: its file a.csv is encrypted: send it without a password"):
            expand(path, bytes(content))

    def test_an_unknown_compression_method_is_an_error(self, path):
        content = bytearray(zip_of({"a.csv": BODY}))
        content[8] = 9
        content[content.rindex(b"PK\x01\x02") + 10] = 9
        with pytest.raises(DataError, match=r"broken .*compression method"):
            expand(path, bytes(content))


class TestBombs:
    @pytest.mark.parametrize("method", ["gzip", "zstd", "bz2", "zip"])
    def test_decompression_stops_at_the_limit(self, path, method, monkeypatch):
        monkeypatch.setattr(compression, "_ALWAYS_ALLOWED_BYTES", 2**20)
        monkeypatch.setattr(compression, "_MAX_RATIO", 10)
        path.write_bytes(COMPRESSIONS[method](b"\0" * 2**23))
        pieces: list[bytes] = []
        with (
            open_decompressed(path, name="f") as stream,
            pytest.raises(DataError, match=r"^f: expands to more than 1,048,576"),
        ):
            pieces.extend(iter(lambda: stream.read(10_000), b""))
        assert 0 < sum(map(len, pieces)) <= 2**20

    def test_large_files_expand_up_to_the_absolute_limit(self, path, monkeypatch):
        monkeypatch.setattr(compression, "MAX_BYTES", 1000)
        with pytest.raises(DataError, match="expands to more than 1,000 bytes: send it in parts"):
            expand(path, gz(BODY))

    def test_a_small_file_may_have_many_rows(self, path):
        assert expand(path, zst(b"a,b\n" * 2**20)) == b"a,b\n" * 2**20

    @pytest.mark.parametrize(("method", "parts"), [(zipfile.ZIP_BZIP2, 30), (zipfile.ZIP_LZMA, 80)])
    def test_a_zip_archive_is_expanded_in_parts(self, path, method, parts):
        body = b"".join(hashlib.shake_128(bytes([number])).digest(2_000) * 100 for number in range(parts))
        path.write_bytes(zip_of({"a.csv": body}, method))
        with python_peak() as peak, open_decompressed(path, name="f") as stream:
            assert sum(map(len, iter(lambda: stream.read(2**20), b""))) == len(body)
        assert peak.bytes < len(body)

    def test_an_archive_of_very_many_files_is_refused_before_its_directory_is_read(self, path):
        path.write_bytes(zip_of({f"file-{number}.csv": b"" for number in range(20_000)}, zipfile.ZIP_STORED))
        with (
            python_peak() as peak,
            pytest.raises(DataError, match=r"^f: a zip archive whose list of files has 1,\d{3},\d{3} bytes: send one"),
            open_decompressed(path, name="f"),
        ):
            pass
        assert peak.bytes < 2**20

    def test_an_error_lists_ten_short_names(self, path):
        path.write_bytes(zip_of({f"{number}-{'x' * 500}.csv": b"" for number in range(50)}))
        with pytest.raises(DataError, match=r"a zip archive of 50 files \(0-x.*\.\.\., \.\.\.\)") as error:
            expand(path, path.read_bytes())
        assert len(str(error.value)) < 1_000
