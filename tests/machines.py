"""Reading state machines: their states, and the values of their JSONata expressions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonata

from slackwater.pipeline.retries import Machine


def states_of(machine: Machine) -> Iterator[tuple[str, Machine, dict[str, Machine]]]:
    """Yield each state's name and definition, with all states of the same level."""
    for name, state in machine["States"].items():
        yield name, state, machine["States"]
        for inner in (state["ItemProcessor"],) if "ItemProcessor" in state else state.get("Branches", ()):
            yield from states_of(inner)


def tasks_of(machine: Machine) -> list[tuple[str, Machine]]:
    """Return the tasks of a machine by name, also those inside of `Map` and `Parallel` states."""
    return [(name, state) for name, state, _ in states_of(machine) if state["Type"] == "Task"]


def evaluated(template: Any, states: dict[str, Any], variables: dict[str, Any]) -> Any:
    """Return a template with its JSONata expressions evaluated. An expression without a result is None."""
    if isinstance(template, dict):
        return {name: evaluated(value, states, variables) for name, value in template.items()}
    if isinstance(template, list):
        return [evaluated(value, states, variables) for value in template]
    if not (isinstance(template, str) and template.startswith("{%")):
        return template
    return _expression(template).evaluate(None, {**variables, "states": states})


@cache
def _expression(template: str) -> jsonata.Jsonata:
    expression = jsonata.Jsonata(template.removeprefix("{%").removesuffix("%}"))
    # Step Functions' own function.
    expression.register_lambda("parse", json.loads)
    return expression
