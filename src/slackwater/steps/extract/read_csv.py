"""`read_csv`: read CSV files of the project; the header names the columns.

Cells are read as in a source's files, with the same types and formats; a compressed file is detected. A field without a
column is null, unless it is `required`. A row that does not fit is an error that names file, line and field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.sources.file_format import Csv
from slackwater.steps.io.typed_files import TypedFiles, read_files
from slackwater.steps.io.typed_rows import declared_columns
from slackwater.steps.step import Extract, StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ReadCsv(
    TypedFiles,
    json_schema_extra={
        "examples": [
            {
                "path": "rates/{date}.csv",
                "fields": {"currency": "string", "rate": "double"},
                "format": {"delimiter": ";"},
            }
        ]
    },
):
    """Parameters of `read_csv`."""

    format: Csv = Csv()
    """How the files are written: `delimiter`, `quote`, `encoding`, `skip_lines`, and `columns` for files without a
    header."""


def read(parameters: ReadCsv, context: StepContext) -> DataFrame:
    """Return the rows of the files. Raises `InputError` without a file, `DataError` for a wrong row."""
    return read_files(parameters, parameters.format, context)


STEP = Extract(name="read_csv", parameters=ReadCsv, read=read, columns=declared_columns)
