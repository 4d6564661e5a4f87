"""Check the columns that steps need against those that their inputs can have, as far as these are known."""

from __future__ import annotations

from collections.abc import Mapping

from slackwater.faults import Fault, unknown_name
from slackwater.pipeline.definition import Pipeline
from slackwater.steps.input_columns import Columns, InputColumns
from slackwater.validation.steps import CheckedStep
from slackwater.validation.yaml_file import YamlFile


def check_columns(
    file: YamlFile, pipeline: Pipeline, checked: Mapping[str, CheckedStep], sources: Mapping[str, Columns | None]
) -> None:
    """Check the columns of every valid step and of `publish.key`, and report the problems to the pipeline's file.

    `sources` are the columns of the project's sources by name, None where they could not be read.
    """
    frozen = {name: sources.get(name) for name in pipeline.sources}
    # A published table may also have columns of earlier definitions.
    known: dict[str, Columns | None] = {**dict.fromkeys(pipeline.tables), **frozen}

    def columns_of(name: str) -> Columns | None:
        if name not in known:
            known[name] = None  # while its inputs are looked up, which may be in a cycle
            if name in checked:
                use, step = pipeline.steps[name], checked[name]
                inputs = InputColumns({read: columns_of(read) for read in use.depends_on}, sources=frozen)
                known[name] = step.step.columns(inputs, step.parameters)
                for fault in inputs.faults:
                    file.report(fault, below=("steps", name, "with"))
        return known[name]

    for name in pipeline.steps:
        columns_of(name)
    published = pipeline.publish.step
    rows = columns_of(published) if published in pipeline.steps else None
    if rows is not None:
        _check_published(file, pipeline, rows)


def _check_published(file: YamlFile, pipeline: Pipeline, rows: Columns) -> None:
    """Report columns of the key that the rows lack, and a column `date`, which publishing adds."""
    step = pipeline.publish.step
    for index, name in enumerate(pipeline.publish.key):
        if name != "date" and name not in rows:
            file.report(unknown_name(f"no column {name!r} in {step}", name, rows, path=("publish", "key", index)))
    for name in rows:
        if name.lower() == "date":
            message = f"{step} has a column {name!r}, and publishing adds `date` itself: rename the column"
            file.report(Fault(path=("publish", "step"), message=message))
