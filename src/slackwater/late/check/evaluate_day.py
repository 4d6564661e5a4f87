"""Decides about one day: compares the changes of its inputs with the thresholds of their sources.

If several rules apply, hold takes precedence over re-run, and re-run over ignore.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from slackwater.errors import DayChanged, ObjectMissing, SlackwaterError
from slackwater.formatting import counted, timestamp
from slackwater.late.check.decision import MAX_FAILURES, DayDecision, DecisionFigures, DecisionRule, LateDecision
from slackwater.late.check.describe import (
    DefinitionChange,
    changed_file_count,
    describe_late_data,
    describe_lost,
    describe_repeated,
    file_label,
    threshold_label,
)
from slackwater.late.check.errors import TRANSIENT_ERRORS
from slackwater.late.check.table_changes import deciding_inputs, rule_of_tables
from slackwater.late.check.thresholds import late_amount, reached_thresholds
from slackwater.late.check.wait import MaxAge
from slackwater.pipeline.table_inputs import TableInput
from slackwater.runs.holds import decision_about
from slackwater.runs.inputs.difference import Change, SourceDifference
from slackwater.runs.record import DayRecord, ResolutionAction, RunRecord
from slackwater.sources.late_thresholds import LateThresholds

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
