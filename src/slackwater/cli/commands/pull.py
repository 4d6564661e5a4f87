"""`slackwater pull`: fetch a partner's files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from slackwater.cli.command import Result, Session, command
from slackwater.cli.options import argument, date_option, option
from slackwater.cli.output import print_note, print_text
from slackwater.client.arguments import pulled_source
from slackwater.errors import PullFailed
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.client.client import Client, PullTotals
    from slackwater.project.project import Project

# Totals that are shown unless they are zero: what is counted, and the sentence, with the words for one and for several.
_NOTES = {
    "rejected": ("event", "{was|were} rejected (the {reason|reasons}: slackwater sideline show {source})"),
    "vanished": ("file", "disappeared before {it was|they were} fetched; the next pull checks again"),
    "busy": ("file", "{is|are} being fetched by another pull"),
    "waiting": (
        "file",
        "could not be fetched before and {waits for its next attempt|wait for their next attempts}: "
        "slackwater files {source} --state failed shows when and why. After another definition is deployed, a pull "
        "tries {it|them} at once",
    ),
    "gone": ("stored file", "{is|are} not listed any more: {kept} (on_removed: {on_removed})"),
    "doubtful": (
        "stored file",
        "{is|are} not listed, and still {counts|count}: the listing lacks more files than it has. Is the partner's "
        "folder complete? If {it was|they were} removed on purpose: slackwater pull {source} --accept-removed {count}",
    ),
    "left": ("file", "{is|are} left for the next pull"),
    "empty": ("stored file", "{has|have} no event"),
}
_ON_REMOVED = {
    "keep": "{its|their} events stay",
    "hold": "published days with {its|their} events are on hold from the next check on",
    "drop": "published days with {its|their} events run again without them after the next check",
}


@command("slackwater pull flights", "slackwater pull flights --as-of 2013-03-12", writes=True)
def pull(
    source: Annotated[str, argument("SOURCE", "A source of the project that has `pull`.")],
    as_of: Annotated[str | None, date_option(text="Pull as if today were this day. Default: today.")] = None,
    accept_removed: Annotated[
        int,
        option(
            metavar="NUMBER",
            min=0,
            text="Record the removal of up to so many files, although the partner lists fewer files than it has "
            "removed. A pull prints how many these are.",
        ),
    ] = 0,
    *,
    session: Session,
) -> Result:
    """Fetch a partner's new and changed files.

    Checks the files of the source's look-back window (`lookback_days` in its definition).
    """
    from slackwater.cli.changes import note_changes

    pulled_source(session.project, source)
    note_changes(session, [])
    try:
        totals = pull_source(session.client, source, as_of=as_of, accept_removed=accept_removed)
    except PullFailed as error:
        if not session.as_json:
            print_pull_totals(error.totals, session.project)
        raise  # the error is printed last
    return Result(totals, partial(print_pull_totals, totals, session.project))


def pull_source(client: Client, source: str, *, as_of: str | None, accept_removed: int = 0) -> PullTotals:
    """Pull a source as of an ISO date, None for today, and show the progress. Arguments and errors: `Client.pull`."""
    from slackwater.cli.running import shown_states

    with shown_states() as on_progress:
        return client.pull(source, as_of=as_of, accept_removed=accept_removed, on_progress=on_progress)


def print_pull_totals(totals: Mapping[str, Any], project: Project) -> None:
    """Print the totals of a pull, and what may be wrong in its listing and its files."""
    name, pull = totals["source"], project.source(totals["source"]).require_pull()
    print_text(
        f"{name}: {counted(totals['listed'], 'file')} listed, {totals['stored']} stored "
        f"({counted(totals['rows'], 'event')}), {totals['unchanged']} unchanged, {totals['duplicate']} duplicate"
        + (f", {totals['failed']} failed" if totals["failed"] else ""),
        style="red" if totals["failed"] else "green",
    )
    if reports := totals.get("reports"):  # deployments of older versions read none
        print_text(f"  {counted(reports, 'report')} of how many events were sent")
    for reason in totals.get("refused_reports", ()):
        print_note(f"a file with counts was not read: {reason}", style="yellow")
    counts = {**totals, "gone": totals["removed"] - totals["doubtful"]}
    for key, (noun, sentence) in _NOTES.items():
        if count := counts[key]:
            words = sentence.replace("{kept}", _ON_REMOVED[pull.on_removed])
            words = re.sub(r"{([^|}]+)\|([^}]+)}", r"\1" if count == 1 else r"\2", words)
            note = words.format(source=name, count=count, on_removed=pull.on_removed)
            print_note(f"{counted(count, noun)} {note}", style="yellow")
    if returned := totals.get("returned"):  # deployments of older versions count none
        verb = "is" if returned == 1 else "are"
        print_text(f"  {counted(returned, 'removed file')} {verb} listed again")
    if unmatched := totals.get("unmatched"):  # deployments of older versions find none
        names = ", ".join(totals["unmatched_files"]) + (", ..." if unmatched > len(totals["unmatched_files"]) else "")
        verb = "matches" if unmatched == 1 else "match"
        print_note(f"{counted(unmatched, 'file')} {verb} no pattern of the source: {names}", style="yellow")
    if names := totals["new_columns"]:
        print_note(
            f"columns that sources/{name}.yaml does not list: {', '.join(names)} (their values are in the "
            "column _extra: to use one, add it to `fields`)",
            style="yellow",
        )
    # Without notes, the deployed state machine is of an earlier release.
    notes = totals.get("notes", [])
    for note in notes:
        print_note(note, style="yellow")
    if more := totals.get("noted", 0) - len(notes):
        print_note(f"and {counted(more, 'other file')} with such a note", style="yellow")
    if not totals["listed"]:
        print_note(
            f"no file at {pull.url} matches {pull.files} on the {counted(pull.lookback_days, 'day')} of the look-back "
            f"window: check `url`, `files` and `lookback_days` in sources/{name}.yaml; for an earlier window: "
            f"slackwater pull {name} --as-of DATE",
            style="yellow",
        )
