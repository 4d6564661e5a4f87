"""A check that decides as any other, and writes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from slackwater.late.check.checker import Checker
from slackwater.runs.table import RunTable

# The names of the methods of a run table that write begin with these.
_WRITES = ("save", "record_", "remove_")


def without_writes(checker: Checker) -> Checker:
    """Return the checker with a run table that it cannot change. What it reads is the same.

    `Checker.check` then counts no re-run, records no hold and no arrival, and leaves the list of late days as it is.
    """
    return replace(checker, table=cast("RunTable", _ReadTable(checker.table)))


class _ReadTable:
    """A run table whose writes do nothing."""

    def __init__(self, table: RunTable) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Any:
        return _write_nothing if name.startswith(_WRITES) else getattr(self._table, name)


def _write_nothing(*_: object, **__: object) -> None:
    pass
