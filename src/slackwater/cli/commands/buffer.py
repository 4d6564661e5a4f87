"""`slackwater buffer`: events that the API has accepted and that wait to be stored."""

from __future__ import annotations

from dataclasses import asdict

import typer

from slackwater.cli.options import AsJson, ProjectFolder, examples
from slackwater.cli.output import print_json, print_note, print_text
from slackwater.client.workspace import find_workspace
from slackwater.formatting import counted

group = typer.Typer(name="buffer", help="The queue of events that wait to be stored.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add `buffer status` and `buffer redrive`."""
    app.add_typer(group)


@group.command(epilog=examples("slackwater buffer status", "slackwater buffer status --json"))
def status(project: ProjectFolder = None, as_json: AsJson = False) -> None:
    """Count the messages in the queue and the dead letters.

    A message is one batch of events of a source with `buffer: queue`. A dead letter is a message that could not be
    stored. The counts are approximate.
    """
    from slackwater.client.client import Client

    with Client.open(find_workspace(project)) as client:
        depth = client.buffer.depth()
    if as_json:
        print_json(asdict(depth))
        return
    messages = counted(depth.waiting, "message")
    print_text(f"{messages} waiting, {depth.in_flight:,} being stored, {depth.dead:,} could not be stored")
    if depth.dead:
        print_note(
            "The log of the function store-events has the reason. Remove the cause, then: slackwater buffer redrive",
            style="yellow",
        )


@group.command(epilog=examples("slackwater buffer redrive", "slackwater buffer redrive --json"))
def redrive(project: ProjectFolder = None, as_json: AsJson = False) -> None:
    """Send the dead letters back to the queue.

    Dead letters are messages that could not be stored. First remove the cause of the failure. An event that is sent
    back twice is stored once.
    """
    from slackwater.cli.progress import ProgressBoard, TaskState
    from slackwater.client.client import Client

    moved = 0
    with Client.open(find_workspace(project)) as client, ProgressBoard() as progress:
        progress.update("redrive")
        for moved in client.buffer.redrive():
            progress.update("redrive", note=counted(moved, "message"))
        progress.update("redrive", TaskState.DONE, note=counted(moved, "message"))
    if as_json:
        print_json({"moved": moved})
    elif moved:
        print_text(
            f"{counted(moved, 'message')} sent back to the queue (to see what is stored: slackwater buffer status)"
        )
    else:
        print_text("nothing to send back: there are no dead letters")
