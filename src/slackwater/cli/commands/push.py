"""`slackwater push`: send a file of events to the API."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

from slackwater.cli.command import Result, Session, command
from slackwater.cli.options import argument, option
from slackwater.cli.output import print_note, print_text
from slackwater.client.arguments import pushed_source
from slackwater.errors import SlackwaterError
from slackwater.formatting import counted, timestamp
from slackwater.progress import ProgressBoard, TaskState

if TYPE_CHECKING:
    from slackwater.client.sender import PushTotals

_PRINTED_REASONS = 5


@command(
    "slackwater push weather weather-2013-03-08.ndjson",
    "zcat events.gz | slackwater push weather - --json",
    "slackwater push clicks clicks-2026-01-01T15.ndjson --counts",
    writes=True,
)
def push(
    source: Annotated[str, argument("SOURCE", "A source of the project that has `push`.")],
    file: Annotated[str, argument("FILE", "NDJSON or a JSON array, gzipped or not; - is standard input.")],
    token: Annotated[
        str | None,
        option(
            metavar="TOKEN",
            envvar="SLACKWATER_TOKEN",
            text="The partner's bearer token. Default: a token of the operator, created on first use.",
        ),
    ] = None,
    counts: Annotated[
        bool,
        option(
            "--counts",
            text="Report then how many events were sent: the file has all events of its windows, up to the last one.",
        ),
    ] = False,
    *,
    session: Session,
) -> Result:
    """Send a file of events to the API.

    The same file can be sent again: events that are stored already count as duplicates. Rejected events, also lines
    that are not JSON, are kept with their reasons (slackwater sideline show SOURCE). The exit code is 1 only if every
    event was rejected.
    """
    from slackwater.cli.changes import note_changes
    from slackwater.client.events import read_events

    pushed_source(session.project, source)
    # A wrong file is reported before any cloud is contacted.
    events = read_events(file)
    note_changes(session, [])
    task, client = f"push {source}", session.client
    with ProgressBoard() as progress:
        progress.update(task, note=counted(len(events), "event"))
        sent: list[PushTotals] = []

        def show(now: PushTotals) -> None:
            sent[:] = [now]
            progress.update(task, note=f"{now.events:,} of {len(events):,} events")

        try:
            totals = client.push(source, events, token=token, counts=counts, on_progress=show)
        except SlackwaterError:
            # These events are stored: a later batch or the report has failed, and its error is printed last.
            if sent and not session.as_json:
                print_push_totals(sent[0])
            raise
        progress.update(task, TaskState.DONE if totals.ok else TaskState.FAILED, note=counted(totals.events, "event"))
    return Result(asdict(totals), partial(print_push_totals, totals), exit_code=0 if totals.ok else 1)


def print_push_totals(totals: PushTotals) -> None:
    """Print how many events were accepted and rejected, and the first reasons."""
    batches = "1 batch" if totals.batches == 1 else f"{totals.batches:,} batches"
    print_text(
        f"{totals.source}: {totals.accepted:,} accepted, {counted(totals.duplicates, 'duplicate')}, "
        f"{len(totals.rejected):,} rejected, in {batches}",
        style="green" if totals.ok else "red",
    )
    if report := totals.report:
        through = timestamp(datetime.fromisoformat(report["through"]))
        print_text(f"  reported: {counted(report['events'], 'event')} sent in their windows, and all before {through}")
    if left_out := totals.not_reported:
        windows = list(left_out)
        of = windows[0] if len(windows) == 1 else f"{len(windows):,} windows, {windows[0]} to {windows[-1]}"
        print_note(
            f"not in the report: {counted(sum(left_out.values()), 'event')} of {of}, because a report takes windows of "
            "the last 366 days, and at most one day ahead",
            style="yellow",
        )
    if names := totals.unknown_fields:
        print_note(
            f"fields that sources/{totals.source}.yaml does not list: {', '.join(names)} (their values are in the "
            "column _extra: to use one, add it to `fields`)",
            style="yellow",
        )
    if note := totals.old_note:
        print_note(note, style="yellow")
    for item in totals.rejected[:_PRINTED_REASONS]:
        print_note(f"  event {item['index']}: {item['reason']}", style="yellow")
    more = len(totals.rejected) - _PRINTED_REASONS
    if more > 0:
        print_note(f"  and {more:,} more (all of them: --json)", style="yellow")
