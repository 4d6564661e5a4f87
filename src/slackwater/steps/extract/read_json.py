"""`read_json`: read JSON files of the project, in which each file is one JSON array of objects.

Fields are read as in a source's files, with the same types and formats; a compressed file is detected. A field that an
object lacks is null, unless it is `required`. A value that does not fit is an error that names file, line or row, and
field.
"""

from __future__ import annotations

from slackwater.sources.file_format import Json
from slackwater.steps.io.typed_files import TypedFiles, file_reader


class ReadJson(
    TypedFiles,
    json_schema_extra={"examples": [{"path": "rates/{date}.json", "fields": {"currency": "string", "rate": "double"}}]},
):
    """Parameters of `read_json`."""


STEP = file_reader("read_json", ReadJson, lambda _: Json())
