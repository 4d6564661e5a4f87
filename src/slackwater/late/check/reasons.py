"""The sentences of a decision: why a day runs again, waits for a person, is deferred or ignored, with the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from humanize import naturalsize

from slackwater.formatting import counted, hour_range, percentage, relative_change, rounded_usd, timestamp
from slackwater.late.amounts import file_label, threshold_label
from slackwater.late.check.facts import DayFacts, Limits
from slackwater.late.decision import MAX_TABLE_RERUNS
from slackwater.pipeline.table_inputs import OnChange
from slackwater.runs.holds import describe_moved_hours
from slackwater.runs.inputs.difference import Amount, Change, InputChange, SourceDifference
from slackwater.runs.period import period_kind
from slackwater.state.completeness import CountState
from slackwater.state.verdicts import Verdict, describe_verdicts

# -- days whose record decides ----------------------------------------------------------------------------------------


def current(facts: DayFacts) -> tuple[str, ...]:
    """Return that the day goes on."""
    return (f"the {facts.unit} has not ended yet",)


def running(facts: DayFacts) -> tuple[str, ...]:
    """Return since when the day is running."""
    active = facts.record.active
    return (f"attempt {active.run.attempt} has been running since {timestamp(active.since)}",) if active else ()


def never_published(facts: DayFacts) -> tuple[str, ...]:
    """Return how often the day has run."""
    attempts = facts.record.attempts
    return (f"never published, in {counted(attempts, 'attempt')}" if attempts else "never run",)


def of_hold(facts: DayFacts) -> tuple[str, ...]:
    """Return the reason of the hold that the day has already."""
    return (facts.record.hold.reason,) if facts.record.hold else ()


def manifest_gone(facts: DayFacts) -> tuple[str, ...]:
    """Return which input manifest is gone, and how to run the day."""
    run, record = facts.record.published and facts.record.published.run, facts.record
    return (
        f"the input manifest of attempt {run.attempt if run else 0} is gone ({run.manifest if run else ''}), so its "
        f"inputs are unknown: run the {facts.unit} again by hand (slackwater run {record.pipeline} --date "
        f"{record.date} --force)",
    )


# -- what has changed -------------------------------------------------------------------------------------------------


def lost(facts: DayFacts) -> tuple[str, ...]:
    """Return what a run would lose; the last reason names the remedy."""
    differences = facts.inputs.rerun_inputs
    shrank = [
        f"{item.source}: {file_label(item)} was changed and has {counted(item.now.rows, 'row')} of this day, "
        f"not {item.before.rows:,}"
        for source in differences
        for item in source.lost_rows
        if item.change is Change.CHANGED
    ]
    remedy = f"find out why; {_release(facts)} publishes the {facts.unit} without these rows"
    described = (line for source in differences for line in describe_lost(source))
    return (*described, *shrank, *facts.inputs.rejected, remedy)


def invalid(facts: DayFacts) -> tuple[str, ...]:
    """Return the verdicts that put the day on hold; the last reason names the remedies."""
    remedy = f"it waits until they are `pass` (slackwater verdict); {_release(facts)} uses this data"
    return (*_verdicts(facts.held_verdicts), remedy)


def _verdicts(by_input: Mapping[str, tuple[Verdict, ...]]) -> Iterator[str]:
    return (f"{name} has failed: {line}" for name, found in by_input.items() for line in describe_verdicts(found))


def table_changed(facts: DayFacts) -> tuple[str, ...]:
    """Return the changed tables with `on_change: hold`; the last reason names the remedy."""
    return (*_table_changes(facts, "hold"), f"{_release(facts)} runs the {facts.unit} again")


def repeated(facts: DayFacts) -> tuple[str, ...]:
    """Return the late data, and why it does not run the day again; the last reason names the remedy."""
    return (
        *late(facts),
        f"changed tables have run the {facts.unit} again {MAX_TABLE_RERUNS} times within 24 hours: find out whether "
        "its rows lead back to its inputs, and if not, raise late.cool_down_hours",
        f"{_release(facts)} runs it again",
    )


def late(facts: DayFacts) -> tuple[str, ...]:
    """Return the late data: that which reaches a threshold, or all of it with its thresholds, and what has waited."""
    inputs = facts.inputs
    if inputs.is_grown:
        return tuple(_grown(facts, source) for source in inputs.late if inputs.reached[source.source])
    aged = (
        f"{name} waits for {inputs.waits[name]:.1f} h: reaches {inputs.max_ages[name].label}" for name in inputs.aged
    )
    return (*(_below(facts, source) for source in inputs.late), *(aged if inputs.late else ()))


def _grown(facts: DayFacts, source: SourceDifference) -> str:
    limits, origin = facts.inputs.thresholds[source.source]
    if any(value == 0 for _, value in limits):
        return f"{describe_late_data(source)}: any late data counts ({origin} has no threshold above 0)"
    return f"{describe_late_data(source)}: reaches {' and '.join(facts.inputs.reached[source.source])} of {origin}"


def _below(facts: DayFacts, source: SourceDifference) -> str:
    limits, origin = facts.inputs.thresholds[source.source]
    labels = (threshold_label(name, value) for name, value in limits if value is not None)
    return f"{describe_late_data(source)}: below {' and '.join(labels)} of {origin}"


def _table_changes(facts: DayFacts, wanted: OnChange) -> tuple[str, ...]:
    """Return a reason for each type of change of the tables with `wanted`."""
    return tuple(
        f"{change}: tables.{source.source}.on_change is {wanted}"
        for source in facts.inputs.changed_tables(wanted)
        for change in (*describe_lost(source), *([describe_late_data(source)] if source.late.objects else []))
    )


def _what_needs_person(facts: DayFacts) -> tuple[str, ...]:
    if facts.inputs.is_lost:
        return lost(facts)
    return table_changed(facts) if facts.inputs.is_table_held else repeated(facts)


def _release(facts: DayFacts) -> str:
    return f"`slackwater late release {facts.record.pipeline} --date {facts.record.date} --reason TEXT`"


# -- days that run again, and those that do not -----------------------------------------------------------------------


def why_rerun(facts: DayFacts) -> tuple[str, ...]:
    """Return why the day would run again."""
    reasons = (*_what_needs_person(facts)[:-1], _resolution(facts)) if facts.needs_person else ()
    if not facts.needs_person and (facts.inputs.is_late or not facts.is_outcome_unknown):
        reasons = late(facts)
    read = {item.source: facts.inputs.invalid_read[item.source] for item in facts.inputs.repaired}
    reasons = (*reasons, *(f"the input has changed since the published run: {line}" for line in _verdicts(read)))
    if facts.is_outcome_unknown:
        unknown = "ended without an outcome and may have published: the table may not hold the recorded version"
        reasons = (*reasons, f"attempt {facts.record.attempts} {unknown}")
    return (*reasons, *new_definition(facts, runs_again=True))


def new_definition(facts: DayFacts, *, runs_again: bool = False) -> tuple[str, ...]:
    """Return what has changed in the definition, with what becomes of the day; empty if nothing has."""
    change = facts.inputs.definition
    if change is None:
        return ()
    result = "the run reads with the new one" if runs_again else "the published version keeps the earlier one"
    return (f"the definition has changed since the published run ({', '.join(change.lines)}): {result}",)


def kept(facts: DayFacts) -> tuple[str, ...]:
    """Return what has changed, and who keeps the published version."""
    if facts.audit_holds:
        return (*of_hold(facts), _resolution(facts), *new_definition(facts))
    changes = _what_needs_person(facts) if facts.needs_person else late(facts)
    return (*changes, _resolution(facts), *new_definition(facts))


def _resolution(facts: DayFacts) -> str:
    """Return what a person has decided about the day; empty without a decision."""
    made = facts.record.resolution
    return f"{made.action.label} by {made.principal} on {timestamp(made.at)}: {made.reason}" if made else ""


def failed(facts: DayFacts) -> tuple[str, ...]:
    """Return how the latest attempts failed, and the remedy."""
    attempts, record = facts.inputs.failed, facts.record
    return (
        f"the last {len(attempts)} attempts failed with the same inputs and definition, attempt "
        f"{attempts[-1].run.attempt} with: {attempts[-1].error or 'its execution ended without an outcome'}: fix the "
        f"cause, then run the {facts.unit} by hand (slackwater run {record.pipeline} --date {record.date})",
    )


def moved_hours(facts: DayFacts) -> tuple[str, ...]:
    """Return why the day would run again, and why it does not run alone."""
    return (*why_rerun(facts), describe_moved_hours(facts.record.pipeline, facts.record.date))


def below(facts: DayFacts) -> tuple[str, ...]:
    """Return the late data with its thresholds."""
    return (*late(facts), *new_definition(facts))


def table_notified(facts: DayFacts) -> tuple[str, ...]:
    """Return the changed tables that people are notified of, and those that are ignored."""
    return (*_table_changes(facts, "notify"), *table_ignored(facts))


def table_ignored(facts: DayFacts) -> tuple[str, ...]:
    """Return the changed tables that are ignored."""
    return (*_table_changes(facts, "ignore"), *new_definition(facts))


def incomplete(facts: DayFacts) -> tuple[str, ...]:
    """Return why the day would run again, what its sources have sent, and when it runs at the latest."""
    inputs = facts.inputs
    short = (f"{item.source}: {item.line}" for item in inputs.counts if item.state is CountState.SHORT)
    until = timestamp(inputs.incomplete_until) if inputs.incomplete_until else ""
    return (*why_rerun(facts), *short, f"more events are announced, so it waits for them until {until}")


# -- limits -----------------------------------------------------------------------------------------------------------


def too_expensive(facts: DayFacts) -> tuple[str, ...]:
    """Return why the day would run again, and the price of the re-run with what it may cost."""
    limits = _limits(facts)
    price, most = rounded_usd(limits.price or 0.0), rounded_usd(facts.worth_usd or 0.0)
    reason = f"a re-run costs about {price}, and late.worth_per_percent {limits.policy.worth_per_percent:g} allows"
    return (*why_rerun(facts), f"{reason} {most} for this late data")


def cool_down(facts: DayFacts) -> tuple[str, ...]:
    """Return why the day would run again, and when its cool-down ends."""
    last, end = facts.inputs.last_rerun_at, facts.cool_down_end
    if last is None or end is None:
        return why_rerun(facts)
    hours = f"late.cool_down_hours is {_limits(facts).policy.cool_down_hours:g}"
    return (*why_rerun(facts), f"ran again at {timestamp(last)}: {hours}, so it runs after {timestamp(end)}")


def too_many(facts: DayFacts) -> tuple[str, ...]:
    """Return why the day would run again, and the number of re-runs of today."""
    limits, (count, _) = _limits(facts), facts.other_reruns
    reason = f"checks have started {counted(count, 're-run')} today: late.max_reruns_per_day is"
    after = f"it runs after {timestamp(limits.tomorrow)}"
    return (*why_rerun(facts), f"{reason} {limits.policy.max_reruns_per_day}, so {after}")


def over_budget(facts: DayFacts) -> tuple[str, ...]:
    """Return why the day would run again, and what is left of the budget."""
    limits, (_, spent) = _limits(facts), facts.other_reruns
    price, budget, record = (
        rounded_usd(limits.price or 0.0),
        rounded_usd(limits.policy.budget_per_day or 0.0),
        facts.record,
    )
    if exceeds_budget(limits):
        reason = f"a re-run costs about {price}, more than late.budget_per_day, {budget}: raise it, or run "
        reason = f"{reason}the {facts.unit} by hand (slackwater run {record.pipeline} --date {record.date})"
    else:
        cost = f"a re-run costs about {price}, and the re-runs of today {rounded_usd(spent)}"
        reason = f"{cost}: late.budget_per_day is {budget}, so it runs after {timestamp(limits.tomorrow)}"
    return (*why_rerun(facts), reason)


def exceeds_budget(limits: Limits) -> bool:
    """Return whether a re-run costs more than a whole budget."""
    budget = limits.policy.budget_per_day
    return budget is not None and (limits.price or 0.0) > budget


def _limits(facts: DayFacts) -> Limits:
    if facts.limits is None:
        raise ValueError(f"{facts.record.pipeline} {facts.record.date} has no limits")
    return facts.limits


# -- changes of one input ---------------------------------------------------------------------------------------------


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

    For changed files, the result has their rows before and now: `flights has 1 changed file, 120 -> 131 rows (+9.2 %),
    131 late rows (14.1 %), ...`.
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
    noun = f"changed {period_kind(files[0].hours[0][0])}" if of_days else "changed file"
    change = f" ({relative})" if (relative := relative_change(before, now)) else ""
    changed = f"{counted(len(files), noun)}, {before:,} -> {counted(now, 'row')}{change}"
    # All rows of a changed file are late: `percent` may exceed 100 for a small change.
    total = f"{counted(late.rows, 'late row')} ({percent}){size}"
    if not added.objects:
        return f"{source.source} has {changed}, {total}"
    return f"{source.source} grew by {counted(added.rows, 'row')} and has {changed}, {total}"
