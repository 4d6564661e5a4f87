"""`write_xlsx`: write Excel workbooks below the project's files, each with one sheet whose first row is the header.

A string that begins with `=` stays a string: Excel does not execute it. Timestamps are in UTC, to the millisecond.
Excel's limits are errors that name them: 1,048,576 rows with the header, 16,384 columns, 32,767 characters of a cell,
15 digits of an integer or a decimal, days since 1900-03-01; and Excel has neither NaN nor infinities. A row with nulls
only is an empty row, which readers skip, at the end of the sheet or everywhere.

A day without rows gives a workbook with the header only. The folder of `parts` gets an object `_SUCCESS` last, which
names the parts.

Effect: `path`, and the numbers of `rows`, `bytes` and `files`.
"""

from __future__ import annotations

from slackwater.steps.io.file_writers import XlsxWriter
from slackwater.steps.io.written_files import OutputFormat, WrittenFiles, file_writer


class WriteXlsx(WrittenFiles, json_schema_extra={"examples": [{"path": "exports/delays.xlsx"}]}):
    """Parameters of `write_xlsx`."""


STEP = file_writer("write_xlsx", WriteXlsx, OutputFormat("xlsx", XlsxWriter, is_flat=True))
