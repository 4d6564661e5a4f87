"""Replaces the pauses of one module, so that tests do not wait and other threads still do."""

from __future__ import annotations

import time
from importlib import import_module
from types import SimpleNamespace

import pytest


def record_pauses(patch: pytest.MonkeyPatch, *modules: str) -> list[float]:
    """Let the modules pause no more. Return a list that receives the pauses, in seconds."""
    pauses = list[float]()
    for module in modules:
        # `time.sleep` itself stays: without it, threads of servers that earlier tests have started would never rest.
        patch.setattr(import_module(module), "time", SimpleNamespace(**{**vars(time), "sleep": pauses.append}))
    return pauses
