"""Compile a pipeline's stages into its state machine, from the frame `step_functions/pipeline.asl.json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import Stage, layers, stages
from slackwater.pipeline.retries import Machine, with_retries

_IS_FINISHED, _RUN = "Is <stage> finished?", "Run <stage>"
_DECIDE, _FREEZE = "Decide whether to wait", "Freeze inputs"
WAIT_STATE = "Wait for the inputs"
"""The state of a run that waits for its inputs."""


def compile_machine(pipeline: Pipeline, frame: Machine, *, waits: bool = True) -> Machine:
    """Return the pipeline's state machine: the frame, with its two states of a stage repeated for every stage.

    Stages that do not depend on each other run in parallel. It has no states to wait for inputs if the pipeline waits
    for nothing, or without `waits`. The deployment fills in placeholders such as `${ApplicationId}` later. Raises
    `DefinitionError` for steps without an order.
    """
    frame = frame if waits and pipeline.waits else _without_waiting(frame)
    ordered = stages(pipeline)
    indexes = {stage.name: index for index, stage in enumerate(ordered)}
    running: Machine = {}
    # From the last layer to the first, because each one names the first state of the next.
    after = frame["States"][_RUN]["Next"]
    for number, layer in reversed(list(enumerate(layers(ordered), 1))):
        branches = [_stage_states(frame["States"], stage, index=indexes[stage.name], after=after) for stage in layer]
        # The job of the last stage runs in every run, because it publishes.
        if layer == [ordered[-1]]:
            del branches[0][_filled(_IS_FINISHED, stage=ordered[-1].name)]
        elif len(layer) > 1:
            branches = [{f"Run {len(layer)} stages in parallel ({number})": _parallel(layer, branches, after=after)}]
        running = {**branches[0], **running}
        after = next(iter(running))
    states: Machine = {}
    for name, state in frame["States"].items():
        if name == _RUN:
            states |= running
        elif name != _IS_FINISHED:
            states[name] = json.loads(json.dumps(state).replace(json.dumps(_IS_FINISHED), json.dumps(after)))
    comment = f"{pipeline.pipeline}: {pipeline.description}" if pipeline.description else pipeline.pipeline
    machine: Machine = _filled({**frame, "Comment": comment, "States": states}, pipeline=pipeline.pipeline)
    return with_retries(machine)


def _without_waiting(frame: Machine) -> Machine:
    """Return the frame of a pipeline that waits for nothing."""
    states = {name: state for name, state in frame["States"].items() if name not in {_DECIDE, WAIT_STATE}}
    arguments = states[_FREEZE]["Arguments"]
    payload = {key: value for key, value in arguments["Payload"].items() if key != "missing"}
    states[_FREEZE] = {**states[_FREEZE], "Arguments": {**arguments, "Payload": payload}}
    return {**frame, "StartAt": _FREEZE, "States": states}


def _stage_states(frame: Machine, stage: Stage, *, index: int, after: str) -> Machine:
    """Return both states of a stage, after which the machine goes on to the state `after`."""
    filled: Machine = {
        _filled(name, stage=stage.name): _filled(frame[name], stage=stage.name, index=str(index))
        for name in (_IS_FINISHED, _RUN)
    }
    is_finished, run = filled.values()
    is_finished["Choices"][0]["Next"] = run["Next"] = after
    return filled


def _parallel(layer: Sequence[Stage], branches: Sequence[Machine], *, after: str) -> dict[str, Any]:
    """Return the state that runs the stages of a layer in parallel; each branch consists of both states of a stage."""
    catch: list[dict[str, Any]] = []
    for stage, states in zip(layer, branches, strict=True):
        is_finished, run = states.values()
        # A state in a branch cannot go to a state outside: the parallel state does.
        del run["Next"]
        catch = run.pop("Catch")
        run["End"] = True
        keep = f"Keep {stage.name}"
        is_finished["Choices"][0]["Next"] = keep
        states[keep] = {"Type": "Succeed", "Output": {}}
    return {
        "Type": "Parallel",
        "Comment": f"They do not read each other: {', '.join(stage.name for stage in layer)}.",
        "Branches": [{"StartAt": next(iter(states)), "States": states} for states in branches],
        "Output": {},
        "Catch": catch,
        "Next": after,
    }


def _filled(part: Any, **values: str) -> Any:
    """Return a copy of `part` with every `<name>` replaced by its value."""
    filled = json.dumps(part)
    for name, value in values.items():
        # The value becomes part of a JSON string, so it is escaped: a description may contain quotes.
        filled = filled.replace(f"<{name}>", json.dumps(value)[1:-1])
    return json.loads(filled)
