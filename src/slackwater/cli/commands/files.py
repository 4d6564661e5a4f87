"""`slackwater files`: the files of a pulled source, and the decision to give some up."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from slackwater.cli.options import AsJson, ProjectFolder, examples, read_date
from slackwater.cli.output import print_json, print_note, print_table, print_text
from slackwater.client.arguments import pulled_source
from slackwater.client.workspace import find_workspace
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.receiver.pull.file_cache import FileEntry

# The values of `FileState`, which is slow to import.
State = Literal["listed", "leased", "stored", "duplicate", "vanished", "failed", "given-up"]
_COLUMNS = ("path", "state", "rows", "rejected", "attempts", "next attempt (UTC)", "not taken since (UTC)", "reason")

SourceName = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A source of the project that has `pull`.", show_default=False)
]


class _FilesGroup(TyperGroup):
    """A group whose command `list` may be left out: `files SOURCE` means `files list SOURCE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["list", *args]
        return super().parse_args(ctx, args)


group = typer.Typer(
    name="files",
    cls=_FilesGroup,
    help="The files of a pulled source. `slackwater files SOURCE` lists them.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    """Add `files SOURCE` (also as `files list SOURCE`) and `files give-up`."""
    app.add_typer(group)


@group.command(
    "list",
    epilog=examples(
        "slackwater files flights",
        "slackwater files flights --state failed",
        "slackwater files list flights --as-of 2013-03-12",
    ),
)
def list_(  # noqa: PLR0917 - the command line's own options
    source: SourceName,
    state: Annotated[
        State | None,
        typer.Option(help="Only files with this state; `failed` and `leased`: of any date.", show_default=False),
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="The look-back window ends on this day. Default: today.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="Print at most N files.")] = 100,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """List the files of the look-back window, and all files that are not taken yet.

    Files that are not taken come first, the oldest first. Then the latest date comes first.
    """
    last = read_date(as_of, option="--as-of") if as_of else None
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    pulled_source(definitions, source)
    from slackwater.client.client import Client

    with Client.open(workspace, definitions) as client:
        files = client.files(source, state=state, as_of=last, limit=limit)
    if as_json:
        print_json({"source": source, "files": [file_document(file) for file in files.entries], "more": files.more})
    elif files.entries:
        print_table(_COLUMNS, [tuple(file_document(file, instants=_minutes).values()) for file in files.entries])
        if files.more:
            print_note(f"these are the first {counted(limit, 'file')} (to see more: --limit N)", style="yellow")
    else:
        of_state = f" with state {state}" if state else ""
        print_text(f"no files of {source}{of_state}")


@group.command(
    "give-up",
    epilog=examples(
        "slackwater files give-up flights flights-2013-03-10-08.csv",
        'slackwater files give-up flights flights-2013-03-10-08.csv --reason "the partner cannot repair it"',
    ),
)
def give_up(
    source: SourceName,
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Paths as `slackwater files` lists them.", show_default=False)
    ],
    reason: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Why. Default: the reason of the last failure.", show_default=False),
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Give up files that cannot be fetched: no pull tries them again, unless the partner changes them.

    Either all files are given up or none. Rows of an earlier content of a file stay stored.
    """
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    pulled_source(definitions, source)
    from slackwater.client.client import Client

    with Client.open(workspace, definitions) as client:
        entries = client.give_up(source, paths, reason=reason)
    if as_json:
        print_json({"source": source, "files": [file_document(entry) for entry in entries]})
        return
    print_text(f"{source}: {counted(len(entries), 'file')} given up", style="green")
    if unfinished := [entry for entry in entries if entry.is_unfinished]:
        print_note(f"the next pull deletes what earlier attempts have left of {counted(len(unfinished), 'file')}")


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
