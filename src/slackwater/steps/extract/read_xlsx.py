"""`read_xlsx`: read a sheet of each of the project's Excel workbooks; its first row that is not empty is the header.

Cells are read as in a source's files: formulas by their last results. A field without a column is null, unless it is
`required`. A row that does not fit is an error that names workbook, row and field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.sources.file_format import Xlsx
from slackwater.steps.io.typed_files import TypedFiles, read_files
from slackwater.steps.io.typed_rows import declared_columns
from slackwater.steps.step import Extract, StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ReadXlsx(
    TypedFiles,
    json_schema_extra={
        "examples": [
            {
                "path": "budget.xlsx",
                "sheet": "2013",
                "fields": {"team": "string", "amount": {"type": "double", "from": "Amount EUR"}},
            }
        ]
    },
):
    """Parameters of `read_xlsx`."""

    sheet: str | None = None
    """Name of the sheet. The default is the first visible sheet."""


def read(parameters: ReadXlsx, context: StepContext) -> DataFrame:
    """Return the rows of the sheets. Raises `InputError` without a file, `DataError` for a wrong row."""
    return read_files(parameters, Xlsx(sheet=parameters.sheet), context)


STEP = Extract(name="read_xlsx", parameters=ReadXlsx, read=read, columns=declared_columns)
