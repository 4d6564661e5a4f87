"""A partner's SFTP server: folders are listed as far as wanted files may be in them, and files go on where they broke.

A file's version is its size and its time of modification, which SFTP counts in seconds: a file that is written over
within one second and keeps its size cannot be told from what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from stat import S_IFDIR, S_IFMT, S_IFREG, S_ISREG
from time import sleep as wait_for
from typing import BinaryIO, NamedTuple
from urllib.parse import unquote, urlsplit

from paramiko import SFTPAttributes, SFTPClient, SFTPError, SFTPFile, SSHException

from slackwater.errors import FileTooLarge, FileVanished, PartnerError
from slackwater.receiver.partners.credentials import Credentials
from slackwater.receiver.partners.download import (
    PartialDownload,
    TransientPartnerError,
    download_with_resume,
    retry_attempts,
)
from slackwater.receiver.partners.outbound import Outbound
from slackwater.receiver.partners.partner import Download, ListedFile, listed_file
from slackwater.receiver.partners.sftp_session import SftpSession, open_session
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.pull_config import PullConfig

_BLOCK = 32 * 2**10
"""Bytes of one request: what every server answers at once."""
_AT_ONCE = 64
"""Requests that are under way at once, as OpenSSH's own client has them."""


class _Version(NamedTuple):
    """What tells one content of a file from another."""

    size: int
    modified: int | None
    """Seconds since 1970."""


class SftpPartner:
    """`slackwater.receiver.partners.partner.Partner` over SFTP; one connection, which is opened when it is needed."""

    def __init__(
        self,
        pull: PullConfig,
        *,
        outbound: Outbound,
        credentials: Credentials,
        max_file_bytes: int,
        sleep: Callable[[float], None] = wait_for,
    ) -> None:
        self._pull = pull
        self._outbound = outbound
        self._credentials = credentials
        self._max_file_bytes = max_file_bytes
        self._sleep = sleep
        self._url = pull.url.rstrip("/")
        self._folder = unquote(urlsplit(pull.url).path).rstrip("/") or "/"
        self._root: str | None = None
        """The folder without links, once the server has told."""
        self._session: SftpSession | None = None

    def close(self) -> None:
        """Close its connection."""
        if self._session:
            self._session.close()
            self._session = None

    def list(self, pattern: FilePattern, days: Sequence[date]) -> Sequence[ListedFile]:
        """Return the files of those days. Raises `PartnerError`.

        Links are let be, files' and folders' alike: they may lead anywhere.
        """
        folders: dict[str, list[date]] = {}
        for day in days:
            folders.setdefault(pattern.prefix(day).rpartition("/")[0], []).append(day)
        for attempt in retry_attempts(self._sleep):
            with attempt, self._files(self._url) as files:
                self._expect_folder(files)
                found: dict[str, ListedFile] = {}
                for folder, some in folders.items():
                    self._expect_within(files, folder)
                    found.update((file.name, file) for file in self._below(files, folder, pattern, some))
                return list(found.values())
        raise AssertionError("the last attempt raises")

    def fetch(self, name: str, into: BinaryIO) -> Download:
        """Write the file to the beginning of `into`.

        Raises `FileVanished`, `FileTooLarge`, or `PartnerError` for all else.
        """
        return download_with_resume(lambda partial: self._rest(name, partial), into, sleep=self._sleep).download()

    def _expect_folder(self, files: SFTPClient) -> None:
        try:
            if S_ISREG(files.stat(self._folder).st_mode or 0):
                raise PartnerError(f"{self._url}: a folder is expected, and this is a file: mend `url`")
        except FileNotFoundError as error:
            raise PartnerError(f"{self._url}: there is no such folder: mend `url`, or ask the partner") from error

    def _below(
        self, files: SFTPClient, folder: str, pattern: FilePattern, days: Sequence[date]
    ) -> Iterator[ListedFile]:
        """Yield the wanted files in a folder, which need not be there, and below it."""
        try:
            entries = files.listdir_attr(self._path(folder))
        except FileNotFoundError:
            return
        for entry in entries:
            name = f"{folder}/{entry.filename}".lstrip("/")
            kind = _kind(entry)
            if kind == S_IFREG and any(pattern.matches(name, day) for day in days):
                modified = None if entry.st_mtime is None else datetime.fromtimestamp(entry.st_mtime, UTC)
                yield listed_file(self._url, name, size=entry.st_size, modified=modified)
            elif kind == S_IFDIR and (some := [day for day in days if pattern.may_hold(name, day)]):
                yield from self._below(files, name, pattern, some)

    def _rest(self, name: str, partial: PartialDownload) -> Iterator[bytes]:
        """Yield what is still lacking of the file as it is now."""
        address = f"{self._url}/{name}"
        with self._files(address) as files:
            try:
                self._expect_within(files, name)
                path = self._path(name)
                version = self._expect_file(files, path, address)
                partial.begin(version)
                with files.open(path, "rb") as file:
                    yield from _blocks(file, partial.size, version.size, address)
                if _version(files.lstat(path), address) != version:
                    raise TransientPartnerError(f"{address}: changed while it was fetched")
            except FileNotFoundError as error:
                raise FileVanished(f"{address}: listed, but gone when it was fetched") from error

    def _expect_file(self, files: SFTPClient, path: str, address: str) -> _Version:
        found = files.lstat(path)
        if _kind(found) != S_IFREG:
            raise PartnerError(f"{address}: a file is expected, and this is a link or a folder")
        version = _version(found, address)
        if version.size > self._max_file_bytes:
            raise FileTooLarge(f"{address}: {version.size:,} bytes, where {self._max_file_bytes:,} are taken at most")
        return version

    def _expect_within(self, files: SFTPClient, name: str) -> None:
        """See that no link on the way to a name, which need not be there, leads out of the folder."""
        if self._root is None:
            self._root = files.normalize(self._folder).rstrip("/")
        with suppress(FileNotFoundError):
            if not f"{files.normalize(self._path(name))}/".startswith(f"{self._root}/"):
                raise PartnerError(
                    f"{self._url}/{name}: a link leads out of the folder that is listed: none is followed"
                )

    def _path(self, name: str) -> str:
        return f"{self._folder.rstrip('/')}/{name}".rstrip("/") or "/"

    @contextmanager
    def _files(self, address: str) -> Iterator[SFTPClient]:
        """The server's files. What fails is said of `address`; whoever asks then connects anew."""
        try:
            if self._session is None:
                self._session = open_session(self._pull, outbound=self._outbound, credentials=self._credentials)
            yield self._session.files
        except PartnerError:
            self.close()
            raise
        except PermissionError as error:
            self.close()
            raise PartnerError(f"{address}: the server does not let us read it: ask the partner to") from error
        except UnicodeDecodeError as error:
            self.close()
            raise PartnerError(f"{address}: a name there is not in UTF-8: have it renamed") from error
        except (SSHException, SFTPError, EOFError, OSError) as error:
            self.close()
            raise TransientPartnerError(f"{address}: {error or type(error).__name__}") from error


def _kind(attributes: SFTPAttributes) -> int:
    """Return what it is, as `stat` has it. Some servers do not tell: then it is a file."""
    return S_IFMT(attributes.st_mode or 0) or S_IFREG


def _version(attributes: SFTPAttributes, address: str) -> _Version:
    if attributes.st_size is None:
        raise PartnerError(f"{address}: the server does not tell its size, without which nobody knows when it is whole")
    return _Version(attributes.st_size, attributes.st_mtime)


def _blocks(file: SFTPFile, start: int, end: int, address: str) -> Iterator[bytes]:
    """Yield the bytes from `start` on, many blocks being under way at once. Raises `TransientPartnerError` if there are fewer."""
    _send_at_once(file)
    step = _BLOCK * _AT_ONCE
    for first in range(start, end, step):
        last = min(first + step, end)
        chunks = [(at, min(_BLOCK, last - at)) for at in range(first, last, _BLOCK)]
        for (at, length), block in zip(chunks, file.readv(chunks), strict=True):
            if len(block) != length:
                raise TransientPartnerError(
                    f"{address}: ended at byte {at + len(block):,}, and not at {end:,}: it has changed"
                )
            yield block


def _send_at_once(file: SFTPFile) -> None:
    """Have the requests of a `readv` sent before its first answer is read.

    Left alone, paramiko sends them from a thread, and when answers overtake it takes all of them for answered: what is
    still to come is asked for again, one by one, and the answers that nobody waits for are kept.
    """

    def start(chunks: Sequence[tuple[int, int]], most: int | None = None) -> None:
        file._prefetching, file._prefetch_done = True, False
        file._prefetch_thread(chunks, most)

    file._start_prefetch = start
