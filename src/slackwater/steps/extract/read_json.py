"""`read_json`: read JSON files of the project, in which each file is one JSON array of objects.

Fields are read as in a source's files, with the same types and formats; a compressed file is detected. A field that an
object lacks is null, unless it is `required`. A value that does not fit is an error that names file, line or row, and
field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.sources.file_format import Json
from slackwater.steps.io.typed_files import TypedFiles, read_files
from slackwater.steps.io.typed_rows import declared_columns
from slackwater.steps.step import Extract, StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ReadJson(
    TypedFiles,
    json_schema_extra={"examples": [{"path": "rates/{date}.json", "fields": {"currency": "string", "rate": "double"}}]},
):
    """Parameters of `read_json`."""


def read(parameters: ReadJson, context: StepContext) -> DataFrame:
    """Return the rows of the files. Raises `InputError` without a file, `DataError` for a wrong row."""
    return read_files(parameters, Json(), context)


STEP = Extract(name="read_json", parameters=ReadJson, read=read, columns=declared_columns)
