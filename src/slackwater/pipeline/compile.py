"""Compile a pipeline's stages into its state machine, from the frame `step_functions/pipeline.asl.json`."""

from __future__ import annotations

import json
from typing import Any

from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import stages
from slackwater.pipeline.retries import Machine, with_retries

_RUN, _RECORD = "Run <stage>", "Record <stage>"


def compile_machine(pipeline: Pipeline, frame: Machine) -> Machine:
    """Return the pipeline's state machine: the frame, with both states of a stage repeated for every stage, in order.

    The deployment fills in placeholders such as `${ApplicationId}` later. Raises `DefinitionError` as
    `slackwater.pipeline.graph.stages` does.
    """
    ordered = stages(pipeline)
    states: Machine = {}
    for name, state in frame["States"].items():
        if name == _RUN:
            for index, stage in enumerate(ordered):
                run = _filled(state, stage=stage.name, index=str(index))
                arguments = run["Arguments"]["JobDriver"]["SparkSubmit"]["EntryPointArguments"]
                # The record state of each earlier stage has added its reference to the variable `references`.
                for upstream in stage.reads_stages:
                    arguments += ["--upstream", f"{{% '{upstream}=' & $references.{upstream}.manifest %}}"]
                record = _filled(frame["States"][_RECORD], stage=stage.name)
                # The frame's `Next` is right for the last stage only.
                if index + 1 < len(ordered):
                    record["Next"] = f"Run {ordered[index + 1].name}"
                states |= {f"Run {stage.name}": run, f"Record {stage.name}": record}
        elif name != _RECORD:
            # Outside of the two states of a stage, `<stage>` occurs only as the first stage to run.
            states[name] = _filled(state, stage=ordered[0].name)
    comment = f"{pipeline.pipeline}: {pipeline.description}" if pipeline.description else pipeline.pipeline
    machine: Machine = _filled({**frame, "Comment": comment, "States": states}, pipeline=pipeline.pipeline)
    return with_retries(machine)


def _filled(part: Any, **values: str) -> Any:
    """Return a copy of `part` with every `<name>` replaced by its value."""
    filled = json.dumps(part)
    for name, value in values.items():
        # The value becomes part of a JSON string, so it is escaped: a description may contain quotes.
        filled = filled.replace(f"<{name}>", json.dumps(value)[1:-1])
    return json.loads(filled)
