"""`read_ndjson`: read NDJSON files of the project, in which each line is one JSON object.

Fields are read as in a source's files, with the same types and formats; a compressed file is detected. A field that an
object lacks is null, unless it is `required`. A value that does not fit is an error that names file, line or row, and
field.
"""

from __future__ import annotations

from slackwater.sources.file_format import Ndjson
from slackwater.steps.io.typed_files import TypedFiles, file_reader


class ReadNdjson(
    TypedFiles,
    json_schema_extra={"examples": [{"path": "rates/*.ndjson", "fields": {"currency": "string", "rate": "double"}}]},
):
    """Parameters of `read_ndjson`."""


STEP = file_reader("read_ndjson", ReadNdjson, lambda _: Ndjson())
