"""Slackwater: partner data that arrives late, processed by the day, and processed again when it changes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slackwater.client.client import Client
    from slackwater.client.days.runs import RunHandle, RunResult
    from slackwater.client.tables import PublishedTable, QueryResult

__version__ = "0.2.0"

_MODULES = {
    "Client": "slackwater.client.client",
    "PublishedTable": "slackwater.client.tables",
    "QueryResult": "slackwater.client.tables",
    "RunHandle": "slackwater.client.days.runs",
    "RunResult": "slackwater.client.days.runs",
}
"""The module of each public name. It is imported with the name: Lambda functions and Spark jobs lack what it needs."""

__all__ = ["Client", "PublishedTable", "QueryResult", "RunHandle", "RunResult"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
