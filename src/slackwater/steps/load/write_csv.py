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

from typing import TYPE_CHECKING

from slackwater.steps.io.file_writers import CsvWriter
from slackwater.steps.io.flat_columns import expect_flat
from slackwater.steps.io.written_files import OutputFormat, WrittenFiles, write_files
from slackwater.steps.step import Effect, Load, StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class WriteCsv(WrittenFiles, json_schema_extra={"examples": [{"path": "exports/delays/{date}.csv"}]}):
    """Parameters of `write_csv`."""


def write(frame: DataFrame, parameters: WriteCsv, context: StepContext) -> Effect:
    """Write the rows. Raises `DefinitionError` for nested and binary columns, `DataError` and `Superseded`."""
    expect_flat(frame, "csv")
    return write_files(frame, parameters, context, OutputFormat("csv", CsvWriter))


STEP = Load(name="write_csv", parameters=WriteCsv, write=write)
