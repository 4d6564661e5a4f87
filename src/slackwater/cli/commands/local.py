"""`slackwater local`: the local cloud, AWS's services on this machine."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import typer

from slackwater.cli.options import AsJson, ProjectFolder, examples
from slackwater.cli.output import print_json, print_text
from slackwater.cli.progress import ProgressBoard, TaskState
from slackwater.client.workspace import find_workspace

if TYPE_CHECKING:
    from slackwater.local.cloud import LocalCloud

group = typer.Typer(name="local", help="The local cloud: AWS's services on this machine.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add `local up`, `local down` and `local status`."""
    app.add_typer(group)


@group.command(epilog=examples("slackwater local up", "slackwater local up --port 4566"))
def up(
    port: int | None = typer.Option(
        None, metavar="PORT", min=1, max=65535, help="The port. Default: the last one used, else a free one."
    ),
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Start the local cloud if it does not run yet. The first start fetches Spark's jars (115 MB)."""
    from slackwater.local import cloud, jars
    from slackwater.local.layout import Layout

    workspace = find_workspace(project)
    folder = Layout(workspace.root).jars
    with ProgressBoard() as progress:
        if cloud.status(workspace.root) is None:
            first = not jars.is_complete(folder)
            if first:
                progress.update("fetch Spark's jars")
            jars.fetch(folder)  # later, it only updates the links to Spark, whose environment may have moved
            if first:
                progress.update("fetch Spark's jars", TaskState.DONE)
        progress.update("local cloud")
        local_cloud = cloud.up(workspace.root, port=port)
        progress.update("local cloud", TaskState.DONE)
    _print_status(local_cloud, as_json=as_json)


@group.command(epilog=examples("slackwater local down", "slackwater local down --json"))
def down(project: ProjectFolder = None, as_json: AsJson = False) -> None:
    """Stop the local cloud. It keeps its data."""
    from slackwater.local import cloud

    stopped = cloud.down(find_workspace(project).root)
    if as_json:
        print_json({"stopped": stopped})
    else:
        print_text("stopped" if stopped else "it was not running")


@group.command(epilog=examples("slackwater local status", "slackwater local status --json"))
def status(project: ProjectFolder = None, as_json: AsJson = False) -> None:
    """Show whether the local cloud runs, and at which endpoint."""
    from slackwater.local import cloud

    _print_status(cloud.status(find_workspace(project).root), as_json=as_json)


def _print_status(local_cloud: LocalCloud | None, *, as_json: bool) -> None:
    if local_cloud is None:
        if as_json:
            print_json({"running": False})
        else:
            print_text("not running (to start it: slackwater local up)")
        return
    if as_json:
        names = ("endpoint", "pid", "region", "account", "started_at", "ready")
        fields = {name: getattr(local_cloud, name) for name in names}
        print_json({"running": True, **fields, "environment": local_cloud.environment()})
        return
    print_text(f"running at {local_cloud.endpoint}", style="green")
    for name in ("region", "account", "pid", "started_at"):
        print_text(f"  {name.replace('_', ' '):<11}{getattr(local_cloud, name)}")
    print_text("To use it from other tools:")
    for name, value in local_cloud.environment().items():
        print_text(f"  export {name}={shlex.quote(value)}")
