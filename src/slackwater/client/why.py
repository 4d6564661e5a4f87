"""Why a day is as it is: what is published, what has come since, what a check decides, and what would run the day."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from slackwater.client.days.live import ProvisionalDay, provisional_day
from slackwater.client.waiting import FailedData, InputWait, ReadsWaits, failed_data, input_wait
from slackwater.errors import InputError
from slackwater.formatting import counted, timestamp
from slackwater.late.check.checker import Checker
from slackwater.late.check.missing import missing_late_data
from slackwater.late.check.read_facts import thresholds_of
from slackwater.late.check.reasons import describe_late_data, describe_lost
from slackwater.late.check.window_dates import check_window
from slackwater.late.decision import DayDecision, DecisionRule, LateDecision
from slackwater.model import Record
from slackwater.pipeline.definition import Pipeline
from slackwater.project.cron import next_time
from slackwater.project.schedule import ScheduledWork, schedule_of
from slackwater.project.scheduled_starts import scheduled_date
from slackwater.runs.inputs.difference import SourceDifference
from slackwater.runs.inputs.manifest import InputManifest, published_manifest
from slackwater.runs.period import Period, period_of, shifted
from slackwater.runs.record import DayRecord
from slackwater.state.waits import DayKey

# A run of such a day does not need a person's decision first.
_RUN_BY_HAND = frozenset({DecisionRule.FAILED, DecisionRule.UNREADABLE, DecisionRule.CHANGING})
# Without `force`, a run would find nothing new.
_FORCED = frozenset({DecisionRule.UNCHANGED, DecisionRule.MANIFEST_GONE})


class InputData(Record):
    """Data of one input of a day."""

    name: str
    rows: int
    objects: int
    files: int
    """Of a partner; 0 for pushed events and tables."""
    last_arrival: datetime | None


class LateData(InputData):
    """Late data of one input, and the rows of dropped files."""

    text: str
    """What has changed, also what is gone."""


class PublishedDay(Record):
    """The published version of a day."""

    attempt: int
    run_id: str
    at: datetime
    rows: int
    inputs: tuple[InputData, ...]
    """By name; empty if the input manifest is gone."""


class NextLook(Record):
    """When the day is looked at again."""

    at: datetime | None
    """UTC; None if that is not known."""
    text: str


class Why(Record):
    """Why a day is as it is."""

    pipeline: str
    date: str
    published: PublishedDay | None
    provisional: ProvisionalDay | None
    """The version in the table of a day that has no published one, because it has not ended or waits for its run."""
    inputs: tuple[InputData, ...]
    """Of a day without a published version: the data that it has."""
    late: tuple[LateData, ...]
    """What has come or gone since the published run has listed its inputs."""
    decision: DayDecision
    rule: str
    """When the rule of the decision applies."""
    error: str
    """Of the latest attempt, if it did not publish."""
    failed: tuple[FailedData, ...]
    """What has failed of the published version, and of what a run of the day would read."""
    missing: tuple[str, ...]
    """What the published run had waited for in vain."""
    wait: InputWait | None
    """What a scheduled run waits for; None if the pipeline waits for nothing, or the day runs or is published."""
    next_look: NextLook
    run_now: tuple[str, ...]
    """What would run the day at once."""


@dataclass(frozen=True, kw_only=True)
class Explainer:
    """Explains days."""

    checker: Checker
    """With the deployed definitions. It writes nothing."""
    is_scheduled: bool
    """Whether something starts runs and checks at their times."""
    waits: ReadsWaits
    collect_minutes: int
    """For how long new objects are collected before their days are checked; 0 if they lead to no check."""

    def why(self, pipeline: str, date: str, *, as_of: str | None = None) -> Why:
        """Explain a day or an hour of a deployed pipeline; `date` and `as_of`, by default the current one, have begun.

        `as_of` is as in `check_window`. Raises `InputError` for a day after `as_of`, `CloudError`, `ObjectInvalid`.
        """
        checker, definition = self.checker, self.checker.project.pipeline(pipeline)
        day, now = period_of(date, definition.timezone), checker.now()
        if as_of is not None and date > (as_of := check_window(definition, as_of, now)[-1].name):
            raise InputError(f"as_of: {as_of} is before the {definition.period} {date}")
        is_simulated = as_of is not None and day.name < check_window(definition, None, now)[0].name
        first = check_window(definition, as_of, now)[0]
        # Of an earlier day: what a check would decide that still had the day in its window.
        is_older = day.name < first.name
        decision = self._decision(definition, date, as_of=shifted(date, 1) if is_older else as_of)
        record = checker.table.day(pipeline, date)
        published = self._published(definition, record)
        unread = definition.tables if published is None else ()
        manifest = None if published else checker.inputs.manifest(pipeline, day, unread=unread)
        latest = checker.table.run(pipeline, date, record.attempts) if record.attempts else None
        waits = definition.waits and published is None and decision.rule is not DecisionRule.RUNNING
        key = DayKey(pipeline, date)
        verdicts = checker.verdicts
        wait = input_wait(checker, key, self.waits, verdicts) if waits and verdicts else None
        return Why(
            pipeline=pipeline,
            date=date,
            published=published,
            provisional=provisional_day(record),
            inputs=tuple(_input_data(definition, manifest, definition.inputs)) if manifest else (),
            late=tuple(_late_data(item) for item in decision.sources if item.changes),
            decision=decision,
            rule=decision.rule.when,
            error=(latest.error if latest else None) or "",
            failed=tuple(failed_data(checker, definition, day, verdicts)) if verdicts else (),
            missing=latest.missing if latest and published and latest.run.attempt == published.attempt else (),
            wait=wait,
            next_look=_end_of_wait(wait)
            if wait and wait.runs
            else self._next_look(
                definition,
                day,
                decision,
                before_window=first if is_older else None,
                simulated=as_of if is_simulated else None,
            ),
            run_now=tuple(self._run_now(definition, decision)),
        )

    def _decision(self, definition: Pipeline, date: str, *, as_of: str | None) -> DayDecision:
        """Return what a check of `as_of` decides about a day."""
        report = self.checker.check(pipeline=definition.pipeline, as_of=as_of, dates=[date])
        return next(item for item in report.days if item.date == date)

    def _published(self, definition: Pipeline, record: DayRecord) -> PublishedDay | None:
        published = record.published
        if published is None:
            return None
        manifest = published_manifest(self.checker.store, published)
        names = sorted({item.source for item in manifest.objects}) if manifest else ()
        return PublishedDay(
            attempt=published.run.attempt,
            run_id=published.run.run_id,
            at=published.at,
            rows=published.publication.rows,
            inputs=tuple(_input_data(definition, manifest, names)) if manifest else (),
        )

    def _next_look(
        self,
        definition: Pipeline,
        day: Period,
        decision: DayDecision,
        *,
        before_window: Period | None,
        simulated: str | None,
    ) -> NextLook:
        """Return when the day is looked at again.

        `before_window` is the first day of the window after an older day. `simulated` is the day as of which a check
        has the day in its window, if the checks of today do not have it.
        """
        if look := self._look_without_check(definition, day, decision):
            return look
        if before_window:
            since = f"begins on {before_window.name} (late.window_{definition.period}s {definition.window_length})"
            by_hand = f"slackwater monitor {definition.pipeline} --as-of {shifted(day.name, 1)}"
            text = (
                f"no check looks at the {definition.period}: it is before the window, which {since}, except {by_hand}"
            )
            return NextLook(at=None, text=text)
        limit = decision.figures.not_before if decision.figures and decision.decision is LateDecision.DEFER else None
        if simulated:
            since = f" after {timestamp(limit)}: limits count real time" if limit else ""
            by_hand = f"slackwater monitor {definition.pipeline} --as-of {simulated}"
            return NextLook(at=limit, text=f"only by hand: {by_hand}{since}")
        times = list[tuple[datetime, str]]()
        after = max(self.checker.now(), day.end)
        if self.is_scheduled and (daily := next_time(definition.schedule.monitor, definition.timezone, after=after)):
            times.append((daily, "by the schedule"))
        if self.collect_minutes and limit:
            times.append((limit, "when the limit ends"))
        if self.collect_minutes and decision.ages_at:
            times.append((decision.ages_at, "when late data has waited for as long as it may"))
        minutes = counted(self.collect_minutes, "minute")
        is_checked = self.collect_minutes and decision.rule is not DecisionRule.CURRENT
        arrival = f"about {minutes} after data of the {definition.period} arrives" if is_checked else ""
        if not times:
            return NextLook(at=None, text=f"{f'{arrival}, or' if arrival else 'only'} by hand: slackwater monitor")
        at, text = min(times)
        latest = f"{timestamp(at)}, {text}"
        return NextLook(at=at, text=f"{arrival}, and at the latest {latest}" if arrival else latest)

    def _look_without_check(self, definition: Pipeline, day: Period, decision: DayDecision) -> NextLook | None:
        """Return when the period is looked at again if no check does so next."""
        if decision.rule is DecisionRule.RUNNING:
            return NextLook(at=None, text="when its run has ended")
        return self._first_run(definition, day) if decision.attempt is None else None

    def _first_run(self, definition: Pipeline, day: Period) -> NextLook:
        """Return when the schedule runs a day that was not published yet."""
        [task] = [
            task
            for task in schedule_of(self.checker.project).tasks
            if (task.work, task.subject) == (ScheduledWork.PROCESS, definition.pipeline)
        ]
        due = day.end + timedelta(hours=task.buffer_hours, minutes=task.buffer_minutes)
        at = next_time(task.cron, task.timezone, after=due - timedelta(minutes=1))
        if not self.is_scheduled or at is None or scheduled_date(task, at) != day.name:
            return NextLook(at=None, text="its first run: no schedule runs the day")
        if at <= self.checker.now():
            return NextLook(at=None, text=f"its first run: the schedule's time for it, {timestamp(at)}, is over")
        return NextLook(at=at, text=f"its first run, {timestamp(at)} by the schedule")

    def _run_now(self, definition: Pipeline, decision: DayDecision) -> Iterator[str]:
        """Yield what would run the day at once."""
        rule, name = decision.rule, f"{decision.pipeline} --date {decision.date}"
        if rule is DecisionRule.RUNNING:
            yield "nothing: it is running"
        elif rule in _FORCED:
            yield f"slackwater run {name} --force"
        elif (decision.decision is LateDecision.HOLD and rule not in _RUN_BY_HAND) or rule is DecisionRule.KEPT:
            yield f"slackwater late release {name} --reason TEXT"
        elif decision.decision is LateDecision.DEFER:
            yield f"slackwater run {name} (a run by hand waits for no limit)"
        else:
            yield f"slackwater run {name}"
        if rule is DecisionRule.BELOW:
            limits = thresholds_of(definition, self.checker.project)
            for source in decision.sources:
                yield from missing_late_data(source, limits[source.source])
        figures = decision.figures
        if rule is DecisionRule.TOO_EXPENSIVE and figures and figures.worth_usd:
            percent, price = figures.late_percent or 0.0, figures.estimated_usd or 0.0
            yield f"late data of {percent * price / figures.worth_usd:.3g} %, now it is {percent:.3g} %"


def _end_of_wait(wait: InputWait) -> NextLook:
    """Return when a run that waits looks at its inputs again."""
    text = "when its inputs change, and every 15 minutes"
    return NextLook(at=wait.until, text=f"{text}; {wait.end}" if wait.end else text)


def _input_data(definition: Pipeline, manifest: InputManifest, names: Iterable[str]) -> Iterator[InputData]:
    """Yield what the manifest has of each of the inputs."""
    objects_of = manifest.by_source()
    for name in names:
        objects = objects_of.get(name, ())
        yield InputData(
            name=name,
            rows=sum(item.rows for item in objects),
            objects=len(objects),
            files=0 if name in definition.tables else len({item.file for item in objects} - {None}),
            last_arrival=max((item.arrived for item in objects), default=None),
        )


def _late_data(source: SourceDifference) -> LateData:
    late = source.unprocessed
    texts = (*describe_lost(source), *([describe_late_data(source)] if late.objects else []))
    return LateData(
        name=source.source,
        rows=late.rows,
        objects=late.objects,
        files=0 if source.of_published_days else len({item.file for item in source.changes} - {None}),
        last_arrival=max((item.arrived for item in source.changes if item.arrived), default=None),
        text=" and ".join(texts),
    )
