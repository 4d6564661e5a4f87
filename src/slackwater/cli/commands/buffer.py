"""`slackwater buffer`: events that were answered and wait to be stored."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from slackwater.cli.context import find_place
from slackwater.cli.options import AsJson, ProjectFolder, examples
from slackwater.cli.output import document, remark, say
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.aws.queue import Depth

group = typer.Typer(name="buffer", help="Events that wait in the queue to be stored.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add `buffer status` and `buffer redrive`."""
    app.add_typer(group)


@group.command(epilog=examples("slackwater buffer status"))
def status(project: ProjectFolder = None, as_json: AsJson = False) -> None:
    """Count the messages that wait, are being stored, or could not be.

    A message is one batch of events of a source with `buffer: queue`. The counts are approximate.
    """
    from slackwater.cli.session import Session

    depth = Session.open(find_place(project)).buffer.depth()
    if as_json:
        document(asdict(depth))
    else:
        show(depth)


@group.command(epilog=examples("slackwater buffer redrive"))
def redrive(project: ProjectFolder = None, as_json: AsJson = False) -> None:
    """Send messages that could not be stored back to the queue.

    Mend first what kept them from being stored. An event that goes back twice counts once.
    """
    from slackwater.cli.progress import PartState, ProgressBoard
    from slackwater.cli.session import Session

    moved, queues = 0, Session.open(find_place(project)).buffer
    with ProgressBoard() as board:
        board.update("redrive")
        for moved in queues.redrive():
            board.update("redrive", note=counted(moved, "message"))
        board.update("redrive", PartState.DONE, note=counted(moved, "message"))
    if as_json:
        document({"moved": moved})
    elif moved:
        say(f"{counted(moved, 'message')} sent back: stored within seconds, or here again after some attempts")
    else:
        say("nothing to send back: there are no dead letters")


def show(depth: Depth) -> None:
    """Print how many messages there are, and what to do about dead ones."""
    say(f"{counted(depth.waiting, 'message')} waiting, {depth.in_flight:,} being stored, {depth.dead:,} not stored")
    if depth.dead:
        remark(
            "The log of store-events says why they could not be stored. Mend that, then: slackwater buffer redrive",
            style="yellow",
        )
