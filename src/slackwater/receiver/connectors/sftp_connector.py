"""A partner's SFTP server: lists the folders that may contain files of the days, and resumes downloads.

A file's version is its size and its modification time, which SFTP counts in seconds: a file that is overwritten within
one second, with the same size, cannot be distinguished from the previous version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from functools import partial
from stat import S_IFDIR, S_IFMT, S_IFREG, S_ISREG
from time import sleep as wait_for
from typing import BinaryIO, NamedTuple
from urllib.parse import unquote, urlsplit

from paramiko import SFTPAttributes, SFTPClient, SFTPError, SFTPFile, SSHException

from slackwater.errors import FileTooLarge, FileVanished, PartnerError
from slackwater.outbound.credentials import Credentials
from slackwater.outbound.guard import Outbound
from slackwater.receiver.connectors.connector import (
    Download,
    ListedFile,
    PartialDownload,
    TransientPartnerError,
    download,
    listed_file,
    retrying,
)
from slackwater.receiver.connectors.sftp_session import SftpSession, open_session
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.pull_config import PullConfig

# Bytes of one read request. Every server has to support 32 kB (SFTP draft, section 3), and some support no more.
_BLOCK = 32 * 2**10
# Requests in flight, as in OpenSSH's client. With one at a time, each block would take a round trip.
_PARALLEL_REQUESTS = 64


class SftpFileVersion(NamedTuple):
    """Distinguishes one content of a file from another."""

    size: int
    modified: int | None
    """Seconds since 1970."""


class SftpConnector:
    """`slackwater.receiver.connectors.connector.Connector` over SFTP, on one connection, which opens on first use."""

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
        # The folder's path with all links resolved; None until the server was asked for it.
        self._real_folder: str | None = None
        self._session: SftpSession | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._session:
            self._session.close()
            self._session = None

    def list(self, pattern: FilePattern, days: Sequence[date]) -> Sequence[ListedFile]:
        """Return the files of the days. Raises `PartnerError`.

        Ignores symbolic links to files and folders, because they may lead out of the folder.
        """
        days_of_folders: dict[str, list[date]] = {}
        for day in days:
            days_of_folders.setdefault(pattern.prefix(day).rpartition("/")[0], []).append(day)
        return retrying(self._sleep)(self._list, pattern, days_of_folders)

    def fetch(self, name: str, into: BinaryIO) -> Download:
        """Write the file to the start of `into`. Raises `FileVanished`, `FileTooLarge` or another `PartnerError`."""
        return download(partial(self._missing_bytes, name), into, sleep=self._sleep)

    def _list(self, pattern: FilePattern, days_of_folders: Mapping[str, Sequence[date]]) -> Sequence[ListedFile]:
        with self._connected(self._url) as sftp:
            try:
                if S_ISREG(sftp.stat(self._folder).st_mode or 0):
                    raise PartnerError(f"{self._url}: this is a file, where a folder is expected: correct `url`")
            except FileNotFoundError as error:
                raise PartnerError(f"{self._url}: there is no such folder: correct `url`") from error
            files: dict[str, ListedFile] = {}
            for folder, days in days_of_folders.items():
                self._expect_within_folder(sftp, folder)
                files.update((file.name, file) for file in self._walk(sftp, folder, pattern, days))
            return list(files.values())

    def _walk(self, sftp: SFTPClient, folder: str, pattern: FilePattern, days: Sequence[date]) -> Iterator[ListedFile]:
        """Yield the files of the days in a folder and below it. A folder that does not exist has none."""
        folders: dict[str, list[date]] = {}
        wanted = pattern.of_days(days)
        try:
            # One request at a time: paramiko (5.1.0, pinned) matches responses to requests by their order only.
            for entry in sftp.listdir_iter(self._path(folder), read_aheads=1):
                name = f"{folder}/{entry.filename}".lstrip("/")
                file_type = _file_type(entry)
                if file_type == S_IFREG and wanted.fullmatch(name):
                    modified = None if entry.st_mtime is None else datetime.fromtimestamp(entry.st_mtime, UTC)
                    yield listed_file(self._url, name, size=entry.st_size, modified=modified)
                elif file_type == S_IFDIR and (below := [day for day in days if pattern.may_hold(name, day)]):
                    folders[name] = below
        except FileNotFoundError:
            return
        # After the loop, because the entries of two folders cannot be read at the same time on one connection.
        for name, folder_days in folders.items():
            yield from self._walk(sftp, name, pattern, folder_days)

    def _missing_bytes(self, name: str, received: PartialDownload) -> Iterator[bytes]:
        """Yield the bytes of the file's current version that `received` lacks, as `download` needs them."""
        url = f"{self._url}/{name}"
        with self._connected(url) as sftp:
            try:
                self._expect_within_folder(sftp, name)
                path = self._path(name)
                version = self._current_version(sftp, path, url)
                received.resume_or_restart(version)
                with sftp.open(path, "rb") as file:
                    yield from read_ahead(file, received.size, version.size, url)
                # Checked again after the last byte: SFTP cannot request bytes of one version only.
                if self._current_version(sftp, path, url) != version:
                    raise TransientPartnerError(f"{url}: changed while it was fetched")
            except FileNotFoundError as error:
                raise FileVanished(f"{url}: listed, but gone when it was fetched") from error

    def _current_version(self, sftp: SFTPClient, path: str, url: str) -> SftpFileVersion:
        """Return the version of a regular file. Raises `FileNotFoundError`, `FileTooLarge`, `PartnerError`."""
        attributes = sftp.lstat(path)
        if _file_type(attributes) != S_IFREG:
            raise PartnerError(f"{url}: this is a link or a folder, where a file is expected")
        size = attributes.st_size
        if size is None:
            raise PartnerError(f"{url}: the server does not send its size, without which its end cannot be verified")
        if size > self._max_file_bytes:
            raise FileTooLarge(f"{url}: {size:,} bytes, and the limit is {self._max_file_bytes:,}")
        return SftpFileVersion(size, attributes.st_mtime)

    def _expect_within_folder(self, sftp: SFTPClient, name: str) -> None:
        """Raise `PartnerError` when a link in the path leads out of the folder. A path that does not exist is valid."""
        if self._real_folder is None:
            self._real_folder = sftp.normalize(self._folder).rstrip("/")
        with suppress(FileNotFoundError):
            if not f"{sftp.normalize(self._path(name))}/".startswith(f"{self._real_folder}/"):
                raise PartnerError(f"{self._url}/{name}: a link leads out of the folder in `url`: it is not followed")

    def _path(self, name: str) -> str:
        return f"{self._folder.rstrip('/')}/{name}".rstrip("/") or "/"

    @contextmanager
    def _connected(self, url: str) -> Iterator[SFTPClient]:
        """Yield the client of an open session.

        After an error, closes the session, so that the next attempt opens a new one, and raises a `PartnerError` that
        names `url`.
        """
        try:
            if self._session is None:
                self._session = open_session(self._pull, outbound=self._outbound, credentials=self._credentials)
            yield self._session.files
        except PartnerError:
            self.close()
            raise
        except PermissionError as error:
            self.close()
            raise PartnerError(f"{url}: the server denies reading it: ask the partner for permission") from error
        except UnicodeDecodeError as error:
            self.close()
            raise PartnerError(f"{url}: a file name there is not in UTF-8: ask the partner to rename it") from error
        except (SSHException, SFTPError, EOFError, OSError) as error:
            self.close()
            raise TransientPartnerError(f"{url}: {error or type(error).__name__}") from error


def _file_type(attributes: SFTPAttributes) -> int:
    """Return the type bits of the mode, as in `stat`; those of a regular file when the server sends no mode."""
    return S_IFMT(attributes.st_mode or 0) or S_IFREG


def read_ahead(file: SFTPFile, start: int, end: int, url: str) -> Iterator[bytes]:
    """Yield the bytes from offset `start` to `end`, with `_PARALLEL_REQUESTS` requests in flight.

    Raises `TransientPartnerError` when the file ends earlier.
    """
    send_requests_first(file)
    step = _BLOCK * _PARALLEL_REQUESTS
    for window_start in range(start, end, step):
        window_end = min(window_start + step, end)
        chunks = [(offset, min(_BLOCK, window_end - offset)) for offset in range(window_start, window_end, _BLOCK)]
        for (offset, length), block in zip(chunks, file.readv(chunks), strict=True):
            if len(block) != length:
                raise TransientPartnerError(
                    f"{url}: ended at byte {offset + len(block):,}, and not at {end:,}: it has changed"
                )
            yield block


def send_requests_first(file: SFTPFile) -> None:
    """Make `readv` send all its requests before it reads the first response.

    paramiko (5.1.0, pinned) sends them from a second thread. When responses arrive faster than that thread sends
    requests, paramiko concludes too early that no response is missing. It then requests the rest again, one by one, and
    keeps the unread responses in memory. This function replaces the method that starts the thread with one that sends
    in the calling thread.
    """

    def start(chunks: Sequence[tuple[int, int]], max_concurrent: int | None = None) -> None:
        file._prefetching, file._prefetch_done = True, False
        file._prefetch_thread(chunks, max_concurrent)

    file._start_prefetch = start
