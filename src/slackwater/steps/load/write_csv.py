"""`write_csv`: write CSV files below the project's files, with a header.

Strings are in quotes, an empty string is `""` and a null is nothing, timestamps are in UTC. In a file of one column, a
null is `""` too, because readers skip an empty line. Values are written as they are, for programs: a spreadsheet would
execute a cell that begins with `=`, `+`, `-` or `@`. For people who open the file in a spreadsheet, use `write_xlsx`,
which writes such a cell as a string.

A day without rows gives a file with the header only. The folder of `parts` gets an object `_SUCCESS` last, which names
the parts.

Effect: `path`, and the numbers of `rows`, `bytes` and `files`.
"""

from __future__ import annotations

from slackwater.steps.io.file_writers import CsvWriter
from slackwater.steps.io.written_files import OutputFormat, WrittenFiles, file_writer


class WriteCsv(WrittenFiles, json_schema_extra={"examples": [{"path": "exports/delays/{date}.csv"}]}):
    """Parameters of `write_csv`."""


STEP = file_writer("write_csv", WriteCsv, OutputFormat("csv", CsvWriter, is_flat=True))
