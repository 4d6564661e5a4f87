"""The commands: one module for each command, or group of commands.

Commands import boto3 and other slow libraries in their functions, so that `--help` and usage errors appear quickly.
"""

from __future__ import annotations

import typer

from slackwater.cli.commands import (
    airflow,
    buffer,
    cost,
    deploy,
    destroy,
    dev,
    diff,
    doctor,
    files,
    history,
    init,
    late,
    local,
    logs,
    monitor,
    pipeline,
    pull,
    push,
    query,
    refs,
    rollback,
    run,
    runs,
    sideline,
    source,
    step,
    token,
)


def register(app: typer.Typer) -> None:
    """Add every command. `--help` lists the single commands first, then the groups, each in this order."""
    for module in (
        init,
        local,
        airflow,
        deploy,
        doctor,
        destroy,
        source,
        pipeline,
        step,
        dev,
        token,
        push,
        pull,
        files,
        sideline,
        buffer,
        run,
        runs,
        refs,
        history,
        rollback,
        monitor,
        late,
        diff,
        cost,
        logs,
        query,
    ):
        module.register(app)
