"""`slackwater local`: the local cloud, AWS's services on this machine."""

from __future__ import annotations

import shlex
from functools import partial
from typing import TYPE_CHECKING, Annotated

from slackwater.cli.command import Result, Session, command, command_group
from slackwater.cli.options import option
from slackwater.cli.output import print_text
from slackwater.errors import InputError
from slackwater.progress import ProgressBoard, TaskState

if TYPE_CHECKING:
    from pathlib import Path

    from slackwater.local.cloud import LocalCloud

group = command_group("local", "The local cloud: AWS's services on this machine.")


@command("slackwater local up", "slackwater local up --port 4566", group=group)
def up(
    port: Annotated[
        int | None,
        option(metavar="PORT", min=1, max=65535, text="The port. Default: the last one used, else a free one."),
    ] = None,
    *,
    session: Session,
) -> Result:
    """Start the local cloud if it does not run yet. The first start fetches Spark's jars (115 MB)."""
    from slackwater.local import cloud, jars
    from slackwater.local.layout import Layout

    root = session.workspace.root
    folder = Layout(root).jars
    with ProgressBoard() as progress:
        if cloud.status(root) is None:
            first = not jars.is_complete(folder)
            if first:
                progress.update("fetch Spark's jars")
            jars.fetch(folder)  # later, it only updates the links to Spark, whose environment may have moved
            if first:
                progress.update("fetch Spark's jars", TaskState.DONE)
        progress.update("local cloud")
        local_cloud = cloud.up(root, port=port)
        progress.update("local cloud", TaskState.DONE)
    return _status(local_cloud, root)


@command("slackwater local down", "slackwater local down --json", group=group)
def down(*, session: Session) -> Result:
    """Stop the local cloud. It keeps its data."""
    from slackwater.local import cloud

    stopped = cloud.down(session.workspace.root)
    return Result({"stopped": stopped}, "stopped" if stopped else "it was not running")


@command("slackwater local status", "slackwater local status --json", group=group)
def status(*, session: Session) -> Result:
    """Show whether the local cloud runs, and at which endpoint."""
    from slackwater.local import cloud

    root = session.workspace.root
    local_cloud = cloud.status(root)
    if local_cloud is None and (problem := _no_project(session)):
        return Result({"running": False}, f"not running here: {problem}")
    return _status(local_cloud, root)


@command("slackwater local env", "slackwater local env --json", group=group)
def env(*, session: Session) -> Result:
    """Print the variables with which other tools use the local cloud, as commands for `eval "$(...)"` in a shell."""
    from slackwater.local import cloud

    if (local_cloud := cloud.status(session.workspace.root)) is None:
        problem = _no_project(session) or "start it with `slackwater local up`"
        raise InputError(f"no local cloud runs here: {problem}")
    variables = local_cloud.environment()
    return Result(variables, "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items()))


def _no_project(session: Session) -> str:
    """Return that the folder has no project, and the remedy; empty if it has one."""
    from slackwater.validation.check_project import NO_PROJECT

    folder = session.workspace.project
    return "" if (folder / "sources").is_dir() else NO_PROJECT.format(folder=folder)


def _status(local_cloud: LocalCloud | None, root: Path) -> Result:
    if local_cloud is None:
        return Result({"running": False}, "not running (to start it: slackwater local up)")
    names = ("endpoint", "pid", "region", "account", "started_at", "ready")
    fields = {"folder": str(root), **{name: getattr(local_cloud, name) for name in names}}
    document = {"running": True, **fields, "environment": local_cloud.environment()}
    return Result(document, partial(_print_status, local_cloud, root))


def _print_status(local_cloud: LocalCloud, root: Path) -> None:
    print_text(f"running at {local_cloud.endpoint}", style="green")
    print_text(f"  {'folder':<11}{root}")
    for name in ("region", "account", "pid", "started_at"):
        print_text(f"  {name.replace('_', ' '):<11}{getattr(local_cloud, name)}")
    print_text('To use it from other tools: eval "$(slackwater local env)"')
