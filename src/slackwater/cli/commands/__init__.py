"""The commands: one module for each command, or group of commands.

Commands import boto3 and other slow libraries in their functions, so that `--help` and usage errors appear quickly.
"""

from __future__ import annotations

from importlib import import_module

# `--help` lists the single commands first, then the groups, each in this order.
MODULES = (
    *("init", "local", "airflow", "plan", "deploy", "doctor", "destroy", "source", "pipeline", "step", "dev", "test"),
    *("token", "push", "pull", "files", "counts", "state", "verdict", "sideline"),
    *("run", "stop", "runs", "history", "lineage", "why"),
    *("monitor", "late", "diff", "cost", "logs", "query", "docs"),
)
for _module in MODULES:
    import_module(f"{__name__}.{_module}")
