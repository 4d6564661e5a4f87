"""`read_csv`: read CSV files of the project; the header names the columns.

Cells are read as in a source's files, with the same types and formats; a compressed file is detected. A field without a
column is null, unless it is `required`. A row that does not fit is an error that names file, line and field.
"""

from __future__ import annotations

from slackwater.sources.file_format import Csv
from slackwater.steps.io.typed_files import TypedFiles, file_reader


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


STEP = file_reader("read_csv", ReadCsv, lambda parameters: parameters.format)
