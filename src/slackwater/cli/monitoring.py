"""Shows the progress of a monitoring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from slackwater.client.monitoring import MonitorObserver
from slackwater.client.results import CheckReport
from slackwater.progress import ProgressBoard, TaskState

_CHECK = "check the days"


class MonitorBoards(MonitorObserver):
    """Shows the check on one board, then the report, then the days that are run again on a second board."""

    def __init__(self, show_report: Callable[[CheckReport], None]) -> None:
        """`show_report` shows the report of the check, before the days run."""
        self._show_report = show_report
        self._stack = ExitStack()
        self._board: ProgressBoard | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def check_started(self) -> None:
        """Show the check as running."""
        self._open().update(_CHECK)

    def check_ended(self, *, seconds: float, failed: bool) -> None:
        """Show the end of the check."""
        self._open().update(_CHECK, TaskState.FAILED if failed else TaskState.DONE, seconds=seconds)
        self._close()

    def report(self, report: CheckReport) -> None:
        """Show the report."""
        self._show_report(report)

    def days(self, notes: Mapping[str, str]) -> None:
        """Show the current state of each day."""
        for date, note in notes.items():
            self._open().update(date, note=note)

    def days_ended(self, dates: tuple[str, ...], *, succeeded: bool) -> None:
        """Show the end of each day."""
        for date in dates:
            self._open().update(date, TaskState.DONE if succeeded else TaskState.FAILED)
        self._close()

    def _open(self) -> ProgressBoard:
        if self._board is None:
            self._board = self._stack.enter_context(ProgressBoard())
        return self._board

    def _close(self) -> None:
        self._stack.close()
        self._board = None
