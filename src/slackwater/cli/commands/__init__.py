"""One module a command, or a group of commands."""

from __future__ import annotations

import typer

from slackwater.cli.commands import (
    buffer,
    deploy,
    diff,
    local,
    logs,
    monitor,
    pull,
    push,
    query,
    run,
    runs,
    sideline,
    source,
    token,
)


def register(app: typer.Typer) -> None:
    """Add every command, in the order in which `--help` lists them."""
    for group in (local, deploy, source, token, push, pull, sideline, buffer, run, runs, monitor, diff, logs, query):
        group.register(app)
