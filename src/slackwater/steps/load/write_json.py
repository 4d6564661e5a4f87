"""`write_json`: write NDJSON files below the project's files: each line is a row as a JSON object.

A null is `null`, a timestamp a string in UTC with microseconds, a decimal a number, binary data base64. NaN and
infinities, which JSON lacks, are the strings "NaN", "Infinity" and "-Infinity".

A day without rows gives an empty file. The folder of `parts` gets an object `_SUCCESS` last, which names the parts.

Effect: `path`, and the numbers of `rows`, `bytes` and `files`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.arrow.names import quoted
from slackwater.steps.io.file_writers import LineWriter
from slackwater.steps.io.frames import JSON_OPTIONS
from slackwater.steps.io.written_files import OutputFormat, WrittenFiles, file_writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class WriteJson(WrittenFiles, json_schema_extra={"examples": [{"path": "exports/delays/{date}", "parts": True}]}):
    """Parameters of `write_json`."""


def lines_of(frame: DataFrame) -> DataFrame:
    """Return each row as a line of JSON."""
    from pyspark.sql import functions as sf

    row = sf.struct(*(sf.col(quoted(name)) for name in frame.columns))
    return frame.select(sf.to_json(row, JSON_OPTIONS).alias("line"))


STEP = file_writer("write_json", WriteJson, OutputFormat("ndjson", LineWriter, prepare=lines_of))
