"""`write_parquet`: write Parquet files below the project's files, with all types of columns, compressed with zstd.

A day without rows gives a file without rows, which has the columns. The folder of `parts` gets an object `_SUCCESS`
last, which names the parts.

Effect: `path`, and the numbers of `rows`, `bytes` and `files`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.steps.io.file_writers import ParquetWriter
from slackwater.steps.io.written_files import OutputFormat, WrittenFiles, write_files
from slackwater.steps.step import Effect, Load, StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class WriteParquet(WrittenFiles, json_schema_extra={"examples": [{"path": "exports/delays/{date}", "parts": True}]}):
    """Parameters of `write_parquet`."""


def write(frame: DataFrame, parameters: WriteParquet, context: StepContext) -> Effect:
    """Write the rows. Raises `DefinitionError`, `DataError` and `Superseded`."""
    return write_files(frame, parameters, context, OutputFormat("parquet", ParquetWriter))


STEP = Load(name="write_parquet", parameters=WriteParquet, write=write)
