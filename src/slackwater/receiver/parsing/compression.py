"""Decompresses files and pushed bodies while they are read, up to a limit.

The first bytes of a file determine its compression; its name is ignored. The header of a pushed body determines its
compression.
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
DETECT = "detect"
"""Instead of a codec: the first bytes determine it."""
# The errors that the standard library and Arrow raise for broken compressed data.
_BROKEN_DATA_ERRORS = (OSError, EOFError, zlib.error, pa.ArrowException, zipfile.BadZipFile, NotImplementedError)


class BrokenData(DataError):
    """Compressed data is broken. The cause is the error of the decompressor."""


class ExpandsTooFar(DataError):
    """Compressed data expands to more bytes than the limit."""


class ByteStream(Protocol):
    """A stream of bytes, such as a binary file."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; b"" at the end.

        Raises `BrokenData` when compressed data is broken, and `ExpandsTooFar` beyond the limit.
        """


def detect_compression(source: Path | bytes) -> str | None:
    """Return `gzip`, `zstd`, `bz2` or `zip`; None when the file or the bytes are not compressed."""
    with _open(source) as file:
        match = _MAGIC.match(file.read(16))
    return match.lastgroup if match else None


@contextmanager
def open_decompressed(
    source: Path | bytes, *, name: str, codec: str | None = DETECT, max_bytes: int | None = None
) -> Iterator[ByteStream]:
    """Open the decompressed content of a file or of bytes. `name` is the name of the source in errors.

    `codec` is `gzip`, `zstd`, `bz2`, `zip`, or None for content that is not compressed. `max_bytes` limits the
    decompressed content; without it, a limit against compression bombs applies to compressed content.
    Raises `BrokenData` when the compressed data is broken, and `DataError` when a zip archive does not hold exactly one
    file. Reading raises `BrokenData`, and `ExpandsTooFar` beyond the limit.
    """
    if codec == DETECT:
        codec = detect_compression(source)
    if codec is None:
        with _open(source) as file:
            yield file if max_bytes is None else _LimitedStream(file, max_bytes, name)
        return
    if max_bytes is None:
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        max_bytes = min(MAX_BYTES, max(_MAX_RATIO * size, _ALWAYS_ALLOWED_BYTES))
    if codec == "zip":
        with open_zip_member(source, name) as member:
            yield _LimitedStream(member, max_bytes, name)
        return
    compressed = pa.BufferReader(source) if isinstance(source, bytes) else pa.OSFile(str(source))
    with compressed, pa.CompressedInputStream(compressed, codec) as stream:
        yield _LimitedStream(stream, max_bytes, name)


def decompress(data: bytes, *, name: str, codec: str | None, max_bytes: int) -> bytes:
    """Return all decompressed bytes. `name` is the name of the data in errors, `codec` None if it is not compressed.

    Raises `BrokenData`, and `ExpandsTooFar` beyond `max_bytes`.
    """
    with open_decompressed(data, name=name, codec=codec, max_bytes=max_bytes) as stream:
        # Decompresses all members (gzip) or frames (zstd), but stops one byte after the limit, so that a small body
        # which expands to gigabytes (a compression bomb) cannot use up the memory.
        return stream.read(max_bytes + 1)


@contextmanager
def decompressed_file(path: Path, *, name: str) -> Iterator[Path]:
    """Yield a file with the decompressed content, for formats that need random access; it is deleted afterwards.

    Raises `BrokenData` when the compressed data is broken, `ExpandsTooFar` when it is too large, and `DataError` when a
    zip archive does not hold exactly one file.
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
    """Reads decompressed data, and raises `ExpandsTooFar` beyond the limit."""

    def __init__(self, stream: ByteStream, max_bytes: int, name: str) -> None:
        self._stream, self._max_bytes, self._name = stream, max_bytes, name
        self._bytes = 0

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes."""
        with _translated_errors(self._name):
            chunk = self._stream.read(size)
        self._bytes += len(chunk)
        if self._bytes > self._max_bytes:
            raise ExpandsTooFar(f"{self._name}: expands to more than {self._max_bytes:,} bytes: send it in parts")
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


def check_zip_directory(source: Path | bytes, name: str) -> None:
    """Raise `DataError` when the directory of a zip archive is too large for memory; a broken archive as `zipfile`."""
    with _ZipFile(_open(source)) as file:
        try:
            zipfile.ZipFile(file).close()
        except DataError as error:
            raise DataError(f"{name}: {error}: send one file per archive") from None


@contextmanager
def open_zip_member(source: Path | bytes, name: str) -> Iterator[ByteStream]:
    """Open the only data file of a zip archive.

    Raises `DataError` when the archive is broken, holds no file or several files, or its file is encrypted.
    """
    with _translated_errors(name):
        check_zip_directory(source, name)
        archive = zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source)
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
        raise BrokenData(f"{name}: its compressed data is broken ({error}): send the file again") from error


def _open(source: Path | bytes) -> io.FileIO | io.BytesIO:
    return io.BytesIO(source) if isinstance(source, bytes) else io.FileIO(source)
