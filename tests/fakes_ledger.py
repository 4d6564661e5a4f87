"""Fakes of late data: the table of the ledger, and the queue of arrivals."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from slackwater.late.arrival_messages import ArrivalMessage, read_message
from slackwater.late.entry import LedgerEntry
from slackwater.late.ledger import LedgerState
from tests.fakes_notification import Crashed


class ListTable:
    """A `LedgerTable` in a list; it can lose a commit to another writer, and crash before or after one."""

    def __init__(self) -> None:
        self.rows: list[LedgerEntry] = []
        self.version = 0
        self.conflicts = 0
        self.crash = ""

    def read(self, pipeline: str, dates: Collection[str]) -> LedgerState:
        rows = [row for row in self.rows if row.pipeline == pipeline and row.period in dates]
        return LedgerState(rows, self.version)

    def write(self, entries: Sequence[LedgerEntry], *, replaced: Sequence[LedgerEntry], version: int | None) -> bool:
        if self.crash == "before":
            raise Crashed
        if self.conflicts:
            self.conflicts -= 1
            self.version += 1
        if version != self.version:
            return False
        keys = {(row.period, row.attempt) for row in replaced}
        self.rows = [row for row in self.rows if (row.period, row.attempt) not in keys] + [*entries, *replaced]
        self.version += 1
        if self.crash == "after":
            raise Crashed
        return True


class ArrivalQueueFake:
    """The queue of arrivals: the messages that were sent, and after how many seconds each is received."""

    def __init__(self, error: Exception | None = None) -> None:
        self.bodies: list[str] = []
        self.delays: list[int] = []
        self.error = error

    def __call__(self, messages: Sequence[tuple[str, int]]) -> None:
        if self.error and messages:
            raise self.error
        self.bodies += [body for body, _ in messages]
        self.delays += [seconds for _, seconds in messages]

    @property
    def messages(self) -> list[ArrivalMessage]:
        return [read_message(body) for body in self.bodies]
