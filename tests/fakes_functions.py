"""The resources of Lambda functions over fakes."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from slackwater.aws.function_resources import FunctionResources
from slackwater.aws.queue import MessageQueue
from slackwater.aws.wake_requests import WakeRequests
from slackwater.runs.cost_recorder import RecordedCosts
from slackwater.runs.pipeline_verdicts import PipelineVerdicts
from tests.fakes_state import MemoryVerdicts


@dataclass
class NoCosts:
    """A recorder of costs for which none is due."""

    table: Any = None

    def record(self, record):
        return True

    def record_due(self, pipeline, *, within):
        return RecordedCosts((), ())


def resources_of(settings: dict[str, Any] | None = None, **fakes: Any) -> FunctionResources:
    """Return the resources of a function with these settings, in which the fakes are."""
    resources = FunctionResources(SimpleNamespace(**settings or {}), None)
    defaults = {"once": resources, "arrivals": MessageQueue(None, ""), "costs": NoCosts()}
    defaults["wake_requests"] = WakeRequests(None, "")
    defaults["pipeline_verdicts"] = PipelineVerdicts(store=Mock(), runs=Mock(), table=MemoryVerdicts(), wake=Mock())
    vars(resources).update({**defaults, "update_raw_table": lambda *_: None, **fakes})
    return resources


def use_resources(
    monkeypatch: pytest.MonkeyPatch, function: ModuleType, settings: dict[str, Any] | None = None, **fakes: Any
) -> FunctionResources:
    """Let a function use the resources that `resources_of` returns, and fakes of what it composes itself."""
    composed = {name: fakes.pop(name) for name in list(fakes) if hasattr(function, name)}
    for name, fake in composed.items():
        monkeypatch.setattr(function, name, Mock(return_value=fake))
    resources = resources_of(settings, **fakes)
    monkeypatch.setattr(function, "function_resources", lambda *_, **__: resources)
    return resources
