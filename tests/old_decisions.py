"""How a check decided before the list of rules, to compare both. It goes with the last commit of this change."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from humanize import naturalsize

from slackwater.errors import DayChanged, ObjectMissing, SlackwaterError
from slackwater.formatting import counted, hour_range, percentage, timestamp
from slackwater.late.check.decision import (
    MAX_FAILURES,
    MAX_TABLE_RERUNS,
    DayDecision,
    DecisionFigures,
    DecisionRule,
    LateDecision,
)
from slackwater.late.check.errors import TRANSIENT_ERRORS
from slackwater.late.check.wait import MaxAge
from slackwater.late.check.window import today
from slackwater.pipeline.definition import Late, Pipeline
from slackwater.pipeline.table_inputs import OnChange, TableInput
from slackwater.runs.day import day_of
from slackwater.runs.holds import decision_about, describe_moved_hours
from slackwater.runs.inputs.difference import Amount, Change, FileChange, InputChange, SourceDifference
from slackwater.runs.inputs.manifest import Record
from slackwater.runs.record import DayRecord, ResolutionAction, RunRecord
from slackwater.runs.rerun_usage import RerunUsage, ReservedRerun
from slackwater.sources.late_thresholds import LateThresholds


class DefinitionChange(NamedTuple):
    """What has changed in the definition of a pipeline since the published run of a day."""

    lines: tuple[str, ...]
    """In words, one for each input."""
    digest: str
    """Of the present definition."""
    reruns: bool
    """Whether the pipeline runs such days again."""
    moves_hours: bool
    """Whether the pipeline had another timezone."""

    def reason(self, *, runs_again: bool) -> str:
        """Return the change as a reason, with what becomes of the day."""
        result = "the run reads with the new one" if runs_again else "the published version keeps the earlier one"
        return f"the definition has changed since the published run ({', '.join(self.lines)}): {result}"


def threshold_label(name: str, value: float) -> str:
    """Return a threshold in the words of a reason: `percent 1`, `rows 1,000`."""
    return f"{name} {value:g}" if name == "percent" else f"{name} {value:,}"


def describe_lost(source: SourceDifference) -> Iterator[str]:
    """Yield the reasons why a run needs a person's decision: vanished objects, and files that the partner removed."""
    if any(item.on_removed is None for item in source.lost):
        yield describe_removed(source)
    if removed := [item for item in source.lost if item.on_removed]:
        yield f"{source.source}: {_describe_files(removed)} that the published run has read"


def describe_removed(source: SourceDifference) -> str:
    """Return what has vanished, for a reason: `weather has lost 2 objects with 13 rows that the published ...`.

    Files that the partner has removed do not count.
    """
    gone = [item for item in source.removed if item.on_removed is None]
    lost = sum((item.before for item in gone), Amount())
    if source.of_published_days:
        dates = ", ".join(sorted(item.date for item in gone))
        return f"{source.source} has lost {counted(lost.rows, 'row')} that the published run has read: {dates}"
    hours = hour_range((item.date, item.hour) for item in gone)
    return (
        f"{source.source} has lost {counted(lost.objects, 'object')} with {counted(lost.rows, 'row')} that the "
        f"published run has read, of {hours}, without a replacement"
    )


def describe_dropped(source: SourceDifference) -> str:
    """Return what a source loses with dropped files, for a reason; empty without any."""
    dropped = [item for item in source.removed if item.on_removed == "drop"]
    percent = percentage(source.dropped.rows, source.before.rows)
    return f"{_describe_files(dropped)} ({percent}), which are dropped" if dropped else ""


def _describe_files(removed: Sequence[InputChange]) -> str:
    """Return which files the partner has removed: `the partner has removed 2 files, such as a.csv, with 13 rows`."""
    files = sorted({item.file or "" for item in removed})
    such_as = f", such as {files[0]}," if len(files) > 1 else f", {files[0]},"
    rows = sum(item.before.rows for item in removed)
    return f"the partner has removed {counted(len(files), 'file')}{such_as} with {counted(rows, 'row')}"


def describe_late_data(source: SourceDifference) -> str:
    """Return the late data of a source, for a reason: `flights grew by 97 rows (10.5 %), 2 objects, 14.2 kB`.

    For changed files, the result has their rows before and now: `flights has 1 changed file, 120 -> 131 rows ...`.
    Dropped files are named in addition.
    """
    dropped = describe_dropped(source)
    if not source.late.objects:
        return f"{source.source}: {dropped}"
    return " and ".join(filter(None, (_describe_late(source), dropped)))


def _describe_late(source: SourceDifference) -> str:
    added, late = source.amount(Change.ADDED), source.late
    files = source.changed_files
    percent = percentage(late.rows, source.before.rows)
    of_days = source.of_published_days
    size = "" if of_days else f", {counted(late.objects, 'object')}, {naturalsize(late.bytes)}"
    if not files:
        return f"{source.source} grew by {counted(added.rows, 'row')} ({percent}){size}"
    before, now = sum(item.before.rows for item in files), sum(item.now.rows for item in files)
    noun = "changed day" if of_days else "changed file"
    changed = f"{counted(len(files), noun)}, {before:,} -> {counted(now, 'row')}"
    if not added.objects:
        return f"{source.source} has {changed} ({percent}){size}"
    total = f"{counted(late.rows, 'row')} in total ({percent}){size}"
    return f"{source.source} grew by {counted(added.rows, 'row')} and has {changed}, {total}"


def file_label(change: FileChange) -> str:
    """Return the name of a changed file, or the hour of pushed events that were overwritten."""
    return change.file or f"data pushed for {hour_range(change.hours)}"


def changed_file_count(source: SourceDifference) -> int:
    """Return how many files of a source were changed or removed."""
    removed = {item.file for item in source.removed if item.file}
    return len(removed | {file_label(item) for item in source.changed_files})


def describe_repeated(pipeline: str, date: str) -> tuple[str, str]:
    """Return why a day that changed tables run again too often is on hold, and the remedy."""
    return (
        f"changed tables have run the day again {MAX_TABLE_RERUNS} times within 24 hours: find out whether its rows "
        "lead back to its inputs, and if not, raise late.cool_down_hours",
        f"`slackwater late release {pipeline} --date {date} --reason TEXT` runs it again",
    )


class LateAmount(Record):
    """What the thresholds of a source are compared with."""

    rows_before: int
    """That the published run has read."""
    late: Amount
    """Late data, and the rows of dropped files."""
    changed_files: int
    """Changed and removed files."""


def late_amount(source: SourceDifference) -> LateAmount:
    """Return what the thresholds of the source are compared with."""
    return LateAmount(rows_before=source.before.rows, late=source.unprocessed, changed_files=changed_file_count(source))


def reached_thresholds(amount: LateAmount, thresholds: LateThresholds) -> tuple[str, ...]:
    """Return the thresholds that the late data of a source reaches, such as `percent 1`; empty without late data.

    Any late data reaches a threshold of zero, including objects without rows. Rows of dropped files count like late
    ones.
    """
    late = amount.late
    if not late.objects:
        return ()

    def is_reached(name: str, value: float) -> bool:
        if name == "changed_files":
            return amount.changed_files >= value
        if name == "percent":
            # Decimals are exact: in floating point, 11 of 1,000 rows would be below 1.1 percent.
            return late.rows > 0 and 100 * late.rows >= Decimal(str(value)) * amount.rows_before
        return (late.bytes if name == "bytes" else late.rows) >= value

    return tuple(
        threshold_label(name, value)
        for name, value in thresholds
        if value is not None and (value == 0 or is_reached(name, value))
    )


def deciding_inputs(
    differences: Sequence[SourceDifference], tables: Mapping[str, TableInput]
) -> list[SourceDifference]:
    """Return the differences of all inputs except the tables whose changes decide nothing."""
    return [source for source in differences if source.source not in tables or tables[source.source].decides]


def rule_of_tables(
    pipeline: str, date: str, differences: Sequence[SourceDifference], tables: Mapping[str, TableInput]
) -> tuple[DecisionRule, list[str]] | None:
    """Return the rule that `on_change` of the day's changed tables leads to, with its reasons; None without one.

    `TABLE_CHANGED` has the remedy as its last reason. It precedes `TABLE_NOTIFIED`, and that `TABLE_IGNORED`. These two
    apply only to a day without any other change.
    """
    held = _changes(differences, tables, "hold")
    if held:
        command = f"slackwater late release {pipeline} --date {date} --reason TEXT"
        return DecisionRule.TABLE_CHANGED, [*held, f"`{command}` runs the day again"]
    notified, ignored = (_changes(differences, tables, choice) for choice in ("notify", "ignore"))
    if notified:
        return DecisionRule.TABLE_NOTIFIED, [*notified, *ignored]
    return (DecisionRule.TABLE_IGNORED, ignored) if ignored else None


def _changes(differences: Sequence[SourceDifference], tables: Mapping[str, TableInput], wanted: OnChange) -> list[str]:
    """Return a reason for each type of change of the tables with `wanted`."""
    return [
        f"{change}: tables.{source.source}.on_change is {wanted}"
        for source in differences
        if source.source in tables and tables[source.source].on_change == wanted
        for change in (
            *describe_lost(source),
            *([describe_late_data(source)] if source.late.objects else []),
        )
    ]


# All other rules ignore the day.
_DECISIONS = {
    DecisionRule.GROWN: LateDecision.RERUN,
    DecisionRule.AGED: LateDecision.RERUN,
    DecisionRule.OUTCOME_UNKNOWN: LateDecision.RERUN,
    DecisionRule.VANISHED: LateDecision.HOLD,
    DecisionRule.REMOVED: LateDecision.HOLD,
    DecisionRule.SHRANK: LateDecision.HOLD,
    DecisionRule.NEW_DEFINITION: LateDecision.RERUN,
    DecisionRule.TABLE_CHANGED: LateDecision.HOLD,
    DecisionRule.REPEATED: LateDecision.HOLD,
    DecisionRule.MANIFEST_GONE: LateDecision.HOLD,
    DecisionRule.UNREADABLE: LateDecision.HOLD,
    DecisionRule.CHANGING: LateDecision.HOLD,
    DecisionRule.FAILED: LateDecision.HOLD,
    DecisionRule.AUDIT: LateDecision.HOLD,
    DecisionRule.RELEASED: LateDecision.RERUN,
    DecisionRule.ROLLED_BACK: LateDecision.HOLD,
}
_LOST_ROWS = frozenset({DecisionRule.VANISHED, DecisionRule.REMOVED, DecisionRule.SHRANK})
_WITHOUT_RUN = frozenset({DecisionRule.TABLE_NOTIFIED, DecisionRule.TABLE_IGNORED})
_UNCHANGED = frozenset({DecisionRule.UNCHANGED}) | _WITHOUT_RUN
_RELEASABLE = _LOST_ROWS | {DecisionRule.TABLE_CHANGED, DecisionRule.REPEATED}
_LATE = frozenset({DecisionRule.GROWN, DecisionRule.AGED})
_DEFINITIONS = frozenset({DecisionRule.NEW_DEFINITION, DecisionRule.DEFINITION_KEPT})


class SourceThresholds(NamedTuple):
    """The thresholds of a source in one pipeline, and where they are defined."""

    thresholds: LateThresholds
    origin: str
    """In the words of a reason: `its source`, `pipeline daily_delays`."""


def early_rule(record: DayRecord, *, current: bool, running: bool) -> DecisionRule | None:
    """Return the rule that decides about a day without its inputs, or None when the inputs have to be listed.

    `current` is whether the day has not ended yet, `running` whether a run of the day is active.
    """
    if running:
        return DecisionRule.RUNNING
    if current:
        return DecisionRule.CURRENT
    if record.hold and record.hold.rule == DecisionRule.ROLLED_BACK:
        return DecisionRule.ROLLED_BACK
    return None if record.published else DecisionRule.NEVER_PUBLISHED


def decide_early(record: DayRecord, rule: DecisionRule, *, frozen_at: datetime | None = None) -> DayDecision:
    """Return the decision by a rule of `early_rule`, or by `MANIFEST_GONE`.

    `frozen_at` is when the published run listed its inputs. Raises `ValueError` for a rule that needs the inputs.
    """
    if rule is DecisionRule.RUNNING and record.active:
        reason = f"attempt {record.active.run.attempt} has been running since {timestamp(record.active.since)}"
    elif rule is DecisionRule.CURRENT:
        reason = "the day has not ended yet"
    elif rule is DecisionRule.NEVER_PUBLISHED:
        reason = f"never published, in {counted(record.attempts, 'attempt')}" if record.attempts else "never run"
    elif rule is DecisionRule.ROLLED_BACK and record.hold:
        reason = record.hold.reason
    elif rule is DecisionRule.MANIFEST_GONE and record.published:
        run = record.published.run
        reason = (
            f"the input manifest of attempt {run.attempt} is gone ({run.manifest}), so its inputs are unknown: run the "
            f"day again by hand (slackwater run {record.pipeline} --date {record.date} --force)"
        )
    else:
        raise ValueError(f"rule {rule} cannot decide about {record.date} without its inputs")
    return _decision(record, rule, [reason], frozen_at=frozen_at)


def evaluate_day(
    record: DayRecord,
    differences: Sequence[SourceDifference],
    *,
    thresholds: Mapping[str, SourceThresholds],
    tables: Mapping[str, TableInput],
    inputs: str,
    frozen_at: datetime | None,
    failed: Sequence[RunRecord],
    last_rerun_at: datetime | None,
    waits: Mapping[str, float],
    max_ages: Mapping[str, MaxAge],
    definition: DefinitionChange | None,
    is_repeated: bool,
) -> DayDecision:
    """Return the decision about a published day that is not running.

    `differences` are the changes, since the published run, of the inputs that the definitions of both times read;
    `definition` is what has changed in the definition, None for nothing. `thresholds` has every input of the pipeline,
    and `tables` those that are days of other pipelines. `inputs` is the digest of the day's present inputs: a person
    may have released or rejected them. `frozen_at` is when the published run listed its inputs. `failed` are the latest
    attempts, in order, that have failed, or ended without an outcome, with the inputs and the definition that a new run
    would have, and `last_rerun_at` is when the latest re-run started. `waits` is for how many hours the oldest late
    data of each input has waited, and `max_ages` for how many it may. `is_repeated` is whether changed tables have
    run the day again too often.
    """
    deciding = deciding_inputs(differences, tables)
    rule, reasons = _evaluate_sources(record, deciding, thresholds)
    by_tables = rule_of_tables(record.pipeline, record.date, differences, tables)
    if by_tables and rule not in _LOST_ROWS and (by_tables[0] in _DECISIONS or rule is DecisionRule.UNCHANGED):
        rule, reasons = by_tables
    aged = [name for name, limit in max_ages.items() if waits.get(name, 0.0) >= limit.hours]
    if rule is DecisionRule.BELOW and aged:
        rule = DecisionRule.AGED
        reasons += [f"{name} waits for {waits[name]:.1f} h: reaches {max_ages[name].label}" for name in aged]
    if rule in _LATE and is_repeated:
        rule, reasons = DecisionRule.REPEATED, [*reasons, *describe_repeated(record.pipeline, record.date)]
    resolution = decision_about(record, inputs)
    if resolution is ResolutionAction.RELEASED and rule in _RELEASABLE:
        rule, reasons = DecisionRule.RELEASED, [*reasons[:-1], _resolution(record)]
    if definition and definition.reruns and rule in {DecisionRule.BELOW, *_UNCHANGED}:
        rule, reasons = DecisionRule.NEW_DEFINITION, reasons if rule is DecisionRule.BELOW else []
    elif definition and rule is DecisionRule.UNCHANGED:
        rule, reasons = DecisionRule.DEFINITION_KEPT, []
    # A repair comes before late data: whatever this is worth, and in spite of limits, unless repairs keep failing.
    repaired = {DecisionRule.BELOW, DecisionRule.RELEASED, *_LATE, *_UNCHANGED, *_DEFINITIONS}
    if rule in repaired and (record.outcome_unknown or record.active):
        reasons = [
            *(reasons if rule is DecisionRule.RELEASED or rule in _LATE else ()),
            f"attempt {record.attempts} ended without an outcome and may have published: the table may not hold the "
            "recorded version",
        ]
        rule = DecisionRule.OUTCOME_UNKNOWN
    # Without this limit, every monitoring would start a run that fails.
    if _DECISIONS.get(rule) is LateDecision.RERUN and len(failed) >= MAX_FAILURES:
        rule = DecisionRule.FAILED
        last = failed[-1]
        reasons = [
            f"the last {len(failed)} attempts failed with the same inputs and definition, attempt {last.run.attempt} "
            f"with: {last.error or 'its execution ended without an outcome'}: fix the cause, then run the day by hand "
            f"(slackwater run {record.pipeline} --date {record.date})"
        ]
    hold = record.hold
    if failed and hold and (hold.rule, hold.attempt) == (DecisionRule.AUDIT, failed[-1].run.attempt):
        rule, reasons = DecisionRule.AUDIT, [hold.reason]
    # After a run without an outcome, the published version is not known, so it cannot be kept.
    is_known = not record.outcome_unknown and record.active is None
    if resolution is ResolutionAction.REJECTED and is_known and rule in _DECISIONS:
        rule, reasons = DecisionRule.REJECTED, [*reasons, _resolution(record)]
    if definition and _DECISIONS.get(rule) is not LateDecision.HOLD:
        reasons = [*reasons, definition.reason(runs_again=rule in _DECISIONS)]
    counted_inputs = differences if rule in _WITHOUT_RUN else deciding
    figures = figures_of(record, counted_inputs, last_rerun_at=last_rerun_at).model_copy(
        update={
            "oldest_wait_hours": max(waits.values(), default=None),
            "max_age_hours": min((limit.hours for name, limit in max_ages.items() if name in waits), default=None),
            "is_aged": bool(aged),
        }
    )
    return _decision(record, rule, reasons, frozen_at=frozen_at, sources=tuple(differences), figures=figures)


def _resolution(record: DayRecord) -> str:
    """Return what a person has decided about the day, for a reason; empty without a decision."""
    resolution = record.resolution
    if resolution is None:
        return ""
    return f"{resolution.action} by {resolution.principal} on {timestamp(resolution.at)}: {resolution.reason}"


def unreadable_day(record: DayRecord, error: SlackwaterError) -> DayDecision:
    """Return the decision to put a day on hold that cannot be checked because of `error`."""
    rule, reason = DecisionRule.UNREADABLE, f"cannot be checked: {error}"
    if isinstance(error, (DayChanged, ObjectMissing)):
        rule, reason = DecisionRule.CHANGING, f"changed during the check: {error}: the next check decides"
    return _decision(record, rule, [reason]).model_copy(update={"error_may_pass": isinstance(error, TRANSIENT_ERRORS)})


def figures_of(
    record: DayRecord, differences: Sequence[SourceDifference], *, last_rerun_at: datetime | None
) -> DecisionFigures:
    """Return the numbers of a published day that follow from its record and the differences of its inputs."""
    late = [source for source in differences if source.unprocessed.rows]
    return DecisionFigures(
        late_rows=sum(source.unprocessed.rows for source in late),
        late_percent=max((100 * source.unprocessed.rows / source.before.rows for source in late), default=0.0)
        if all(source.before.rows for source in late)
        else None,
        late_bytes=sum(source.unprocessed.bytes for source in differences),
        changed_files=sum(changed_file_count(source) for source in differences),
        input_bytes=sum(source.now.bytes for source in differences),
        attempt=record.attempts + 1,
        last_rerun_at=last_rerun_at,
    )


def _decision(
    record: DayRecord,
    rule: DecisionRule,
    reasons: Sequence[str],
    *,
    frozen_at: datetime | None = None,
    sources: tuple[SourceDifference, ...] = (),
    figures: DecisionFigures | None = None,
) -> DayDecision:
    """Return the decision that the rule leads to, with the fields that come from the day's record."""
    run = record.published.run if record.published else None
    return DayDecision(
        pipeline=record.pipeline,
        date=record.date,
        decision=_DECISIONS.get(rule, LateDecision.IGNORE),
        rule=rule,
        reasons=tuple(reasons),
        run_id=run.run_id if run else None,
        attempt=run.attempt if run else None,
        frozen_at=frozen_at,
        notification_due=record.notification_due,
        sources=sources,
        figures=figures,
    )


def _evaluate_sources(
    record: DayRecord, differences: Sequence[SourceDifference], thresholds: Mapping[str, SourceThresholds]
) -> tuple[DecisionRule, list[str]]:
    """Return the rule that applies to the changes of the day's sources, and its reasons.

    Missing rows come first: a re-run would publish less than before, however much other data is late.
    """
    vanished = [line for source in differences for line in describe_lost(source)]
    shrank = [
        f"{item.source}: {file_label(item)} was changed and has {counted(item.now.rows, 'row')} of this day, "
        f"not {item.before.rows:,}"
        for source in differences
        for item in source.lost_rows
        if item.change is Change.CHANGED
    ]
    if vanished or shrank:
        command = f"slackwater late release {record.pipeline} --date {record.date} --reason TEXT"
        remedy = f"find out why; `{command}` publishes the day without these rows"
        return _lost_rule(differences), [*vanished, *shrank, remedy]

    late = [source for source in differences if source.unprocessed.objects]
    reached = {
        source.source: reached_thresholds(late_amount(source), thresholds[source.source].thresholds) for source in late
    }
    if any(reached.values()):
        reasons = []
        for source in late:
            if labels := reached[source.source]:
                limits, origin = thresholds[source.source]
                has_zero = any(value == 0 for _, value in limits)
                reasons.append(
                    f"{describe_late_data(source)}: any late data counts ({origin} has no threshold above 0)"
                    if has_zero
                    else f"{describe_late_data(source)}: reaches {' and '.join(labels)} of {origin}"
                )
        return DecisionRule.GROWN, reasons
    if late:
        below = []
        for source in late:
            limits, origin = thresholds[source.source]
            labels = tuple(threshold_label(name, value) for name, value in limits if value is not None)
            below.append(f"{describe_late_data(source)}: below {' and '.join(labels)} of {origin}")
        return DecisionRule.BELOW, below
    return DecisionRule.UNCHANGED, ["no new data since the published run"]


def _lost_rule(differences: Sequence[SourceDifference]) -> DecisionRule:
    """Return the rule of a day that has lost rows: `vanished` before `removed`, and `removed` before `shrank`."""
    lost = [item for source in differences for item in source.lost]
    if any(item.on_removed is None for item in lost):
        return DecisionRule.VANISHED
    return DecisionRule.REMOVED if lost else DecisionRule.SHRANK


_ORDERS: dict[str, Callable[[DayDecision], Any]] = {
    "oldest": lambda day: day.date,
    "newest": lambda day: tuple(-ord(character) for character in day.date),
    "largest": lambda day: (-_figures(day).late_rows, day.date),
}


@dataclass(frozen=True, kw_only=True)
class LimitedReruns:
    """The decisions of a check after the limits of the pipeline, and the re-runs of today with the new ones."""

    days: tuple[DayDecision, ...]
    usage: RerunUsage


def usage_date(definition: Pipeline, now: datetime) -> str:
    """Return the calendar day, in the pipeline's timezone, whose re-runs are counted at the instant `now`."""
    return today(definition, now).isoformat()


def limit_reruns(
    definition: Pipeline,
    days: Sequence[DayDecision],
    *,
    usage: RerunUsage,
    estimate: Callable[[int], float | None],
    now: datetime,
) -> LimitedReruns:
    """Return the decisions in the same order, with those that have to wait deferred, and the usage to store.

    `usage` are the re-runs that checks have reserved on the calendar day `usage_date`. `estimate` returns the price of
    a run in USD that reads so many bytes, or None if no run has a price.
    """
    policy = definition.late
    limited = {day.date: _limit_day(day, policy, estimate, now) for day in days if day.decision is LateDecision.RERUN}
    waiting = [day for day in limited.values() if day.decision is LateDecision.RERUN]
    tomorrow = day_of(today(definition, now) + timedelta(days=1), definition.timezone).start
    # Repairs and re-runs that an earlier call of this check has reserved come first: no limit applies to them. Days
    # that keep failing come last, so that they take no place of others.
    waiting.sort(key=lambda day: (not _is_exempt(day, usage), day.keeps_failing, _ORDERS[policy.order](day)))
    is_budget_spent, started = False, 0
    for day in waiting:
        result = _within_limits(day, policy, usage, is_budget_spent=is_budget_spent, tomorrow=tomorrow)
        limited[day.date] = result
        if result.decision is LateDecision.RERUN:
            limited[day.date], started = _with(result, position=started), started + 1
            usage = _reserved(usage, result, now)
        elif result.rule is DecisionRule.OVER_BUDGET and not _exceeds_every_budget(result):
            # Without it, cheaper days would use up the budget of each calendar day before this one.
            is_budget_spent = True
    return LimitedReruns(days=tuple(limited.get(day.date, day) for day in days), usage=usage)


def _limit_day(day: DayDecision, policy: Late, estimate: Callable[[int], float | None], now: datetime) -> DayDecision:
    """Return the decision with estimate and worth; ignored if it is not worth its price, deferred in its cool-down."""
    figures = _figures(day)
    price = estimate(figures.input_bytes)
    worth = None
    if policy.worth_per_percent is not None and figures.late_percent is not None:
        worth = policy.worth_per_percent * figures.late_percent
    day = _with(day, estimated_usd=price, worth_usd=worth)
    if _is_exempt_repair(day):
        return day
    # The new definition would run the day without its late data too.
    is_due_anyway = bool(day.new_definition) and policy.on_definition == "rerun"
    needs_worth = day.rule is DecisionRule.GROWN and not figures.is_aged and not is_due_anyway
    if needs_worth and worth is not None and price is not None and price > worth:
        reason = f"a re-run costs about {_usd(price)}, more than the late data is worth: {_usd(worth)}, at "
        return _changed(day, DecisionRule.NOT_WORTH, f"{reason}late.worth_per_percent {policy.worth_per_percent:g}")
    if figures.last_rerun_at is not None:
        end = figures.last_rerun_at + timedelta(hours=policy.cool_down_hours)
        if now < end:
            reason = f"ran again at {timestamp(figures.last_rerun_at)}: late.cool_down_hours is"
            reason = f"{reason} {policy.cool_down_hours:g}, so it runs after {timestamp(end)}"
            return _changed(day, DecisionRule.COOL_DOWN, reason, not_before=end)
    return day


def _within_limits(
    day: DayDecision, policy: Late, usage: RerunUsage, *, is_budget_spent: bool, tomorrow: datetime
) -> DayDecision:
    """Return the decision with today's numbers; deferred to `tomorrow` if a limit of today forbids the re-run.

    With `is_budget_spent`, an earlier day of the order waits for the budget.
    """
    figures = _figures(day)
    others = [item for item in usage.reruns if (item.date, item.attempt) != (day.date, figures.attempt)]
    spent, price, budget = sum(item.usd or 0.0 for item in others), figures.estimated_usd or 0.0, policy.budget_per_day
    limits = {"spent_usd": spent, "budget_usd": budget}
    day = _with(day, reruns=len(others), max_reruns=policy.max_reruns_per_day, **limits)
    if _is_exempt(day, usage):
        return day
    after = f"it runs after {timestamp(tomorrow)}"
    if len(others) >= policy.max_reruns_per_day:
        reason = f"checks have started {counted(len(others), 're-run')} today: late.max_reruns_per_day is"
        reason = f"{reason} {policy.max_reruns_per_day}, so {after}"
        return _changed(day, DecisionRule.TOO_MANY, reason, not_before=tomorrow)
    if budget is not None and price > budget:
        reason = f"a re-run costs about {_usd(price)}, more than late.budget_per_day, {_usd(budget)}: raise it, or run "
        reason = f"{reason}the day by hand (slackwater run {day.pipeline} --date {day.date})"
        return _changed(day, DecisionRule.OVER_BUDGET, reason)
    if budget is not None and (is_budget_spent or spent + price > budget):
        cost = f"a re-run costs about {_usd(price)}, and the re-runs of today {_usd(spent)}"
        reason = f"{cost}: late.budget_per_day is {_usd(budget)}, so {after}"
        return _changed(day, DecisionRule.OVER_BUDGET, reason, not_before=tomorrow)
    return day


def _is_exempt(day: DayDecision, usage: RerunUsage) -> bool:
    return _is_exempt_repair(day) or usage.has(day.date, _figures(day).attempt)


def _is_exempt_repair(day: DayDecision) -> bool:
    return day.rule is DecisionRule.OUTCOME_UNKNOWN and not day.keeps_failing


def _exceeds_every_budget(day: DayDecision) -> bool:
    return _figures(day).not_before is None


def _reserved(usage: RerunUsage, day: DayDecision, now: datetime) -> RerunUsage:
    figures = _figures(day)
    if usage.has(day.date, figures.attempt):
        return usage
    item = ReservedRerun(date=day.date, attempt=figures.attempt, at=now, usd=figures.estimated_usd)
    return usage.model_copy(update={"reruns": (*usage.reruns, item)})


def _figures(day: DayDecision) -> DecisionFigures:
    """Return the figures of a day that would run again: its inputs were listed."""
    if day.figures is None:
        raise ValueError(f"{day.pipeline} {day.date}: the rule {day.rule} has no figures")
    return day.figures


def _with(day: DayDecision, **figures: Any) -> DayDecision:
    return day.model_copy(update={"figures": _figures(day).model_copy(update=figures)})


def _changed(day: DayDecision, rule: DecisionRule, reason: str, *, not_before: datetime | None = None) -> DayDecision:
    """Return the day ignored or deferred by the rule; the reason follows those for a re-run."""
    decision = LateDecision.IGNORE if rule is DecisionRule.NOT_WORTH else LateDecision.DEFER
    update = {"decision": decision, "rule": rule, "reasons": (*day.reasons, reason)}
    return _with(day, not_before=not_before).model_copy(update=update)


def _usd(amount: float) -> str:
    return f"{amount:.2f} USD" if amount >= 1 else f"{amount:.2g} USD"


def hold_moved_hours(decision: DayDecision, record: DayRecord, inputs: str) -> DayDecision:
    """Return the decision, but hold a day that would run again, unless a person has released it with its inputs."""
    if decision.decision is not LateDecision.RERUN:
        return decision
    if decision_about(record, inputs) is ResolutionAction.RELEASED:
        return decision
    reasons = (*decision.reasons, describe_moved_hours(decision.pipeline, decision.date))
    held = {"decision": LateDecision.HOLD, "rule": DecisionRule.MOVED_HOURS, "reasons": reasons}
    return decision.model_copy(update=held)
