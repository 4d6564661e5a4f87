"""`slackwater local`: the whole cloud on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from slackwater.cli.context import find_place
from slackwater.cli.options import AsJson, ProjectFolder, examples
from slackwater.cli.output import document, say
from slackwater.cli.progress import PartState, ProgressBoard

if TYPE_CHECKING:
    from slackwater.local.cloud import LocalCloud

group = typer.Typer(name="local", help="The whole cloud on this machine.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add `local up`, `local down` and `local status`."""
    app.add_typer(group)


@group.command(epilog=examples("slackwater local up", "slackwater local up --port 4566"))
def up(
    port: int | None = typer.Option(
        None, metavar="PORT", min=1, max=65535, help="The port; that of the last time, or a free one, otherwise."
    ),
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Start the local cloud, or find it running."""
    from slackwater.local import cloud

    place = find_place(project)
    with ProgressBoard() as board:
        board.update("local cloud")
        found = cloud.up(place.root, port=port)
        board.update("local cloud", PartState.DONE)
    _show(found, as_json=as_json)


@group.command(epilog=examples("slackwater local down"))
def down(project: ProjectFolder = None, as_json: AsJson = False) -> None:
    """Stop the local cloud; what it holds stays for the next time."""
    from slackwater.local import cloud

    stopped = cloud.down(find_place(project).root)
    if as_json:
        document({"stopped": stopped})
    else:
        say("stopped" if stopped else "it was not running")


@group.command(epilog=examples("slackwater local status", "slackwater local status --json"))
def status(project: ProjectFolder = None, as_json: AsJson = False) -> None:
    """Say whether the local cloud runs, and where."""
    from slackwater.local import cloud

    _show(cloud.status(find_place(project).root), as_json=as_json)


def _show(found: LocalCloud | None, *, as_json: bool) -> None:
    if as_json:
        document(_described(found))
    elif found is None:
        say("not running (start it: slackwater local up)")
    else:
        say(f"running at {found.endpoint}", style="green")
        for name in ("region", "account", "pid", "started_at"):
            say(f"  {name.replace('_', ' '):<11}{getattr(found, name)}")
        say("To use it from other tools:")
        for name, value in found.environment().items():
            say(f"  export {name}={value}")


def _described(found: LocalCloud | None) -> dict[str, Any]:
    if found is None:
        return {"running": False}
    names = ("endpoint", "pid", "region", "account", "started_at", "ready")
    return {"running": True} | {name: getattr(found, name) for name in names} | {"environment": found.environment()}
