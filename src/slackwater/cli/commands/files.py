"""`slackwater files`: the files of a pulled source, and the decision to give some up."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from slackwater.cli.command import ListGroup, Result, Session, command, command_group
from slackwater.cli.options import argument, date_option, option
from slackwater.cli.output import print_note, print_table, print_text
from slackwater.client.arguments import pulled_source
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.client.results import FileEntry

# The values of `FileState`, which is slow to import.
State = Literal["listed", "leased", "stored", "duplicate", "vanished", "failed", "given-up"]
_COLUMNS = ("path", "state", "rows", "rejected", "attempts", "next attempt (UTC)", "not taken since (UTC)", "reason")

SourceName = Annotated[str, argument("SOURCE", "A source of the project that has `pull`.")]


group = command_group("files", "The files of a pulled source. `slackwater files SOURCE` lists them.", kind=ListGroup)


@command(
    "slackwater files flights",
    "slackwater files flights --state failed",
    "slackwater files list flights --as-of 2013-03-12",
    name="list",
    group=group,
)
def list_(
    source: SourceName,
    state: Annotated[
        State | None, option(text="Only files with this state; `failed` and `leased`: of any date.")
    ] = None,
    as_of: Annotated[str | None, date_option(text="The look-back window ends on this day. Default: today.")] = None,
    limit: Annotated[int, option(metavar="N", min=1, show_default=True, text="Print at most N files.")] = 100,
    *,
    session: Session,
) -> Result:
    """List the files of the look-back window, and all files that are not taken yet.

    Files that are not taken come first, the oldest first. Then the latest date comes first.
    """
    pulled_source(session.project, source)
    files = session.client.files(source, state=state, as_of=as_of, limit=limit)

    def view() -> None:
        print_table(_COLUMNS, [tuple(file_document(file, instants=_minutes).values()) for file in files.entries])
        if files.more:
            print_note(f"these are the first {counted(limit, 'file')} (to see more: --limit N)", style="yellow")

    document = {"source": source, "files": [file_document(file) for file in files.entries], "more": files.more}
    return Result(document, view if files.entries else f"no files of {source}{f' with state {state}' if state else ''}")


@command(
    "slackwater files give-up flights flights-2013-03-10-08.csv",
    'slackwater files give-up flights flights-2013-03-10-08.csv --reason "the partner cannot repair it"',
    name="give-up",
    group=group,
    writes=True,
)
def give_up(
    source: SourceName,
    paths: Annotated[list[str], argument("PATH...", "Paths as `slackwater files` lists them.")],
    reason: Annotated[str | None, option(metavar="TEXT", text="Why. Default: the reason of the last failure.")] = None,
    *,
    session: Session,
) -> Result:
    """Give up files that cannot be fetched: no pull tries them again, unless the partner changes them.

    Either all files are given up or none. Rows of an earlier content of a file stay stored.
    """
    pulled_source(session.project, source)
    entries = session.client.give_up(source, paths, reason=reason)

    def view() -> None:
        print_text(f"{source}: {counted(len(entries), 'file')} given up", style="green")

    return Result({"source": source, "files": [file_document(entry) for entry in entries]}, view)


def file_document(entry: FileEntry, instants: Any = None) -> dict[str, Any]:
    """Return a file as its JSON document; `instants` converts its times."""
    convert = instants or (lambda instant: instant)
    return {
        "path": entry.path,
        "state": entry.state.value,
        "rows": entry.rows,
        "rejected": entry.rejected,
        "attempts": entry.attempts,
        "next_attempt": convert(entry.due if entry.is_unfinished else None),
        "since": convert(None if entry.is_taken else entry.not_taken_since),
        "reason": entry.reason,
    }


def _minutes(instant: datetime | None) -> str | None:
    return f"{instant:%Y-%m-%d %H:%M}" if instant else None
