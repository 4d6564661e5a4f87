"""Check the steps of a pipeline that a test has built."""

from __future__ import annotations

from pathlib import Path

import yaml

from slackwater.errors import DefinitionError
from slackwater.pipeline.definition import Pipeline
from slackwater.validation import steps
from slackwater.validation.structure import Structure
from slackwater.validation.yaml_file import YamlFile


def check_steps(pipeline: Pipeline) -> None:
    """Check all steps, as a project's are when it is loaded. Raises `DefinitionError` with all problems."""
    content = pipeline.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    file = YamlFile(Path(f"{pipeline.pipeline}.yaml"), yaml.safe_dump(content).encode())
    steps.check_steps(file, pipeline, Structure(definition=pipeline))
    if file.problems:
        raise DefinitionError("\n".join(problem.description for problem in file.problems))
