"""Decompresses files while they are read, so that the content is never in memory as a whole.

The first bytes of a file determine its compression; its name is ignored.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from slackwater.errors import DataError
from slackwater.receiver.parsing.rejections import list_names

# Limits against compression bombs, in bytes after decompression: an absolute one, one relative to the file's size, and
# a size that any file may reach, because a few repeated rows compress well.
MAX_BYTES = 50 * 2**30
_MAX_RATIO = 1000
_ALWAYS_ALLOWED_BYTES = 256 * 2**20
# For bz2 and zip the expressions cover more than the magic number, because a CSV file may start with `BZh1` or `PK`.
_MAGIC = re.compile(
    rb"(?P<gzip>\x1f\x8b)"
    rb"|(?P<zstd>\x28\xb5\x2f\xfd)"
    # The block size, then the magic number of a block or of the end of an empty stream.
    rb"|(?P<bz2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))"
    # A member, or the end of an empty archive.
    rb"|(?P<zip>PK(?:\x03\x04|\x05\x06))"
)
# Bytes of a zip archive's directory, which is in memory as a whole: enough for 10,000 files.
_MAX_DIRECTORY_BYTES = 2**20
# Bytes of bz2 and lzma data that are read from a zip archive at a time, because `zipfile` expands them as a whole.
_SMALL_READ = 2**12
# Bit 0 of a member's flags, by the specification of zip (APPNOTE 4.4.4).
_ZIP_FLAG_ENCRYPTED = 0x1
_CHUNK = 2**20
# The errors that the standard library and Arrow raise for broken compressed data.
_BROKEN_DATA_ERRORS = (OSError, EOFError, zlib.error, pa.ArrowException, zipfile.BadZipFile, NotImplementedError)


class ByteStream(Protocol):
    """A stream of bytes, such as a binary file."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; b"" at the end. Raises `DataError` when compressed data is broken."""


def detect_compression(path: Path) -> str | None:
    """Return `gzip`, `zstd`, `bz2` or `zip`; None when the file is not compressed."""
    with path.open("rb") as file:
        match = _MAGIC.match(file.read(16))
    return match.lastgroup if match else None


@contextmanager
def open_decompressed(path: Path, *, name: str) -> Iterator[ByteStream]:
    """Open the decompressed content of a file. `name` is the name of the file in errors.

    Raises `DataError` when the compressed data is broken or too large, or a zip archive does not hold exactly one file.
    """
    match detect_compression(path):
        case None:
            with path.open("rb", buffering=0) as file:
                yield file
        case "zip":
            with open_zip_member(path, name) as member:
                yield _LimitedStream(member, path, name)
        case codec:
            with pa.OSFile(str(path)) as file, pa.CompressedInputStream(file, codec) as stream:
                yield _LimitedStream(stream, path, name)


@contextmanager
def decompressed_file(path: Path, *, name: str) -> Iterator[Path]:
    """Yield a file with the decompressed content, for formats that need random access; it is deleted afterwards.

    Raises `DataError` as `open_decompressed` does.
    """
    if detect_compression(path) is None:
        yield path
        return
    decompressed = path.with_name(f"{path.name}.decompressed")
    try:
        with open_decompressed(path, name=name) as stream, decompressed.open("wb") as file:
            while chunk := stream.read(_CHUNK):
                file.write(chunk)
        yield decompressed
    finally:
        decompressed.unlink(missing_ok=True)


class _LimitedStream:
    """Reads decompressed data, and raises `DataError` beyond the limits for compression bombs."""

    def __init__(self, stream: ByteStream, path: Path, name: str) -> None:
        self._stream, self._name = stream, name
        self._max_bytes = min(MAX_BYTES, max(_MAX_RATIO * path.stat().st_size, _ALWAYS_ALLOWED_BYTES))
        self._bytes = 0

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes."""
        with _translated_errors(self._name):
            chunk = self._stream.read(size)
        self._bytes += len(chunk)
        if self._bytes > self._max_bytes:
            raise DataError(f"{self._name}: expands to more than {self._max_bytes:,} bytes: send it in parts")
        return chunk


class _SmallReads:
    """Reads a stream in parts of `_SMALL_READ` bytes."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def read(self, size: int, /) -> bytes:
        data = io.BytesIO()
        while (left := size - data.tell()) and (part := self._stream.read(min(left, _SMALL_READ))):
            data.write(part)
        return data.getvalue()


class _ZipFile(io.BufferedReader):
    """A file whose reads are limited while `zipfile` reads its directory."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MAX_DIRECTORY_BYTES:
            raise DataError(f"a zip archive whose list of files has {size:,} bytes")
        return super().read(size)


def check_zip_directory(path: Path, name: str) -> None:
    """Raise `DataError` when the directory of a zip archive is too large for memory; a broken archive as `zipfile`."""
    with _ZipFile(io.FileIO(path)) as file:
        try:
            zipfile.ZipFile(file).close()
        except DataError as error:
            raise DataError(f"{name}: {error}: send one file per archive") from None


@contextmanager
def open_zip_member(path: Path, name: str) -> Iterator[ByteStream]:
    """Open the only data file of a zip archive.

    Raises `DataError` when the archive is broken, holds no file or several files, or its file is encrypted.
    """
    with _translated_errors(name):
        check_zip_directory(path, name)
        archive = zipfile.ZipFile(path)
    with archive:
        # Folders, and files that macOS and other systems add, are not data.
        members = [
            member
            for member in archive.infolist()
            if not (member.is_dir() or re.search(r"^__MACOSX(/|$)|(^|/)\.[^/]*$", member.filename))
        ]
        if len(members) != 1:
            listed = list_names([member.filename for member in members]) or "none"
            raise DataError(f"{name}: a zip archive of {len(members)} files ({listed}): send one file per archive")
        if members[0].flag_bits & _ZIP_FLAG_ENCRYPTED:
            raise DataError(f"{name}: its file {members[0].filename} is encrypted: send it without a password")
        with _translated_errors(name):
            stream = archive.open(members[0])
        with stream:
            is_bounded = members[0].compress_type in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
            yield stream if is_bounded else _SmallReads(stream)


@contextmanager
def _translated_errors(name: str) -> Iterator[None]:
    try:
        yield
    except _BROKEN_DATA_ERRORS as error:
        raise DataError(f"{name}: its compressed data is broken ({error}): send the file again") from error
