"""`read_partition`: read the events of a source that the run has frozen.

These are the rows that a step gets which names the source in `depends_on`: the events of the run's day in the objects
of its input manifest, each event id once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.model import Name
from slackwater.problems import unknown_name
from slackwater.steps.input_columns import Columns, InputColumns
from slackwater.steps.step import Extract, Parameters, StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ReadPartition(Parameters, json_schema_extra={"examples": [{"source": "flights"}]}):
    """Parameters of `read_partition`."""

    source: Name
    """Name of the source; the pipeline lists it under `sources`."""


def result_columns(inputs: InputColumns, parameters: ReadPartition) -> Columns | None:
    """Return the columns of the source, which has to be one of the pipeline's."""
    if parameters.source not in inputs.sources:
        message = f"{parameters.source} is not one of the pipeline's sources: correct it, or add it to `sources`"
        inputs.problems.append(unknown_name(message, parameters.source, inputs.sources, path=("source",)))
    return inputs.sources.get(parameters.source)


def read(parameters: ReadPartition, context: StepContext) -> DataFrame:
    """Return the events. Raises `InputError` outside of a run, and for a source that the pipeline does not list."""
    return context.read_source(parameters.source)


STEP = Extract(name="read_partition", parameters=ReadPartition, read=read, columns=result_columns)
