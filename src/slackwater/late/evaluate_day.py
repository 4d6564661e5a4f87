"""Weighing one day: what has become of its inputs, held against the thresholds, decides what is done about it.

A hold goes before a re-run, a re-run before ignoring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from slackwater.formatting import counted, moment, share, size, span
from slackwater.late.decision import DayDecision, DecisionRule, LateDecision
from slackwater.runs.difference import Amount, Change, InputChange, SourceDifference
from slackwater.runs.record import DayRecord, RunRecord
from slackwater.sources.late_thresholds import LateThresholds

_DECISIONS = {
    DecisionRule.GROWN: LateDecision.RERUN,
    DecisionRule.UNSURE: LateDecision.RERUN,
    DecisionRule.VANISHED: LateDecision.HOLD,
    DecisionRule.SHRANK: LateDecision.HOLD,
    DecisionRule.MANIFEST_GONE: LateDecision.HOLD,
    DecisionRule.UNREADABLE: LateDecision.HOLD,
    DecisionRule.FAILED: LateDecision.HOLD,
}
"""All other rules ignore the day."""
_MAX_FAILURES = 3
"""Attempts at the same work: what failed so often will fail again."""


class SourceThresholds(NamedTuple):
    """The thresholds that hold for a source in one pipeline, and where they stand."""

    thresholds: LateThresholds
    place: str
    """As a reason says it: `its source`, `pipeline daily_delays`."""


def early_rule(record: DayRecord, *, current: bool, running: bool) -> DecisionRule | None:
    """Return the rule that decides over a day whose inputs need not be looked at, if there is one."""
    if running:
        return DecisionRule.RUNNING
    if current:
        return DecisionRule.CURRENT
    return None if record.published else DecisionRule.NEVER_PUBLISHED


def evaluate_day(
    record: DayRecord,
    found: Sequence[SourceDifference] | DecisionRule,
    *,
    standards: Mapping[str, SourceThresholds],
    frozen_at: datetime | None = None,
    failed: Sequence[RunRecord] = (),
) -> DayDecision:
    """Decide over one day: by what has become of its sources, or by the rule that keeps that from being known.

    `standards` has every source of the pipeline; `frozen_at` is when the published run listed its inputs; `failed` are
    the latest attempts, in order, that have failed at what a run would do now. No run of a day whose sources are given
    may be under way.
    """
    if isinstance(found, DecisionRule):
        return _decided(record, found, _at_sight(record, found), frozen_at=frozen_at)
    rule, reason = _by_sources(record, found, standards)
    if rule in {DecisionRule.BELOW, DecisionRule.UNCHANGED} and (record.unsure or record.active):
        rule, reason = DecisionRule.UNSURE, _unsure(record)
    if _DECISIONS.get(rule) is LateDecision.RERUN and len(failed) >= _MAX_FAILURES:
        rule, reason = DecisionRule.FAILED, _failed(record, failed)
    return _decided(record, rule, reason, frozen_at=frozen_at, sources=tuple(found))


def unreadable(record: DayRecord, error: str) -> DayDecision:
    """Hold a day that cannot be looked at, because of that error."""
    return _decided(record, DecisionRule.UNREADABLE, f"cannot be looked at: {error}")


def _decided(
    record: DayRecord,
    rule: DecisionRule,
    reason: str,
    *,
    frozen_at: datetime | None = None,
    sources: tuple[SourceDifference, ...] = (),
) -> DayDecision:
    run = record.published.run if record.published else None
    return DayDecision(
        pipeline=record.pipeline,
        date=record.date,
        decision=_DECISIONS.get(rule, LateDecision.IGNORE),
        rule=rule,
        reason=reason,
        run_id=run.run_id if run else None,
        attempt=run.attempt if run else None,
        frozen_at=frozen_at,
        notification_due=record.notification_due,
        sources=sources,
    )


def _at_sight(record: DayRecord, rule: DecisionRule) -> str:
    by_hand = f"slackwater run {record.pipeline} --date {record.date} --force"
    match rule:
        case DecisionRule.RUNNING if record.active:
            return f"attempt {record.active.run.attempt} is running, since {moment(record.active.since)}"
        case DecisionRule.CURRENT:
            return "the current day: it is looked at when it is over"
        case DecisionRule.NEVER_PUBLISHED:
            return f"never published, in {counted(record.attempts, 'attempt')}" if record.attempts else "never run"
        case DecisionRule.MANIFEST_GONE if record.published:
            run = record.published.run
            return (
                f"what attempt {run.attempt} has read cannot be known, its input manifest is gone ({run.manifest}): "
                f"run the day again by hand ({by_hand})"
            )
        case _:
            raise ValueError(f"{rule} does not decide over {record.date} without its sources")


def _unsure(record: DayRecord) -> str:
    return (
        f"attempt {record.attempts} has ended without saying whether it had published: "
        "what stands may not be what is recorded"
    )


def _failed(record: DayRecord, failed: Sequence[RunRecord]) -> str:
    return (
        f"the last {len(failed)} attempts have failed with the inputs and the definition that a new one would have, "
        f"attempt {failed[-1].run.attempt} with: {failed[-1].error}: mend that, and run the day by hand "
        f"(slackwater run {record.pipeline} --date {record.date})"
    )


def _by_sources(
    record: DayRecord, found: Sequence[SourceDifference], standards: Mapping[str, SourceThresholds]
) -> tuple[DecisionRule, str]:
    vanished = [text for source in found for text in _vanished(source)]
    shrank = [text for source in found for text in _shrank(source)]
    if vanished or shrank:
        command = f"slackwater run {record.pipeline} --date {record.date} --allow-fewer"
        remedy = f"find out why; `{command}` publishes what is there"
        return (
            DecisionRule.VANISHED if vanished else DecisionRule.SHRANK,
            f"{'; '.join([*vanished, *shrank])}: {remedy}",
        )
    late = [source for source in found if source.late.objects]
    reaching = [(source, reached(source, standards[source.source].thresholds)) for source in late]
    if any(names for _, names in reaching):
        told = [_reaches(source, names, standards[source.source]) for source, names in reaching if names]
        return DecisionRule.GROWN, "; ".join(told)
    if late:
        return DecisionRule.BELOW, "; ".join(_stays_below(source, standards[source.source]) for source in late)
    return DecisionRule.UNCHANGED, "nothing has come since the published run listed its inputs"


def reached(source: SourceDifference, thresholds: LateThresholds) -> tuple[str, ...]:
    """Return the thresholds that late data of the source reaches, such as `percent 1`; zero means any late data."""
    if not source.late.objects:
        return ()
    given = [(name, value) for name, value in thresholds if value is not None]
    return tuple(_level(name, value) for name, value in given if value == 0 or _reaches_level(source, name, value))


def _reaches_level(source: SourceDifference, name: str, value: float) -> bool:
    late = source.late
    if name == "percent":
        # As people wrote it: in floating point, 11 of 1,000 rows would stay below 1.1 percent.
        return late.rows > 0 and 100 * late.rows >= Decimal(str(value)) * source.before.rows
    return (late.bytes if name == "bytes" else late.rows) >= value


def _level(name: str, value: float) -> str:
    return f"{name} {value:g}" if name == "percent" else f"{name} {value:,}"


def _reaches(source: SourceDifference, names: Sequence[str], standard: SourceThresholds) -> str:
    if any(value == 0 for _, value in standard.thresholds):
        return f"{_growth(source)}: any late data counts ({names[0]} of {standard.place})"
    return f"{_growth(source)}: reaches {' and '.join(names)} of {standard.place}"


def _stays_below(source: SourceDifference, standard: SourceThresholds) -> str:
    given = [_level(name, value) for name, value in standard.thresholds if value is not None]
    return f"{_growth(source)}: below {' and '.join(given)} of {standard.place}"


def _growth(source: SourceDifference) -> str:
    """Return `flights grew by 97 rows (10.5 %), 2 objects, 14.2 kB`; of a changed file, what it was and is."""
    added, late = source.amount(Change.ADDED), source.late
    files = _changed_files(source)
    part = share(late.rows, source.before.rows)
    rest = f"{counted(late.objects, 'object')}, {size(late.bytes)}"
    if not files:
        return f"{source.source} grew by {counted(added.rows, 'row')} ({part}), {rest}"
    before, now = (sum(pair[side].rows for pair in files.values()) for side in (0, 1))
    changed = f"{counted(len(files), 'changed file')}, {before:,} -> {counted(now, 'row')}"
    if not added.objects:
        return f"{source.source} has {changed} ({part}), {rest}"
    together = f"together {counted(late.rows, 'row')} ({part}), {rest}"
    return f"{source.source} grew by {counted(added.rows, 'row')} and has {changed}; {together}"


def _vanished(source: SourceDifference) -> Iterator[str]:
    gone = [change for change in source.changes if change.change is Change.REMOVED]
    if gone:
        lost = source.amount(Change.REMOVED)
        hours = span((change.date, change.hour) for change in gone)
        yield (
            f"{source.source} has lost {counted(lost.objects, 'object')} with {counted(lost.rows, 'row')} "
            f"that the published run has read, of {hours}, and nothing has taken their place"
        )


def _shrank(source: SourceDifference) -> Iterator[str]:
    for name, (before, now) in _changed_files(source).items():
        if now.rows < before.rows:
            held = f"{counted(now.rows, 'row')} of this day, not {before.rows:,}"
            yield f"{source.source}: {name} was changed and has {held}"


def _changed_files(source: SourceDifference) -> dict[str, tuple[Amount, Amount]]:
    """What changed files had of the day and have now, over all its hours."""
    found: dict[str, tuple[Amount, Amount]] = {}
    for change in source.changes:
        if change.change is Change.CHANGED:
            before, now = found.get(_name(change), (Amount(), Amount()))
            found[_name(change)] = (before + change.before, now + change.now)
    return found


def _name(change: InputChange) -> str:
    return change.file or f"what was pushed of {span([(change.date, change.hour)])}"
