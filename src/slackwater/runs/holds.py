"""Days on hold: what puts a day on hold, how a hold ends, and what a decision about a day allows.

These functions only compute records. A record is written over the version that was read, so of a check, a run and a
person that change a day at the same time, one is first and the others read it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import PurePosixPath

from slackwater.errors import InputError
from slackwater.formatting import counted, shortened
from slackwater.runs.inputs.difference import Change, SourceDifference
from slackwater.runs.record import DayRecord, Hold, Resolution, ResolutionAction, Run

AUDIT = "audit"
"""The rule of a hold that a failed audit causes, or rows that break a rule of `data_quality`."""
ROLLED_BACK = "rolled_back"
"""The rule of a hold that a rollback causes: no check ends it."""

MAX_EARLIER = 20
"""Earlier decisions about a day that its record keeps: the record is read often, and an item of DynamoDB has at most
400 KB. So reasons have a largest length too."""
MAX_REASON = 1000
"""Characters of the reason that a person gives for a decision."""
MAX_HOLD_REASON = 4000
"""Characters of the reason of a hold, which may name many files, and of how it ended."""
_MAX_EARLIER_REASON = 500

# Rules that compare nothing, so there are no inputs that a decision to keep the version could be about.
_WITHOUT_INPUTS = frozenset({"manifest_gone", "unreadable", "changing"})
# Rules of days whose inputs may be those of the published run. Without `force`, such a day would not run.
_FORCED = frozenset({"manifest_gone", ROLLED_BACK})


def inputs_of(run: Run) -> str:
    """Return the digest of the inputs that a run reads."""
    # `Freezer._next_run` names the manifest by it.
    return PurePosixPath(run.manifest).stem


def decision_about(day: DayRecord, inputs: str) -> ResolutionAction | None:
    """Return what a person has decided about the day with these inputs, released or kept, or None.

    `inputs` is `InputManifest.digest`. A decision applies to the published version and the inputs that it was about.
    """
    made, attempt = day.resolution, day.published.run.attempt if day.published else 0
    applies = made is not None and bool(inputs) and (made.inputs, made.attempt) == (inputs, attempt)
    if made is None or not applies or made.action is ResolutionAction.ENDED:
        return None
    return made.action


def held(day: DayRecord, hold: Hold) -> DayRecord:
    """Return the day on hold, with at most `MAX_HOLD_REASON` characters of the reason.

    It stays on hold since the same time if the rule is the same.
    """
    since = day.hold.since if day.hold and day.hold.rule == hold.rule else hold.since
    return day.model_copy(update={"hold": _shortened(hold, MAX_HOLD_REASON).model_copy(update={"since": since})})


def hold_ended(day: DayRecord, *, reason: str, inputs: str, now: datetime) -> DayRecord:
    """Return the day without its hold, whose cause is gone; the day itself if it is not on hold."""
    if day.hold is None:
        return day
    # What a person has decided about these inputs still applies.
    if decision_about(day, inputs):
        return day.model_copy(update={"hold": None})
    return _resolved(day, ResolutionAction.ENDED, reason=reason, principal="", inputs=inputs, now=now)


def released_day(day: DayRecord, *, reason: str, principal: str, inputs: str, now: datetime) -> DayRecord:
    """Return the day with the decision to publish it from `inputs`, whatever they have lost.

    A day that is not on hold can be released too. Raises `InputError` if the day has no hold and was never published.
    """
    if day.hold is None and day.published is None:
        raise InputError(
            f"--date: {day.pipeline} has published nothing for {day.date}, and the day is not on hold: run it "
            f"(slackwater run {day.pipeline} --date {day.date})"
        )
    return _resolved(day, ResolutionAction.RELEASED, reason=reason, principal=principal, inputs=inputs, now=now)


def with_released_hold(day: DayRecord) -> DayRecord:
    """Return the day with the hold that a person has released, as long as no later version is published.

    The run of the release may not have started. A day that is on hold, or was not released, is returned as it is.
    """
    made, attempt = day.resolution, day.published.run.attempt if day.published else 0
    if day.hold or made is None or (made.action, made.attempt) != (ResolutionAction.RELEASED, attempt):
        return day
    return day.model_copy(update={"hold": made.hold})


def kept_day(day: DayRecord, *, reason: str, principal: str, inputs: str, now: datetime) -> DayRecord:
    """Return the day with the decision to keep its published version as long as its inputs are `inputs`.

    Raises `InputError` for a day that is not on hold, whose hold is not about inputs, or whose published version is not
    known.
    """
    name = f"--date: {day.pipeline} {day.date}"
    if day.hold is None:
        raise InputError(f"{name} is not on hold: slackwater late lists the days on hold")
    if day.hold.rule in _WITHOUT_INPUTS:
        raise InputError(
            f"{name} is on hold by the rule {day.hold.rule}, so its inputs are not known: remove the "
            f"cause, or release the day (slackwater late release)"
        )
    if day.outcome_unknown or day.active:
        raise InputError(
            f"{name}: an attempt after the published one has no outcome and may have published, so the published "
            f"version is not known: release the day (slackwater late release)"
        )
    return _resolved(day, ResolutionAction.KEPT, reason=reason, principal=principal, inputs=inputs, now=now)


def refuse_long_reason(reason: str) -> None:
    """Raise `InputError` for a reason of a person that is longer than `MAX_REASON`."""
    if len(reason) > MAX_REASON:
        raise InputError(
            f"--reason: it has {counted(len(reason), 'character')}: use at most {MAX_REASON:,}, because it is kept "
            "with the day"
        )


def needs_force(hold: Hold | None) -> bool:
    """Return whether a day that was on hold runs again only with `force`: its inputs may be the published ones."""
    return hold is not None and hold.rule in _FORCED


def audit_hold(run: Run, *, reason: str, execution: str, now: datetime) -> Hold:
    """Return the hold of a day whose rows have failed the audit, or a rule of the pipeline."""
    return Hold(rule=AUDIT, reason=reason, since=now, inputs=inputs_of(run), attempt=run.attempt, execution=execution)


def refuse_lost_rows(
    day: DayRecord, differences: Sequence[SourceDifference], *, inputs: str, rejected: Iterable[str] = ()
) -> None:
    """Raise `InputError` if inputs have lost rows of the published run, and nobody has released the day with them.

    The message has the sentences `rejected` about definitions that reject these rows; they are read only for it.
    """
    lost = [item for source in differences for item in source.lost_rows]
    if not lost or decision_about(day, inputs) is ResolutionAction.RELEASED:
        return
    first, (date, hour) = lost[0], lost[0].hours[0]
    rows = sum(item.before.rows - (item.now.rows if item.change is Change.CHANGED else 0) for item in lost)
    removed, shrunk = (sum(1 for item in lost if item.change is change) for change in (Change.REMOVED, Change.CHANGED))
    files = " and ".join(
        text for number, text in ((removed, f"{removed} gone"), (shrunk, f"{shrunk} changed with fewer rows")) if number
    )
    raise InputError(
        f"the inputs have lost {counted(rows, 'row')} that the published run of {day.date} has read ({files}), such as "
        f"those of {first.file or 'pushed events'} of {first.source} in {date} {hour or '00'}:00 UTC: "
        f"{'; '.join(rejected) or 'find out why'}; "
        f"to publish the day without these rows: slackwater late release {day.pipeline} --date {day.date} "
        f"--reason TEXT"
    )


def describe_moved_hours(pipeline: str, date: str) -> str:
    """Return why a day that was published with another timezone does not run alone, with the remedies."""
    return (
        "a run of this day alone would publish events of other days twice, or leave some out: run it together with the "
        f"days around it (`slackwater run {pipeline} --from DATE --to DATE --stale`), or release it (`slackwater late "
        f"release {pipeline} --date {date} --reason TEXT`) to run it alone"
    )


def refuse_moved_hours(day: DayRecord, *, inputs: str) -> None:
    """Raise `InputError` for a run alone of a day whose timezone has changed, unless a person has released the day."""
    if decision_about(day, inputs) is not ResolutionAction.RELEASED:
        raise InputError(
            f"{day.pipeline} {day.date} was published with another timezone, and "
            f"{describe_moved_hours(day.pipeline, day.date)}"
        )


def _resolved(
    day: DayRecord, action: ResolutionAction, *, reason: str, principal: str, inputs: str, now: datetime
) -> DayRecord:
    """Return the day without its hold, and with how it ended."""
    made = Resolution(
        action=action,
        reason=shortened(reason, MAX_HOLD_REASON),
        principal=principal,
        at=now,
        inputs=inputs,
        attempt=day.published.run.attempt if day.published else 0,
        hold=day.hold and _shortened(day.hold, MAX_HOLD_REASON),
    )
    earlier = (*day.earlier_resolutions, *([day.resolution] if day.resolution else []))[-MAX_EARLIER:]
    # Also those that are stored already: earlier releases of this project did not shorten them.
    short = tuple(
        item.model_copy(
            update={
                "reason": shortened(item.reason, _MAX_EARLIER_REASON),
                "hold": item.hold and _shortened(item.hold, _MAX_EARLIER_REASON),
            }
        )
        for item in earlier
    )
    return day.model_copy(update={"hold": None, "resolution": made, "earlier_resolutions": short})


def _shortened(hold: Hold, most: int) -> Hold:
    """Return the hold with at most so many characters of its reason."""
    return hold.model_copy(update={"reason": shortened(hold.reason, most)})
