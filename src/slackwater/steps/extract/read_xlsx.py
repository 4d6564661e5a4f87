"""`read_xlsx`: read a sheet of each of the project's Excel workbooks; its first row that is not empty is the header.

Cells are read as in a source's files: formulas by their last results. A field without a column is null, unless it is
`required`. A row that does not fit is an error that names workbook, row and field.
"""

from __future__ import annotations

from slackwater.sources.file_format import Xlsx
from slackwater.steps.io.typed_files import TypedFiles, file_reader


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


STEP = file_reader("read_xlsx", ReadXlsx, lambda parameters: Xlsx(sheet=parameters.sheet))
