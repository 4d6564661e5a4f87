"""`slackwater sideline redrive`: the progress and the outcome of rejected events that are sent again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import typer

from slackwater.cli.changes import note_changes
from slackwater.cli.command import INTERRUPTED, Result, Session
from slackwater.cli.output import print_note, print_table, print_text
from slackwater.formatting import counted
from slackwater.progress import ProgressBoard, TaskState

if TYPE_CHECKING:
    from slackwater.client.redrive import RedriveTotals

# Batches whose failures a terminal shows.
_LISTED = 5


def run_redrive(session: Session, source: str, date: str, *, rule: str | None, dry_run: bool) -> Result:
    """Send the rejected events of a day again, and show the progress. The view shows the outcome by rule.

    Raises the errors of `Client.redrive`.
    """
    session.project.source(source)
    note_changes(session, [])
    task, client = f"{'read' if dry_run else 'send'} {source} {date} again", session.client
    try:
        with ProgressBoard() as progress:

            def show(now: RedriveTotals) -> None:
                progress.update(task, note=f"{now.sent:,} of {now.batches:,} batches")

            totals = client.redrive(source, date, rule=rule, dry_run=dry_run, on_progress=show)
            state = TaskState.FAILED if totals.failed else TaskState.DONE
            progress.update(task, state, note=f"{totals.accepted:,} accepted, {totals.rejected:,} rejected again")
    except KeyboardInterrupt as error:
        print_note("stopped: what was sent is stored. The same command sends the rest.", style="yellow")
        raise typer.Exit(INTERRUPTED) from error
    view = (lambda: _print(totals)) if sys.stdout.isatty() else None
    return Result(_document(totals), view, exit_code=1 if totals.failed else 0)


def _document(totals: RedriveTotals) -> dict[str, Any]:
    return {
        "source": totals.source,
        "date": totals.date,
        "dry_run": totals.dry_run,
        "accepted": totals.accepted,
        "rejected": totals.rejected,
        "stored_before": totals.stored_before,
        "batches": totals.batches,
        "files": totals.files,
        "rules": [
            {
                "rule": rule,
                "accepted": found.accepted,
                "rejected": found.rejected,
                "reasons": [
                    {"rule": again, "events": events, "reason": reason}
                    for again, (events, reason) in sorted(found.reasons.items())
                ],
            }
            for rule, found in sorted(totals.rules.items())
        ],
        "failed": [{"batch": batch, "reason": reason} for batch, reason in totals.failed.items()],
        "correlation_id": totals.correlation_id,
    }


def _print(totals: RedriveTotals) -> None:
    rows: list[tuple[object, ...]] = []
    for rule, found in sorted(totals.rules.items()):
        reasons = [f"{events:,} {again}: {reason}" for again, (events, reason) in sorted(found.reasons.items())]
        rows.append((rule, found.accepted, found.rejected, reasons[0] if reasons else ""))
        rows += [("", "", "", reason) for reason in reasons[1:]]
    if rows:
        print_table(("rule", "accepted", "rejected again", "first reason"), rows)
        if totals.dry_run:
            print_text("a dry run: nothing was stored")
    else:
        print_text(f"no rejected events of {totals.source} on {totals.date} to send again")
    if totals.stored_before:
        print_text(f"stored by an earlier redrive: {counted(totals.stored_before, 'event')}")
    if totals.files:
        files = counted(totals.files, "file")
        print_note(
            f"rejected rows of {files} are not sent: slackwater pull {totals.source} reads the files again after its "
            "definition has changed (--as-of for a look-back window in the past)",
            style="yellow",
        )
    failed = list(totals.failed.items())
    for batch, reason in failed[:_LISTED]:
        print_note(f"batch {batch} was not sent: {reason}", style="red")
    if len(failed) > _LISTED:
        print_note(f"and {len(failed) - _LISTED:,} more (--json lists all)", style="red")
