"""Decides about one day: compares the changes of its inputs with the thresholds of their sources.

If several rules apply, hold takes precedence over re-run, and re-run over ignore.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from humanize import naturalsize

from slackwater.errors import DayChanged, ObjectMissing, SlackwaterError
from slackwater.formatting import counted, hour_range, percentage, timestamp
from slackwater.late.check.decision import DayDecision, DecisionRule, LateDecision
from slackwater.runs.inputs.difference import Amount, Change, SourceDifference
from slackwater.runs.record import DayRecord, RunRecord
from slackwater.sources.late_thresholds import LateThresholds

# All other rules ignore the day.
_DECISIONS = {
    DecisionRule.GROWN: LateDecision.RERUN,
    DecisionRule.OUTCOME_UNKNOWN: LateDecision.RERUN,
    DecisionRule.VANISHED: LateDecision.HOLD,
    DecisionRule.SHRANK: LateDecision.HOLD,
    DecisionRule.MANIFEST_GONE: LateDecision.HOLD,
    DecisionRule.UNREADABLE: LateDecision.HOLD,
    DecisionRule.CHANGING: LateDecision.HOLD,
    DecisionRule.FAILED: LateDecision.HOLD,
}
# Failed attempts with the same inputs and definition. After these, another attempt would most likely fail too, and each
# costs a Spark job.
_MAX_FAILURES = 3


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
    frozen_at: datetime | None = None,
    failed: Sequence[RunRecord] = (),
) -> DayDecision:
    """Return the decision about a published day that is not running.

    `differences` are the changes of its sources since the published run, `thresholds` has every source of the
    pipeline, and `frozen_at` is when the published run listed its inputs. `failed` are the latest attempts, in order,
    that have failed with the inputs and the definition that a new run would have.
    """
    rule, reasons = _evaluate_sources(record, differences, thresholds)
    if rule in {DecisionRule.BELOW, DecisionRule.UNCHANGED} and (record.outcome_unknown or record.active):
        rule = DecisionRule.OUTCOME_UNKNOWN
        reasons = [
            f"attempt {record.attempts} ended without an outcome and may have published: the table may not hold the "
            "recorded version"
        ]
    # Without this limit, every monitoring would start a run that fails.
    if _DECISIONS.get(rule) is LateDecision.RERUN and len(failed) >= _MAX_FAILURES:
        rule = DecisionRule.FAILED
        last = failed[-1]
        reasons = [
            f"the last {len(failed)} attempts failed with the same inputs and definition, attempt {last.run.attempt} "
            f"with: {last.error}: fix the cause, then run the day by hand "
            f"(slackwater run {record.pipeline} --date {record.date})"
        ]
    return _decision(record, rule, reasons, frozen_at=frozen_at, sources=tuple(differences))


def unreadable_day(record: DayRecord, error: SlackwaterError) -> DayDecision:
    """Return the decision to put a day on hold that cannot be checked because of `error`."""
    if isinstance(error, (DayChanged, ObjectMissing)):
        return _decision(record, DecisionRule.CHANGING, [f"changed during the check: {error}: the next check decides"])
    return _decision(record, DecisionRule.UNREADABLE, [f"cannot be checked: {error}"])


def reached_thresholds(source: SourceDifference, thresholds: LateThresholds) -> tuple[str, ...]:
    """Return the thresholds that the source's late data reaches, such as `percent 1`; empty without late data.

    Any late data reaches a threshold of zero, including objects without rows.
    """
    if not source.late.objects:
        return ()
    late = source.late

    def is_reached(name: str, value: float) -> bool:
        if name == "percent":
            # Decimals are exact: in floating point, 11 of 1,000 rows would be below 1.1 percent.
            return late.rows > 0 and 100 * late.rows >= Decimal(str(value)) * source.before.rows
        return (late.bytes if name == "bytes" else late.rows) >= value

    return tuple(
        threshold_label(name, value)
        for name, value in thresholds
        if value is not None and (value == 0 or is_reached(name, value))
    )


def threshold_label(name: str, value: float) -> str:
    """Return a threshold in the words of a reason: `percent 1`, `rows 1,000`."""
    return f"{name} {value:g}" if name == "percent" else f"{name} {value:,}"


def _decision(
    record: DayRecord,
    rule: DecisionRule,
    reasons: Sequence[str],
    *,
    frozen_at: datetime | None = None,
    sources: tuple[SourceDifference, ...] = (),
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
    )


def _evaluate_sources(
    record: DayRecord, differences: Sequence[SourceDifference], thresholds: Mapping[str, SourceThresholds]
) -> tuple[DecisionRule, list[str]]:
    """Return the rule that applies to the changes of the day's sources, and its reasons.

    Missing rows come first: a re-run would publish less than before, however much other data is late.
    """
    vanished = [describe_removed(source) for source in differences if source.removed]
    shrank = [
        f"{source.source}: {name} was changed and has {counted(now.rows, 'row')} of this day, not {before.rows:,}"
        for source in differences
        for name, (before, now) in changed_files(source).items()
        if now.rows < before.rows
    ]
    if vanished or shrank:
        command = f"slackwater run {record.pipeline} --date {record.date} --allow-fewer"
        remedy = f"find out why; `{command}` publishes the day without these rows"
        return DecisionRule.VANISHED if vanished else DecisionRule.SHRANK, [*vanished, *shrank, remedy]

    late = [source for source in differences if source.late.objects]
    reached = {source.source: reached_thresholds(source, thresholds[source.source].thresholds) for source in late}
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


def describe_removed(source: SourceDifference) -> str:
    """Return what a source has lost, for a reason: `weather has lost 2 objects with 13 rows that the published ...`."""
    lost = source.amount(Change.REMOVED)
    if source.of_published_days:
        dates = ", ".join(sorted(item.date for item in source.removed))
        return f"{source.source} has lost {counted(lost.rows, 'row')} that the published run has read: {dates}"
    hours = hour_range((item.date, item.hour) for item in source.removed)
    return (
        f"{source.source} has lost {counted(lost.objects, 'object')} with {counted(lost.rows, 'row')} that the "
        f"published run has read, of {hours}, without a replacement"
    )


def describe_late_data(source: SourceDifference) -> str:
    """Return the late data of a source, for a reason: `flights grew by 97 rows (10.5 %), 2 objects, 14.2 kB`.

    For changed files, the result has their rows before and now: `flights has 1 changed file, 120 -> 131 rows ...`.
    """
    added, late = source.amount(Change.ADDED), source.late
    files = changed_files(source)
    percent = percentage(late.rows, source.before.rows)
    of_days = source.of_published_days
    size = "" if of_days else f", {counted(late.objects, 'object')}, {naturalsize(late.bytes)}"
    if not files:
        return f"{source.source} grew by {counted(added.rows, 'row')} ({percent}){size}"
    before, now = (sum(pair[side].rows for pair in files.values()) for side in (0, 1))
    noun = "changed day" if of_days else "changed file"
    changed = f"{counted(len(files), noun)}, {before:,} -> {counted(now, 'row')}"
    if not added.objects:
        return f"{source.source} has {changed} ({percent}){size}"
    total = f"{counted(late.rows, 'row')} in total ({percent}){size}"
    return f"{source.source} grew by {counted(added.rows, 'row')} and has {changed}, {total}"


def changed_files(source: SourceDifference) -> dict[str, tuple[Amount, Amount]]:
    """Return the amounts before and now of each changed file, by name, summed over the file's hours.

    Pushed events that were overwritten have no file: their key names their hour.
    """
    files: dict[str, tuple[Amount, Amount]] = {}
    for item in source.changes:
        if item.change is Change.CHANGED:
            name = item.file or f"data pushed for {hour_range([(item.date, item.hour)])}"
            before, now = files.get(name, (Amount(), Amount()))
            files[name] = (before + item.before, now + item.now)
    return files
