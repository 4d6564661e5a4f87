"""`slackwater sideline`: rejected events and their reasons. `slackwater buffer`: events that wait to be stored."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from datetime import date as date_type
from itertools import chain, groupby, islice
from typing import TYPE_CHECKING, Annotated

from slackwater.cli.command import ListGroup, Result, Session, command, command_group
from slackwater.cli.options import argument, date_option, option, period_option
from slackwater.cli.output import cut, print_note, print_table, print_text
from slackwater.client.arguments import iso_date
from slackwater.errors import InputError
from slackwater.formatting import counted
from slackwater.progress import ProgressBoard, TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from slackwater.client.results import RejectedDay, RejectedEventOnDay

# Days that are read by default, today included.
_DEFAULT_DAYS = 7
_TERMINAL_EVENTS = 20

Date = Annotated[str | None, date_option("--date", text="Events that were received on this day (UTC).")]

group = command_group("sideline", "Rejected events, their reasons, and sending them again.", kind=ListGroup)


@command(
    "slackwater sideline list",
    "slackwater sideline weather --date 2013-03-08",
    "slackwater sideline list weather --since 2013-03-08",
    "slackwater sideline daily_delays --date 2013-03-08",
    name="list",
    group=group,
)
def list_(
    source: Annotated[
        str | None, argument("SOURCE", "A source of the project, or a pipeline with --date. Default: all sources.")
    ] = None,
    date: Annotated[
        str | None,
        period_option(
            "--date", text="Events that were received on this day (UTC), or the day or hour of the pipeline's run."
        ),
    ] = None,
    since: Annotated[str | None, date_option(text="Events that were received on this day (UTC) or later.")] = None,
    *,
    session: Session,
) -> Result:
    """Count rejected events by day, source and rule, the latest day first; of one source, with the first of each rule.

    Without --date and --since: the last seven days. An event that was sent again counts by its latest rejection; one
    that is stored since does not count. Of a pipeline, count the rows that the steps of the published run of a day have
    rejected.
    """
    if source in session.project.known_names and source not in session.project.sources:
        from slackwater.cli.rejected_rows import list_rejected_rows

        return list_rejected_rows(session, source, date)
    days = read_days(date and iso_date(date, name="--date"), since)
    names = [session.project.source(source).source] if source else sorted(session.project.sources)
    by_source = chain.from_iterable(session.client.rejects.days(name, days) for name in names)
    rejected_days = sorted(by_source, key=lambda day: day.date, reverse=True)
    documents = [
        {
            "source": day.source,
            "date": day.date,
            "rejected": day.events,
            "batches": day.batches,
            "rules": dict(day.rules.most_common()),
            "sent_again": dict(day.sent_again.most_common()),
            "examples": {rule: day.examples[rule].document for rule, _ in day.rules.most_common()},
        }
        for day in rejected_days
    ]

    def view() -> None:
        rows = []
        for day in rejected_days:
            rules = ", ".join(f"{rule} {count:,}" for rule, count in day.rules.most_common())
            rows.append((day.date, day.source, day.events, day.batches, rules))
        print_table(("date (UTC)", "source", "rejected", "batches", "by rule"), rows)
        if source:
            _print_rules(rejected_days)

    missing = f"no rejected events{f' of {source}' if source else ''} {_period(days)}"
    return Result({"days": documents}, view if rejected_days else missing)


@command(
    "slackwater sideline show weather", "slackwater sideline show weather --date 2013-03-08 --limit 100", group=group
)
def show(
    source: Annotated[str, argument("SOURCE", "A source of the project.")],
    date: Date = None,
    batch: Annotated[
        str | None, option(metavar="ID", text="Events of this batch or file, received on any day.")
    ] = None,
    limit: Annotated[
        int | None,
        option(metavar="N", min=1, text="Print at most N events. Default: 20 on a terminal, else and with --json all."),
    ] = None,
    *,
    session: Session,
) -> Result:
    """Print rejected events with their reasons, the latest batch first.

    Without --date and --batch: the last seven days. On a terminal, long events are cut.
    """
    if date and batch:
        raise InputError("--date and --batch: give one of them")
    days = read_days(date, None)
    session.project.source(source)
    rejects = session.client.rejects
    stored = rejects.events_of_batch(source, batch) if batch else rejects.events(source, days)
    if limit is None and sys.stdout.isatty() and not session.as_json:
        limit = _TERMINAL_EVENTS
    # One more than is printed, to know whether there are more.
    events = list(islice(stored, limit and limit + 1))
    printed = events[:limit]
    more = len(events) > len(printed)

    def view() -> None:
        _print_events(source, printed)
        if more:
            print_note(f"these are the first {len(printed):,} events (to see more: --limit N)", style="yellow")

    documents = [event.document for event in printed]
    missing = f"no rejected events of {source} {f'in batch {batch}' if batch else _period(days)}"
    return Result({"source": source, "events": documents, "more": more}, view if printed else missing)


@command(
    "slackwater sideline redrive weather --date 2013-03-08 --dry-run",
    "slackwater sideline redrive weather --date 2013-03-08 --rule wrong_type",
    group=group,
    writes=True,
)
def redrive(
    source: Annotated[str, argument("SOURCE", "A source of the project.")],
    *,
    date: Annotated[str, date_option("--date", text="Events that were received on this day (UTC).")],
    rule: Annotated[
        str | None, option(metavar="RULE", text="Only events whose latest rejection is by this rule.")
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", text="Show what would be accepted, and store nothing.")] = False,
    session: Session,
) -> Result:
    """Send rejected events again, after the definition of their source was corrected and deployed.

    The receiver reads the originals by the deployed definition. An accepted event is stored once, however often this
    command is repeated or interrupted; the others stay rejected, with the first and the latest reason. Pushed events
    only: a pull reads files again when their definition has changed. Output in a pipe is JSON.
    """
    from slackwater.cli.redrive import run_redrive

    return run_redrive(session, source, date, rule=rule, dry_run=dry_run)


def read_days(date: str | None, since: str | None) -> list[str]:
    """Return the days (UTC) that `--date` or `--since` select, the latest first; by default the last seven days.

    Raises `InputError` for both options, or a `--since` after today.
    """
    if date and since:
        raise InputError("--date and --since: give one of them")
    if date:
        return [date]
    today = _today()
    first = today - timedelta(days=_DEFAULT_DAYS - 1)
    if since:
        first = date_type.fromisoformat(since)
    if first > today:
        raise InputError(f"--since: {since} has not begun in UTC")
    return [(today - timedelta(days=back)).isoformat() for back in range((today - first).days + 1)]


def _today() -> date_type:
    return datetime.now(UTC).date()


def _period(days: Sequence[str]) -> str:
    return f"on {days[0]}" if len(days) == 1 else f"since {days[-1]}"


def _print_rules(days: Sequence[RejectedDay]) -> None:
    """Print a table of the rules of each day of a source."""
    rows = []
    for day in days:
        for rule, events in day.rules.most_common():
            example = day.examples[rule]
            rows.append((day.date, rule, events, day.sent_again[rule], example.reason, cut(example.record.text)))
    print_text("")
    print_table(("date (UTC)", "rule", "rejected", "sent again", "first reason", "first event"), rows)


def _print_events(source: str, events: Sequence[RejectedEventOnDay]) -> None:
    """Print a table for each batch or file."""

    def batch_of(event: RejectedEventOnDay) -> tuple[str, str, str]:
        return event.date, event.record.batch_id, event.record.origin

    for (date, batch, origin), grouped in groupby(events, batch_of):
        of_batch = list(grouped)
        rows = []
        for event in of_batch:
            record, reason = event.record, event.record.reason
            if event.newest and event.newest[1:] != (record.rule, record.reason):
                reason = f"{event.reason} (first {record.rule}: {record.reason})"
            rows.append((record.index, record.line, event.rule, reason, cut(record.text)))
        print_text(f"{source} {date}: {counted(len(rows), 'event')} of batch {batch}, {origin}", style="bold")
        print_table(("index", "line", "rule", "reason", "event"), rows)
        if more := sum(event.record.rows - 1 for event in of_batch):
            print_note(f"and {counted(more, 'row')} more: the file was rejected as a whole", style="yellow")


buffer_group = command_group("buffer", "The queue of events that wait to be stored.")


@command("slackwater buffer status", "slackwater buffer status --json", group=buffer_group)
def status(*, session: Session) -> Result:
    """Count the messages in the queue and the dead letters.

    A message is one batch of events of a source with `buffer: queue`. A dead letter is a message that could not be
    stored. The counts are approximate.
    """
    depth = session.client.buffer.depth()

    def view() -> None:
        messages = counted(depth.waiting, "message")
        print_text(f"{messages} waiting, {depth.in_flight:,} being stored, {depth.dead:,} could not be stored")
        if depth.dead:
            print_note(
                "The log of the function store-events has the reason. Remove the cause, then: "
                "slackwater buffer redrive",
                style="yellow",
            )

    return Result(asdict(depth), view)


@command(
    "slackwater buffer redrive", "slackwater buffer redrive --json", name="redrive", group=buffer_group, writes=True
)
def redrive_dead_letters(*, session: Session) -> Result:
    """Send the dead letters back to the queue.

    Dead letters are messages that could not be stored. First remove the cause of the failure. An event that is sent
    back twice is stored once.
    """
    moved, buffer = 0, session.client.buffer
    with ProgressBoard() as progress:
        progress.update("redrive")
        for moved in buffer.redrive():
            progress.update("redrive", note=counted(moved, "message"))
        progress.update("redrive", TaskState.DONE, note=counted(moved, "message"))
    sent = f"{counted(moved, 'message')} sent back to the queue (to see what is stored: slackwater buffer status)"
    return Result({"moved": moved}, sent if moved else "nothing to send back: there are no dead letters")
