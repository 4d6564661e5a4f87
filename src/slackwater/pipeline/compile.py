"""Setting a pipeline's stages into the frame of its state machine (`step_functions/pipeline.asl.json`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import Stage, stages

_RUN, _RECORD, _PUBLISH = "Run <stage>", "Record <stage>", "Publish the day"

Machine = dict[str, Any]
"""A state machine's definition in Amazon States Language."""


def compile_machine(pipeline: Pipeline, frame: Machine) -> Machine:
    """Return the pipeline's state machine: the frame, its two stage states repeated for every stage, in order.

    Placeholders such as `${ApplicationId}` are left for the deployment to fill. Raises `DefinitionError` for a
    pipeline whose steps cannot be ordered.
    """
    ordered = stages(pipeline)
    states: Machine = {}
    for name, state in frame["States"].items():
        if name == _RUN:
            states |= _stage_states(frame, ordered)
        elif name != _RECORD:
            states[name] = _filled(state, stage=ordered[0].name)
    _read(states[_PUBLISH], [pipeline.publish.step])
    comment = f"{pipeline.pipeline}: {pipeline.description}" if pipeline.description else pipeline.pipeline
    machine: Machine = _filled({**frame, "Comment": comment, "States": states}, pipeline=pipeline.pipeline)
    return machine


def _stage_states(frame: Machine, ordered: Sequence[Stage]) -> Machine:
    states: Machine = {}
    for index, stage in enumerate(ordered):
        run = _filled(frame["States"][_RUN], stage=stage.name, index=str(index))
        record = _filled(frame["States"][_RECORD], stage=stage.name)
        _read(run, stage.reads_stages)
        record["Next"] = f"Run {ordered[index + 1].name}" if index + 1 < len(ordered) else _PUBLISH
        states |= {f"Run {stage.name}": run, f"Record {stage.name}": record}
    return states


def _read(state: Machine, upstream: Sequence[str]) -> None:
    """Give the job the manifests of the stages it reads."""
    arguments = state["Arguments"]["JobDriver"]["SparkSubmit"]["EntryPointArguments"]
    for name in upstream:
        arguments += ["--upstream", f"{{% '{name}=' & $references.{name}.manifest %}}"]


def _filled(part: Any, **values: str) -> Any:
    """Return a copy of `part` with every `<name>` replaced."""
    text = json.dumps(part)
    for name, value in values.items():
        text = text.replace(f"<{name}>", json.dumps(value)[1:-1])
    return json.loads(text)
