"""`write_parquet`: write Parquet files below the project's files, with all types of columns, compressed with zstd.

A day without rows gives a file without rows, which has the columns. The folder of `parts` gets an object `_SUCCESS`
last, which names the parts.

Effect: `path`, and the numbers of `rows`, `bytes` and `files`.
"""

from __future__ import annotations

from slackwater.steps.io.file_writers import ParquetWriter
from slackwater.steps.io.written_files import OutputFormat, WrittenFiles, file_writer


class WriteParquet(WrittenFiles, json_schema_extra={"examples": [{"path": "exports/delays/{date}", "parts": True}]}):
    """Parameters of `write_parquet`."""


STEP = file_writer("write_parquet", WriteParquet, OutputFormat("parquet", ParquetWriter))
