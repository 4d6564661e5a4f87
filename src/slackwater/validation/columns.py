"""Check the columns that steps need against those that their inputs can have, as far as these are known."""

from __future__ import annotations

from collections.abc import Mapping

from slackwater.faults import Fault, unknown_name
from slackwater.pipeline.definition import Pipeline
from slackwater.steps.input_columns import Columns, InputColumns
from slackwater.validation.column_types import Types, has_hours, is_number, published_types
from slackwater.validation.steps import CheckedStep
from slackwater.validation.yaml_file import YamlFile


def check_columns(
    file: YamlFile,
    pipeline: Pipeline,
    checked: Mapping[str, CheckedStep],
    sources: Mapping[str, Columns | None],
    types: Mapping[str, Types],
) -> None:
    """Check the columns of every valid step and of `publish`, and report the problems to the pipeline's file.

    `sources` are the columns of the project's sources by name, None where they could not be read, and `types` their
    types.
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
    if pipeline.publish.metrics or pipeline.publish.hour:
        of_rows = published_types(pipeline, checked, types)
        _check_metrics(file, pipeline, rows, of_rows)
        _check_hour(file, pipeline, rows, of_rows)


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


def _check_metrics(file: YamlFile, pipeline: Pipeline, rows: Columns | None, types: Types) -> None:
    """Report metrics of columns that the rows lack, if these are known, and totals of what is known to be no number."""
    step = pipeline.publish.step
    # Spark matches names without regard to case.
    known = None if rows is None else [name.lower() for name in rows]
    by_name = {name.lower(): data_type for name, data_type in types.items()}
    metrics = {name: total for name, total in pipeline.publish.metrics.items() if name not in pipeline.publish.key}
    for name, aggregation in metrics.items():
        path = ("publish", "metrics", name)
        if known is not None and name.lower() not in known:
            file.report(unknown_name(f"no column {name!r} in {step}", name, known, path=path, at_key=True))
        elif aggregation in ("sum", "mean", "min", "max") and name in by_name and not is_number(by_name[name]):
            message = f"{name} is of type {by_name[name]}, and {aggregation} needs a number: cast it, or write none"
            file.report(Fault(path=path, message=message))


def _check_hour(file: YamlFile, pipeline: Pipeline, rows: Columns | None, types: Types) -> None:
    """Report a column of hours that the rows lack, if these are known, and one whose known type has no hours."""
    name, step, path = pipeline.publish.hour, pipeline.publish.step, ("publish", "hour")
    if not name:
        return
    by_name = {column.lower(): data_type for column, data_type in types.items()}
    if rows is not None and name.lower() not in (column.lower() for column in rows):
        file.report(unknown_name(f"no column {name!r} in {step}", name, rows, path=path))
    elif name in by_name and not has_hours(by_name[name]):
        message = f"{name} is of type {by_name[name]}: use a timestamp, or an integer with the local hour from 0 to 23"
        file.report(Fault(path=path, message=message))
