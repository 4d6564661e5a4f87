"""The re-runs that the checks of one calendar day have started, which limits count."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from slackwater.model import UpdatedRecord


class CountedRerun(UpdatedRecord):
    """A re-run that a check has decided on. Date and attempt identify it: a repeated check does not count it again."""

    date: str
    """The day that runs again."""
    attempt: Annotated[int, Field(ge=1)]
    """The attempt that the re-run gets."""
    at: datetime
    """When the check decided, UTC."""
    usd: float | None = None
    """The estimated price; None if no run of the pipeline has a price yet."""


class RerunUsage(UpdatedRecord):
    """The re-runs of one pipeline that its checks have started on one calendar day.

    `version` counts the writes, as in `DayRecord`: parallel checks cannot both count the last re-run.
    """

    pipeline: str
    date: str
    """The calendar day in the pipeline's timezone."""
    version: int = 0
    reruns: tuple[CountedRerun, ...] = ()

    @property
    def usd(self) -> float:
        """The estimated price of all of them; those without an estimate count as 0."""
        return sum(item.usd or 0.0 for item in self.reruns)

    def has(self, date: str, attempt: int) -> bool:
        """Whether the re-run is counted."""
        return any((item.date, item.attempt) == (date, attempt) for item in self.reruns)
