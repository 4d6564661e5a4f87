"""Where in a pipeline's file the failure of a step is that Spark has executed."""

from __future__ import annotations

import re
from pathlib import Path as FilePath

from slackwater.problems import Problem
from slackwater.validation.model_errors import value_at
from slackwater.validation.steps import problem_of
from slackwater.validation.yaml_file import FileProblem, YamlFile

_STEP = re.compile(r"(?:^|\s)steps\.(\w+)(\.with\.|: )(.*)", re.DOTALL)
_POSITION = re.compile(r" \(line (\d+), column (\d+)\)")


def failure_in_file(path: FilePath, message: str) -> FileProblem | None:
    """Return a failure at its position in a pipeline's file; None if the message names no step of the file.

    `message` contains `steps.NAME: ...`, or `steps.NAME.with.PARAMETER: ...` with the position in SQL as a run adds it.
    """
    match = _STEP.search(message)
    if not match or not path.is_file():
        return None
    name, separator, reason = match.groups()
    file = YamlFile(path, path.read_bytes())
    step = value_at(file.value, ("steps", name))
    if step is None:
        return None
    position = _POSITION.search(reason)
    reason = _POSITION.sub("", reason, count=1)
    if separator == ": ":
        problem = Problem(message=reason, at_key=True)
    else:
        problem = problem_of(reason, value_at(step, ("with",)))
        problem = Problem(
            message=problem.message,
            path=("with", *problem.path),
            position=(int(position[1]), int(position[2])) if position else None,
        )
    file.report(problem, below=("steps", name))
    return file.problems[-1]
