"""A partner's HTTP server: what it lists, and the files below its address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from time import sleep as wait_for
from typing import BinaryIO
from urllib.parse import quote, urlsplit

import httpx

from slackwater.receiver.partners.credentials import Credentials
from slackwater.receiver.partners.http_listing import asked_files, indexed_names, json_listing
from slackwater.receiver.partners.http_session import HttpSession
from slackwater.receiver.partners.http_transfer import Transfer
from slackwater.receiver.partners.outbound import GuardedTransport, Outbound
from slackwater.receiver.partners.partner import Download, ListedFile
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.pull_config import PullConfig


class HttpPartner:
    """`slackwater.receiver.partners.partner.Partner` over HTTP and HTTPS."""

    def __init__(
        self,
        pull: PullConfig,
        *,
        outbound: Outbound,
        credentials: Credentials | None,
        max_file_bytes: int,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = wait_for,
    ) -> None:
        """Every connection passes `outbound`, unless `transport` is given. Raises `DefinitionError`."""
        self._pull = pull
        self._max_file_bytes = max_file_bytes
        self._session = HttpSession(
            pull.url, credentials=credentials, transport=transport or GuardedTransport(outbound), sleep=sleep
        )

    def close(self) -> None:
        """Close its connections."""
        self._session.close()

    def list(self, pattern: FilePattern, days: Sequence[date]) -> Sequence[ListedFile]:
        """Return the files of those days, and maybe others. Raises `PartnerError` naming the address."""
        if self._pull.listing == "json":
            return tuple(json_listing(self._session, self._pull.url))
        if self._pull.listing == "html":
            # Index pages tell names alone: without asking for each file, one that has changed would never be seen.
            names = indexed_names(self._session, self._address, pattern, days)
        else:
            names = (name for day in days for name in pattern.names(day))
        return tuple(asked_files(self._session, self._address, names))

    def fetch(self, name: str, into: BinaryIO) -> Download:
        """Write the file to the beginning of `into`.

        Raises `FileVanished`, `FileTooLarge`, or `PartnerError` for all else.
        """
        address = self._address(name)
        transfer = Transfer(address, into, max_file_bytes=self._max_file_bytes)
        for attempt in self._session.attempts():
            with attempt, self._session.answer("GET", address, transfer.headers()) as answer:
                return transfer.take(answer)
        raise AssertionError("the last attempt raises")

    def _address(self, name: str) -> str:
        """The address of a path below the listed one, which keeps its query."""
        listed = urlsplit(self._pull.url)
        return listed._replace(path=f"{listed.path.rstrip('/')}/{quote(name)}").geturl()
