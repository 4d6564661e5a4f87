"""A runner of attempts that starts no process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from slackwater.local.emr.runner import AttemptResult
from slackwater.local.emr.submit import Submission


class FakeAttemptRunner:
    """Ends each attempt with the next of `results`, success by default, unless it is held or stopped."""

    def __init__(self, *results: AttemptResult) -> None:
        self._results: Iterator[AttemptResult] = iter(results)
        self._released = threading.Event()
        self._released.set()
        self.submitted: list[Submission] = []
        self.log_prefixes: list[str | None] = []

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Keep the attempts that start in this block running until it ends, unless they are stopped."""
        self._released.clear()
        try:
            yield
        finally:
            self._released.set()

    def run(
        self, job_run: str, submission: Submission, *, log_prefix: str | None, stop: threading.Event
    ) -> AttemptResult:
        self.submitted.append(submission)
        self.log_prefixes.append(log_prefix)
        while not self._released.wait(0.005):
            if stop.is_set():
                return AttemptResult(137, "", stopped=True)
        return next(self._results, AttemptResult(0, ""))
