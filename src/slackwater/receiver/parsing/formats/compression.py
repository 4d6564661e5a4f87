"""A file's bytes as its format has them: expanded while they are read, never in memory as a whole.

The first bytes tell how a file is compressed, and not its name.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from slackwater.errors import DataError

MOST_EXPANDED = 50 * 2**30
"""Bytes that a file may expand to."""
_MOST_TIMES = 1000
"""How many times its own size a file may expand to."""
_HARMLESS = 256 * 2**20
"""Bytes that any file may expand to, be it ever so small: a few rows repeated compress well."""
_MAGIC = re.compile(
    rb"(?P<gzip>\x1f\x8b)"
    rb"|(?P<zstd>\x28\xb5\x2f\xfd)"
    rb"|(?P<bz2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))"
    rb"|(?P<zip>PK(?:\x03\x04|\x05\x06))"
)
_ENCRYPTED = 0x1
_CHUNK = 2**20
_BROKEN = (OSError, EOFError, zlib.error, pa.ArrowException, zipfile.BadZipFile, NotImplementedError)
"""What the standard library and Arrow raise for compressed data that is not what it should be."""


class Stream(Protocol):
    """Bytes in their order."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end. Raises `DataError` where they are broken."""


def compression(path: Path) -> str | None:
    """Return how the file is compressed: gzip, zstd, bz2, zip, or not at all."""
    with path.open("rb") as file:
        found = _MAGIC.match(file.read(16))
    return found.lastgroup if found else None


@contextmanager
def expanded(path: Path, *, name: str) -> Iterator[Stream]:
    """Open the file's content; `name` is what errors call it. Raises `DataError`."""
    match compression(path):
        case None:
            with path.open("rb", buffering=0) as file:
                yield file
        case "zip":
            with _member(path, name) as member:
                yield _Bounded(member, path, name)
        case codec:
            with pa.OSFile(str(path)) as file, pa.CompressedInputStream(file, codec) as stream:
                yield _Bounded(stream, path, name)


@contextmanager
def expanded_file(path: Path, *, name: str) -> Iterator[Path]:
    """As `expanded`, for formats that are not read from front to end: yield a file with the content."""
    if compression(path) is None:
        yield path
        return
    made = path.with_name(f"{path.name}.expanded")
    try:
        with expanded(path, name=name) as stream, made.open("wb") as file:
            while chunk := stream.read(_CHUNK):
                file.write(chunk)
        yield made
    finally:
        made.unlink(missing_ok=True)


class _Bounded:
    """Reads what compressed data expands to, and no more than is reasonable."""

    def __init__(self, stream: Stream, path: Path, name: str) -> None:
        self._stream, self._name = stream, name
        self._most = min(MOST_EXPANDED, max(_MOST_TIMES * path.stat().st_size, _HARMLESS))
        self._size = 0

    def read(self, size: int, /) -> bytes:
        with _intact(self._name):
            chunk = self._stream.read(size)
        self._size += len(chunk)
        if self._size > self._most:
            raise DataError(f"{self._name}: expands to more than {self._most:,} bytes: send it in parts")
        return chunk


@contextmanager
def _member(path: Path, name: str) -> Iterator[Stream]:
    """Open the one data file that a zip archive holds."""
    with _intact(name):
        archive = zipfile.ZipFile(path)
    with archive:
        files = [member for member in archive.infolist() if not _is_aside(member)]
        if len(files) != 1:
            held = ", ".join(member.filename for member in files[:10]) or "none"
            raise DataError(f"{name}: a zip archive of {len(files)} files ({held}): send one in each archive")
        if files[0].flag_bits & _ENCRYPTED:
            raise DataError(f"{name}: {files[0].filename} in it is encrypted: send it without a password")
        with _intact(name):
            opened = archive.open(files[0])
        with opened:
            yield opened


def _is_aside(member: zipfile.ZipInfo) -> bool:
    """Whether it is a folder, or what an operating system leaves beside the data."""
    steps = member.filename.split("/")
    return member.is_dir() or steps[0] == "__MACOSX" or steps[-1].startswith(".")


@contextmanager
def _intact(name: str) -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise DataError(f"{name}: its compressed data is broken ({error}): send the file again") from error
