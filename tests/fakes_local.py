"""A runner of job runs that starts no process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slackwater.local.emr.runner import Outcome, Stop
from slackwater.local.emr.submit import Submission


class FakeRunner:
    """Ends each attempt when it is let go, or told to stop; `outcomes` are the ends, in order, success by default."""

    def __init__(self, *outcomes: Outcome) -> None:
        self._outcomes: Iterator[Outcome] = iter(outcomes)
        self._let_go = threading.Event()
        self._let_go.set()
        self.submitted: list[Submission] = []
        self.log_prefixes: list[str | None] = []

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Attempts that start in this block do not end before it does, unless they are told to."""
        self._let_go.clear()
        try:
            yield
        finally:
            self._let_go.set()

    def folder(self, job_run: str) -> Path:
        return Path("/jobs") / job_run

    def run(self, job_run: str, submission: Submission, *, log_prefix: str | None, stop: Stop) -> Outcome:
        self.submitted.append(submission)
        self.log_prefixes.append(log_prefix)
        while not self._let_go.wait(0.005):
            if stop.asked:
                return Outcome(137, "", stopped=True)
        return next(self._outcomes, Outcome(0, ""))
