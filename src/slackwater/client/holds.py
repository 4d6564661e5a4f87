"""Days on hold: listing them, and releasing or rejecting one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from slackwater.errors import DayChanged, InputError
from slackwater.project import Project
from slackwater.runs.day import day_of, parse_date
from slackwater.runs.holds import needs_force, rejected_day, released_day
from slackwater.runs.inputs.listing import InputListing, published_manifest
from slackwater.runs.record import DayRecord, ResolutionAction
from slackwater.runs.table import Executions, RunTable, is_alive
from slackwater.storage import ObjectStore

# A check or a run may change the day at the same time.
_ATTEMPTS = 5


def days_on_hold(table: RunTable, pipelines: Iterable[str]) -> list[DayRecord]:
    """Return the days on hold of these pipelines, by pipeline and date. Reads nothing of other days."""
    days = [table.day(pipeline, date) for pipeline in pipelines for date in table.held(pipeline)]
    # The index may be some seconds old.
    return [day for day in days if day.hold]


@dataclass(frozen=True, kw_only=True)
class HoldDecisions:
    """Records what a person decides about a day on hold."""

    project: Project
    table: RunTable
    store: ObjectStore
    inputs: InputListing
    executions: Executions
    principal: Callable[[], str]
    """Returns the ARN of the identity that calls AWS."""
    now: Callable[[], datetime]

    def release(self, pipeline: str, date: str, *, reason: str) -> bool:
        """Record that the day is published from its present inputs; return whether its run needs `force`.

        The caller starts the run. If it does not, the next check does. Raises `InputError` for a day that is running,
        or that was never published and is not on hold, and without a reason; `UnknownName`; `DayChanged`.
        """

        def decide(day: DayRecord) -> DayRecord:
            inputs = self._present_inputs(day)
            return released_day(day, reason=reason, principal=self.principal(), inputs=inputs, now=self.now())

        before = self._record(pipeline, date, reason, decide)
        return needs_force(before.hold)

    def reject(self, pipeline: str, date: str, *, reason: str) -> DayRecord:
        """Record that the published version stays as long as the inputs are the same; return the day.

        Raises `InputError` for a day that is running or not on hold, whose inputs or published version are not known,
        and without a reason; `UnknownName`; `DayChanged`.
        """

        def decide(day: DayRecord) -> DayRecord:
            # Those that the hold is about: newer inputs are for the next check to decide about.
            inputs = (day.hold.inputs if day.hold else "") or self._present_inputs(day)
            return rejected_day(day, reason=reason, principal=self.principal(), inputs=inputs, now=self.now())

        self._record(pipeline, date, reason, decide)
        return self.table.day(pipeline, date)

    def _record(self, pipeline: str, date: str, reason: str, decide: Callable[[DayRecord], DayRecord]) -> DayRecord:
        """Write the decision over the record of the day, and return the record before."""
        self.project.pipeline(pipeline)
        if not reason.strip():
            raise InputError("--reason: it is empty: say why, because the decision is kept with the day")
        for attempt in range(1, _ATTEMPTS + 1):
            day = self.table.day(pipeline, date)
            self._refuse_if_running(day)
            try:
                self.table.save_day(decide(day))
            except DayChanged:
                if attempt == _ATTEMPTS:
                    raise
            else:
                break
        return day

    def _refuse_if_running(self, day: DayRecord) -> None:
        active = day.active
        if active and is_alive(self.executions, active.execution, since=active.since, now=self.now()):
            raise InputError(
                f"--date: attempt {active.run.attempt} of {day.pipeline} {day.date} is running: wait until it has ended"
            )

    def _present_inputs(self, day: DayRecord) -> str:
        """Return the digest of the inputs that a run of the day would have now."""
        local = day_of(parse_date(day.date), self.project.pipeline(day.pipeline).timezone)
        before = published_manifest(self.store, day.published) if day.published else None
        return self.inputs.manifest(day.pipeline, local, known=before.objects if before else ()).digest


def describe_decision(day: DayRecord) -> str:
    """Return what was last decided about a day, in one line; empty without a decision."""
    made = day.resolution
    if made is None:
        return ""
    by = f" by {made.principal}" if made.action is not ResolutionAction.ENDED else ""
    return f"{made.action}{by} on {made.at:%Y-%m-%d %H:%M} UTC: {made.reason}"
