"""`slackwater late`: the days on hold, and what to do with them."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

from slackwater.cli.command import ListGroup, Result, Session, command, command_group
from slackwater.cli.commands.run import run_document
from slackwater.cli.names import shown, shown_in
from slackwater.cli.options import PipelineName, argument, option, period_option
from slackwater.cli.output import format_usd, print_table, print_text
from slackwater.errors import InputError
from slackwater.formatting import counted, timestamp

if TYPE_CHECKING:
    from slackwater.client.results import DayDecision, Suggestion

_COLUMNS = ("pipeline", "date", "since", "rule", "reason")


group = command_group("late", "Days on hold: list, release or keep them.", kind=ListGroup, no_args_is_help=False)

Day = Annotated[str, period_option("--date", text="The day, in the pipeline's timezone.")]
Reason = Annotated[str, option("--reason", metavar="TEXT", text="Why. It is kept with the day.")]


@command("slackwater late list daily_delays", "slackwater late --older --json", name="list", group=group)
def list_days(
    pipeline: Annotated[str | None, argument("[PIPELINE]", "A pipeline of the project. Default: all.")] = None,
    *,
    older: Annotated[bool, option("--older", text="List days before the window with late data instead.")] = False,
    first: Annotated[
        str | None, period_option("--from", text="With --older: check all published days from this one.")
    ] = None,
    last: Annotated[
        str | None, period_option("--to", text="With --older: check all published days to this one.")
    ] = None,
    session: Session,
) -> Result:
    """List the days on hold, and those that are deferred. `slackwater late` does the same.

    A day on hold keeps its published version. It waits until somebody releases or keeps it, or until its cause is
    gone. A deferred day has late data, and runs again by itself when a limit of `late` allows it; `slackwater run` does
    not wait for that. Days of which nobody is notified, because their comparison keeps failing, files whose removal is
    doubtful, and days that have read tables before these changed (`on_change: notify`) are named too. With --older, it
    lists days before the window with late data that no run has read.
    """
    if older:
        return _list_older(session, pipeline, first=first, last=last)
    if first or last:
        raise InputError("--from and --to: use them with --older")
    if pipeline:
        session.project.pipeline(pipeline)
    client = session.client
    days, given_up = client.days_on_hold(pipeline), client.comparisons_given_up(pipeline)
    doubtful, changed = client.doubtful_files(pipeline), client.changed_tables(pipeline)
    deferred = client.deferred_days(pipeline)

    def view() -> None:
        if days:
            held = [(shown(day.pipeline), day.date, day.hold) for day in days if day.hold]
            print_table(
                _COLUMNS,
                [(name, date, timestamp(hold.since), hold.rule, shown_in(hold.reason)) for name, date, hold in held],
            )
            commands = "slackwater late release | keep PIPELINE --date DATE --reason TEXT"
            print_text(f"{counted(len(days), 'day')} on hold: {commands}")
        else:
            print_text("no day is on hold")
        if deferred:
            columns = ("pipeline", "date", "not before", "rule", "reason")
            print_table(
                columns,
                [(shown(it.pipeline), it.date, _not_before(it), it.rule, shown_in(it.reason)) for it in deferred],
            )
            print_text(f"{counted(len(deferred), 'day')} deferred: slackwater run PIPELINE --date DATE runs one now")
        for item in given_up:
            print_text(
                f"nobody is notified of {shown(item.pipeline)} {item.date}: {shown_in(item.reason)}", style="yellow"
            )
        for day in changed:
            reason = day.table_notice.reason if day.table_notice else ""
            print_text(
                f"{shown(day.pipeline)} {day.date} has read an earlier version of {reason}. To run it with "
                f"the new one: slackwater run {shown(day.pipeline)} --date {day.date}",
                style="yellow",
            )
        for files in doubtful:
            print_text(
                f"{files.source}: the listing of {files.at:%Y-%m-%d %H:%M} UTC lacks more stored files than it has: "
                f"{counted(files.files, 'file')}, such as {files.examples[0]}. Their rows still count. If the partner "
                f"has removed them on purpose: slackwater pull {files.source} --accept-removed {files.files}",
                style="yellow",
            )

    document = {
        "days": [
            {"pipeline": day.pipeline, "date": day.date, **day.hold.model_dump(mode="json")} for day in days if day.hold
        ],
        "deferred": [day.model_dump(mode="json") for day in deferred],
        "comparisons": [item.model_dump(mode="json") for item in given_up],
        "doubtful_files": [item.model_dump(mode="json") for item in doubtful],
        "changed_tables": [
            day.model_dump(mode="json", include={"pipeline": True, "date": True, "table_notice": {"since", "reason"}})
            for day in changed
        ],
    }
    return Result(document, view)


def _not_before(day: DayDecision) -> str:
    return _time(day.figures.not_before if day.figures else None)


def _time(instant: datetime | None) -> str:
    return timestamp(instant) if instant else ""


def _list_older(session: Session, pipeline: str | None, *, first: str | None, last: str | None) -> Result:
    """Return days before the window, with what a check would decide about each, and how to process them."""
    if pipeline:
        session.project.pipeline(pipeline)
    elif first or last:
        raise InputError("PIPELINE: --from and --to need the name of one pipeline")
    result = session.client.older_late_days(pipeline, first=first, last=last)

    def view() -> None:
        if not result.days:
            print_text("no day before the window has late data")
        else:
            decisions = [(item.decision, item.since) for item in result.days]
            print_table(
                _COLUMNS,
                [
                    (shown(day.pipeline), day.date, _time(since), day.rule, shown_in(day.reason))
                    for day, since in decisions
                ],
            )
            days = counted(len(result.days), "day")
            print_text(f"{days} before the window: slackwater run PIPELINE --date DATE processes one")
        for item in result.unchecked:
            command = f"slackwater late --older {shown(item.pipeline)} --from {item.first} --to {item.last}"
            print_text(
                f"{shown(item.pipeline)}: {counted(item.days, 'more day')} listed: {command} checks the next ones"
            )

    days = [
        {**item.decision.model_dump(mode="json"), "since": item.since, "new_objects": item.objects}
        for item in result.days
    ]
    return Result({"days": days, "unchecked": [item._asdict() for item in result.unchecked]}, view)


@command(
    'slackwater late release daily_delays --date 2013-03-10 --reason "the partner withdrew the file"',
    group=group,
    writes=True,
)
def release(pipeline: PipelineName, date: Day, reason: Reason, *, session: Session) -> Result:
    """Run a day again with its present inputs, although they have lost rows or its audit failed.

    If inputs vanish once more, the day is on hold again. A published day that is not on hold yet can be released too:
    it runs as well, and the command says that it was not on hold.
    """
    session.project.pipeline(pipeline)
    from slackwater.cli.running import shown_states

    with shown_states(
        f"{pipeline} for {date}",
        remedy=f"its log: slackwater logs {pipeline} --date {date}",
        interrupted=f"A run that has started continues: slackwater runs {pipeline}. "
        "If there is none, repeat the release",
    ) as on_progress:
        result = session.client.release(pipeline, date, reason=reason).wait(on_progress=on_progress)
    resolution = session.client.run_table.day(session.project.stored_name(pipeline), date).resolution
    note = "" if resolution is None or resolution.hold else " (it was not on hold)"
    text = f"{pipeline} {date}: released{note}, {result.outcome} with {counted(result.publication.rows, 'row')}"
    return Result(run_document(result), partial(print_text, text, style="green"))


@command(
    'slackwater late keep daily_delays --date 2013-03-10 --reason "the correction is wrong"', group=group, writes=True
)
def keep(pipeline: PipelineName, date: Day, reason: Reason, *, session: Session) -> Result:
    """Keep the published version of a day on hold.

    The same inputs are not held again. When newer data of the day arrives, the next check decides about it.
    """
    session.project.pipeline(pipeline)
    record = session.client.keep(pipeline, date, reason=reason)
    text = f"{pipeline} {date}: the published version stays"
    document = record.model_dump(mode="json", include={"pipeline", "date", "resolution"})
    return Result(document, partial(print_text, text, style="green"))


command(name="reject", group=group)(keep)  # its former name
group.registered_commands[-1].hidden = True


@command("slackwater late suggest daily_delays", "slackwater late suggest daily_delays --effect 0.5", group=group)
def suggest(
    pipeline: PipelineName,
    effect: Annotated[
        float,
        option(metavar="PERCENT", min=0, show_default=True, text="The largest change of a metric that may be missed."),
    ] = 1.0,
    *,
    session: Session,
) -> Result:
    """Propose thresholds for late data from the re-runs of the last 90 days.

    For each threshold, it shows the past re-runs that it would have caused as well, what they have cost, and the
    changes of the table that it would have missed. Late data below a threshold counts together with later data of its
    day, as in a check. Late data that never made a day run again does not count.
    """
    session.project.pipeline(pipeline)
    suggestion = session.client.suggest_thresholds(pipeline, max_effect=effect)
    return Result(suggestion.model_dump(mode="json"), partial(_print_suggestion, suggestion))


def _print_suggestion(suggestion: Suggestion) -> None:
    """Print each threshold with what it would have done, and the proposed ones."""
    print_text(
        f"{shown(suggestion.pipeline)}: {counted(suggestion.reruns, 're-run')} for late data since {suggestion.first}, "
        f"{format_usd(suggestion.usd)} USD",
        style="bold",
    )
    print_table(
        ("threshold", "re-runs", "USD", "missed changes", "largest missed"),
        [
            (
                f"{item.threshold} {item.value:,.12g}",
                item.reruns,
                format_usd(item.usd),
                item.missed,
                f"{_percent(item.largest_missed)} on {item.largest_missed_date}" if item.largest_missed_date else "-",
            )
            for item in suggestion.candidates
        ],
    )
    if suggestion.skipped:
        print_text(f"{counted(suggestion.skipped, 're-run')} whose effect is not known: not counted")
    if not suggestion.proposed:
        print_text(
            f"every threshold would have missed a change above {suggestion.max_effect:g} %: "
            "keep `rows: 0`, or allow a larger one with --effect"
        )
        return
    print_text(f"one of these for its sources would have missed no change above {suggestion.max_effect:g} %:")
    for item in suggestion.proposed:
        # New files never reach it.
        note = ", only next to percent or rows" if item.threshold == "changed_files" else ""
        print_text(f"  late: {{{item.threshold}: {item.value:.12g}}}  # {counted(item.reruns, 're-run')}{note}")


def _percent(effect: float | None) -> str:
    return "an infinite change" if effect is None else f"{effect:.3g} %"
