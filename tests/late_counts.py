"""What a source of a model of late data has reported, and what follows from it for checks, runs and waiting runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from slackwater.late.decision import CheckReport, DecisionRule, LateDecision
from slackwater.pipeline.when import When
from slackwater.runs.record import Run
from slackwater.sources.counts import Counts
from slackwater.state.facts import Report
from slackwater.state.reports import new_report
from tests.fakes_check import PIPELINE
from tests.late_assertions import LateAssertions
from tests.late_waiting import Lacks, ScheduledRuns, hours_of

SOURCE = "weather"
"""The source that reports: its events are pushed, at 17:00 UTC."""
_HOUR = timedelta(hours=1)
_WITHIN_HOURS = 2
_AFTER_INCOMPLETE = {DecisionRule.COOL_DOWN, DecisionRule.TOO_MANY, DecisionRule.OVER_BUDGET, DecisionRule.GROWN}
"""Rules about grown days that do not wait for more events."""


class LateCounts(LateAssertions):
    """The reports, and assertions about what was computed from them."""

    reports: list[Report]
    when: When
    scheduled: ScheduledRuns
    may_wait: bool
    """Whether an execution may wait although its inputs are there: nothing has told it that they are."""

    def begin_reports(self, *, has_counts: bool, when: Mapping[str, Any]) -> None:
        """Let the source report its counts, if `has_counts`, and scheduled runs wait for all of its events."""
        self.reports, self.when = [], When.model_validate({"inputs": {SOURCE: "complete"}, **when})
        self.scheduled, self.may_wait = ScheduledRuns(self.world, self.lacks), False
        if has_counts:
            counts = Counts(window="1h", within=f"{_WITHIN_HOURS}h")
            source = self.world.project.sources[SOURCE].model_copy(update={"counts": counts})
            sources = {**self.world.project.sources, SOURCE: source}
            self.world.project = self.world.project.model_copy(update={"sources": sources})
            self.world.define(when=self.when)
            self.world.wake_source = self.scheduled.wake_source
            self.world.on_check, self.world.on_frozen = self.check_is_right, self.run_is_right

    @property
    def has_counts(self) -> bool:
        return self.world.project.sources[SOURCE].counts is not None

    def put_report(self, date: str, difference: int, *, age: int = 0, through: int = 24, first: int = 24) -> None:
        """Report the events of a day: `difference` more than are stored, as counted `age` hours ago.

        It says that there were no events in the `first` hours before, and `through` hours from 17:00 UTC on.
        """
        at, source = datetime.fromisoformat(f"{date}T17:00:00+00:00"), self.world.project.sources[SOURCE]
        stored = self.by_hour(self.raw_of_all(date))[at]
        report = new_report(
            source, as_of=self.world.time - age * _HOUR, through=at + through * _HOUR, principal="push:acme",
            counts={at - first * _HOUR: 0, at: max(0, stored + difference)},
        )  # fmt: skip
        self.world.state.put_report(report)
        self.reports.append(report)

    def raw_of_all(self, date: str) -> dict[str, int]:
        """The rows of the source's present objects of a UTC date."""
        prefix = f"s3://raw/raw/source={SOURCE}/date={date}/"
        objects = self.world.store.objects
        return {uri: int(item[1]["rows"]) for uri, item in objects.items() if uri.startswith(prefix)}

    def by_hour(self, rows: Mapping[str, int]) -> Counter[datetime]:
        """Return the rows of the source's objects by UTC hour."""
        hours = Counter[datetime]()
        for uri, count in rows.items():
            _, _, _, _, source, date, hour, _ = uri.split("/")
            if source == f"source={SOURCE}":
                hours[
                    datetime.fromisoformat(f"{date.removeprefix('date=')}T{hour.removeprefix('hour=')}:00+00:00")
                ] += count
        return hours

    def states(self, date: str, rows: Mapping[str, int]) -> list[tuple[str, int, int]]:
        """Return state, number sent and number stored of each hour of a day, against the rows of objects."""
        stored, states = self.by_hour(rows), list[tuple[str, int, int]]()
        for hour in hours_of(date, self.definition().timezone):
            named = sorted((each.as_of, each.id, each) for each in self.reports if hour in each.counts)
            sent, is_known = 0, False
            if named:
                newest = named[-1][-1]
                sent, is_known = sum(newest.counts[hour].values()), newest.through >= hour + _HOUR
            elif self.reports:
                first = min(start for each in self.reports for start in each.counts)
                is_known = first <= hour and hour + _HOUR <= max(each.through for each in self.reports)
            exact = "surplus" if stored[hour] > sent else "complete" if stored[hour] >= 0.99995 * sent else "short"
            states.append((exact if is_known else "unknown", sent, stored[hour]))
        return states

    def lacks(self, date: str) -> Lacks:
        """Return what the day lacks now of what its run waits for."""
        if SOURCE not in self.definition().when.inputs:
            return Lacks(False, False)
        states = {state for state, _, _ in self.states(date, self.raw(date))}
        return Lacks("unknown" in states, "short" in states)

    def counts_are(self, counts: Any, date: str, rows: Mapping[str, int]) -> None:
        """The totals of a day are those of its known hours."""
        states = self.states(date, rows)
        known = [each for each in states if each[0] != "unknown"]
        assert (counts.sent, counts.stored) == tuple(sum(each[place] for each in known) for place in (1, 2)), date
        found = {state for state, _, _ in states}
        assert counts.state == next(each for each in ("short", "unknown", "surplus", "complete") if each in found), date

    def run_is_right(self, run: Run) -> None:
        """A run records what its source had sent when it listed its inputs."""
        record = self.world.table.run(PIPELINE, run.date, run.attempt)
        if SOURCE in self.definition().sources and not record.rollback:
            [counts] = record.counts
            self.counts_are(counts, run.date, self.rows_of(run.manifest))

    def check_is_right(self, report: CheckReport) -> None:
        """Late data of a day waits exactly while its source has reported more events, for as long as it may."""
        limit = self.limits.get("max_age_hours", _WITHIN_HOURS)
        for day in report.days:
            for counts in day.counts:
                self.counts_are(counts, day.date, self.raw(day.date))
            is_short = self.lacks(day.date).incomplete
            if day.rule is DecisionRule.INCOMPLETE:
                assert is_short, day
                assert day.decision is LateDecision.DEFER
                assert report.checked_at < day.figures.not_before <= report.checked_at + (limit + 0.1) * _HOUR
            elif day.rule in _AFTER_INCOMPLETE and is_short and self.on_removed != "drop":
                record = self.world.table.day(PIPELINE, day.date)
                # A day that is due for another reason does not wait: a definition, a failure, a decision.
                is_due = self.runs_for_its_definition(day.date) or record.hold or record.resolution
                if record.published and record.attempts == day.attempt and not is_due:
                    written = [self.world.store.objects[uri][2] for uri in self.new_objects(day.date)]
                    assert not written or report.checked_at - min(written) >= (limit - 0.1) * _HOUR, day
