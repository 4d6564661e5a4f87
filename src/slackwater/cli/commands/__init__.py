"""The commands: one module for each command, or group of commands.

Commands import boto3 and other slow libraries in their functions, so that `--help` and usage errors appear quickly.
"""

from __future__ import annotations

import typer

from slackwater.cli.commands.data import buffer, files, pull, push, query, sideline, token
from slackwater.cli.commands.days import cost, diff, history, logs, refs, rollback, run, runs
from slackwater.cli.commands.definitions import dev, init, pipeline, source, step
from slackwater.cli.commands.deployment import airflow, deploy, destroy, doctor, local
from slackwater.cli.commands.late_data import late, monitor


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
