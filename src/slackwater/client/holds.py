"""Days on hold: listing them, and releasing one or keeping its version."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from slackwater.errors import InputError
from slackwater.late.check.checker import Checker
from slackwater.late.check.window_dates import check_window
from slackwater.late.decision import LateDecision
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.holds import (
    decision_about,
    kept_day,
    needs_force,
    refuse_long_reason,
    released_day,
    with_released_hold,
)
from slackwater.runs.inputs.listing import InputListing
from slackwater.runs.inputs.manifest import published_manifest
from slackwater.runs.period import period_of
from slackwater.runs.record import DayRecord, Resolution, ResolutionAction
from slackwater.runs.table import Executions, RunTable, is_running, update_day
from slackwater.storage import ObjectStore


def days_on_hold(table: RunTable, pipelines: Iterable[str]) -> list[DayRecord]:
    """Return the days on hold of these pipelines, by pipeline and date. Reads nothing of other days."""
    days = [table.day(pipeline, date) for pipeline in pipelines for date in table.held(pipeline)]
    # The index may be some seconds old.
    return [day for day in days if day.hold]


def days_with_changed_tables(table: RunTable, pipelines: Iterable[Pipeline], *, now: datetime) -> list[DayRecord]:
    """Return the days of the window whose published version people were notified of: tables that it has read changed.

    Only pipelines with `on_change: notify` are read.
    """
    found = []
    for pipeline in pipelines:
        if any(item.on_change == "notify" for item in pipeline.published_tables.values()):
            first, *_, last = (day.name for day in check_window(pipeline, None, now))
            days = table.days(pipeline.pipeline, first, last)
            # A later version has read the changed days.
            found += [
                day
                for day in days
                if day.table_notice and day.published and day.published.run.attempt == day.table_notice.attempt
            ]
    return found


@dataclass(frozen=True, kw_only=True)
class HoldDecisions:
    """Records what a person decides about a day on hold."""

    project: Project
    table: RunTable
    store: ObjectStore
    inputs: InputListing
    executions: Executions
    checker: Checker
    principal: Callable[[], str]
    """Returns the ARN of the identity that calls AWS."""
    now: Callable[[], datetime]

    def release(self, pipeline: str, date: str, *, reason: str) -> bool:
        """Record that the day is published from its present inputs; return whether its run needs `force`.

        The caller starts the run. If it does not, the same call can be repeated: a check does not start the run of
        every released day. Raises `InputError` for a day that is running, or that was never published and is not on
        hold, whose inputs are not those of the hold, and without a reason or with one that is too long; `UnknownName`;
        `DayChanged`.
        """

        def decide(day: DayRecord) -> DayRecord:
            inputs, day = self._present_inputs(day), with_released_hold(day)
            if day.hold and day.hold.inputs not in {"", inputs}:
                raise InputError(self._update_hold(day))
            return released_day(day, reason=reason, principal=self.principal(), inputs=inputs, now=self.now())

        made = self._record(pipeline, date, reason, decide).resolution
        return needs_force(made.hold if made else None)

    def keep(self, pipeline: str, date: str, *, reason: str) -> DayRecord:
        """Record that the published version stays as long as the inputs are the same; return the day.

        Late data of the day does not wait any more, unless it arrived after the hold was recorded.

        Raises `InputError` for a day that is running or not on hold, whose inputs or published version are not known,
        and without a reason or with one that is too long; `UnknownName`; `DayChanged`.
        """

        def decide(day: DayRecord) -> DayRecord:
            # Those that the hold is about: newer inputs are for the next check to decide about.
            inputs = (day.hold.inputs if day.hold else "") or self._present_inputs(day)
            return kept_day(day, reason=reason, principal=self.principal(), inputs=inputs, now=self.now())

        # Read before the inputs are listed: data that is seen meanwhile keeps the day on the list.
        listed = self.table.late_day(pipeline, date)
        self._record(pipeline, date, reason, decide)
        day = self.table.day(pipeline, date)
        if listed and decision_about(day, self._present_inputs(day)) is ResolutionAction.KEPT:
            self.table.remove_unchanged_late_day(pipeline, listed)
        return day

    def _record(self, pipeline: str, date: str, reason: str, decide: Callable[[DayRecord], DayRecord]) -> DayRecord:
        """Write the decision over the record of the day, and return the day."""
        self.project.pipeline(pipeline)
        if not reason.strip():
            raise InputError("--reason: it is empty: say why, because the decision is kept with the day")
        refuse_long_reason(reason)

        def change(day: DayRecord) -> DayRecord:
            active = day.active
            if active and is_running(self.executions, active, now=self.now()):
                raise InputError(
                    f"--date: attempt {active.run.attempt} of {day.pipeline} {day.date} is running: wait until it has "
                    "ended"
                )
            return decide(day)

        return update_day(self.table, pipeline, date, change, what="the decision about it was recorded")

    def _update_hold(self, day: DayRecord) -> str:
        """Put the present reason into the hold of a day whose inputs have changed; return why it is not released.

        Nobody has seen what the present inputs have lost.
        """
        name, run = f"{day.pipeline} {day.date}", f"slackwater run {day.pipeline} --date {day.date}"
        decision = self.checker.update_hold(pipeline=day.pipeline, date=day.date)
        changed = f"--date: the inputs of {name} have changed since its hold was recorded, so it is not released"
        if decision.decision is LateDecision.HOLD:
            return f"{changed}. Its hold is now: {decision.reason}. If that is right, release it again"
        return f"{changed}. Now it needs no release: {decision.reason}. To run it with these inputs: {run}"

    def _present_inputs(self, day: DayRecord) -> str:
        """Return the digest of the inputs that a run of the day would have now."""
        local = period_of(day.date, self.project.pipeline(day.pipeline).timezone)
        before = published_manifest(self.store, day.published) if day.published else None
        return self.inputs.manifest(day.pipeline, local, known=before).digest


def describe_decision(made: Resolution) -> str:
    """Return a decision about a day, in one line."""
    by = f" by {made.principal}" if made.action is not ResolutionAction.ENDED else ""
    return f"{made.action.label}{by} on {made.at:%Y-%m-%d %H:%M} UTC: {made.reason}"
