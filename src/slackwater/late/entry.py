"""The rows of the ledger, and the late inputs from which a check makes them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from typing import Final, Literal, NamedTuple

from slackwater.model import Record
from slackwater.runs.inputs.difference import Change, object_changes
from slackwater.runs.inputs.manifest import InputManifest

NOT_CHECKED = "manual"
"""The rule of a late input that a run took in although no check had decided to run the day again."""


DEFINITION: Final = "definition"
"""The source and the change of the row of a new definition."""


REJECTED: Final = "rejected"
"""The change of the row of events that were rejected."""


OLDER, EVENT_REJECTED, EVENT_ACCEPTED = "older", "event_rejected", "event_accepted"
"""Rules of late inputs about which no rule of a check decides: of days before the window, rejected events, and those of
them that were accepted when they were sent again."""


InputKey = tuple[str, str, str, str]


class LateInput(Record):
    """One object that differs from the inputs of a published run, or one published day of another pipeline.

    A definition that has changed since the run is one as well, without rows.
    """

    source: str
    file: str | None
    uri: str
    etag: str
    change: Change | Literal["definition", "rejected"]
    """A new object of a changed file is changed; the objects that it replaces are no late inputs."""
    arrived: datetime
    rows: int
    bytes: int
    rows_before: int | None = None
    """That the published run has read of the source; None of a definition, and in what older releases have stored."""

    @property
    def key(self) -> InputKey:
        """Identifies the input within a day: what reads it, its URI, its content and its change."""
        return self.source, self.uri, self.etag, self.change


class LedgerEntry(NamedTuple):
    """One row of the ledger, in the order of its columns."""

    pipeline: str
    date: date
    source: str
    file: str | None
    uri: str
    etag: str
    change: str
    arrived: datetime
    """When the object was written, UTC."""
    lateness_hours: float | None
    """From the end of the day to the arrival; None for a removed input."""
    rows: int
    bytes: int
    decided_at: datetime
    decision: str
    rule: str
    """A `DecisionRule`, or `NOT_CHECKED`."""
    reason: str
    execution: str | None
    """Name of the monitoring execution that has decided; None without a check."""
    attempt: int | None
    """The run that took the input in; None while none has."""
    cost_usd: float | None
    """The input's share of the run's cost, by rows; None without a run, or while the cost is unknown."""
    rows_differing: int | None
    """Rows of the output that the run has changed; None without a comparison."""
    metric: str | None
    """The metric whose total the run has changed most; None without any."""
    metric_change_percent: float | None
    notified: bool
    """Whether people were sent a message about the run's version."""
    month: str
    """Of `decided_at`, UTC, such as 2013-03: the partition of the table."""
    rows_before: int | None = None
    """That the run before has read of the source."""
    table_rows: int | None = None
    """Of the version that the run has published; None without a run."""
    hour: int | None = None
    """Of an hourly pipeline, from 0 to 23, as `date` in UTC; None of a day."""

    @property
    def period(self) -> str:
        """The name of the day or the hour."""
        return self.date.isoformat() if self.hour is None else f"{self.date}T{self.hour:02d}"

    @property
    def key(self) -> InputKey:
        """As `LateInput.key`."""
        return self.source, self.uri, self.etag, self.change


def late_inputs(before: InputManifest, now: InputManifest, *, sources: Iterable[str]) -> tuple[LateInput, ...]:
    """Return the late inputs of a day, in order of source and URI.

    Their added and changed rows add up to the late rows of `slackwater.runs.inputs.difference.difference`.
    """
    inputs: list[LateInput] = []
    objects_before, objects_now = before.by_source(), now.by_source()
    for source in sources:
        earlier = objects_before.get(source, ())
        changes = object_changes(earlier, objects_now.get(source, ()))
        gone = [(item, change) for item, change in changes.gone if change is Change.REMOVED]
        rows = sum(item.rows for item in earlier)
        for item, change in (*changes.new, *gone):
            inputs.append(
                LateInput(
                    source=item.source,
                    file=item.file,
                    uri=item.uri,
                    etag=item.etag,
                    arrived=item.arrived,
                    rows=item.rows,
                    bytes=item.bytes,
                    change=change,
                    rows_before=rows,
                )
            )
    return tuple(sorted(inputs, key=lambda item: (item.source, item.uri, item.etag)))


def definition_input(digest: str, *, at: datetime) -> LateInput:
    """Return the input for a definition with this digest, which a check or a run has found changed at `at`, UTC."""
    return LateInput(source=DEFINITION, file=None, uri="", etag=digest, change=DEFINITION, arrived=at, rows=0, bytes=0)
