"""Read a file of this machine as a table whose types come from the file: Parquet, CSV or NDJSON."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import csv, json, parquet

from slackwater.errors import InputError


def read_table_file(path: Path) -> pa.Table:
    """Return the rows of the file of an option `--input`; types of CSV and NDJSON are guessed.

    Raises `InputError` if it cannot be read.
    """
    # As `write_csv` writes them: an empty cell is null, and "" is an empty string.
    cells = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    readers = {
        ".parquet": lambda: parquet.ParquetFile(path).read(),
        ".csv": lambda: csv.read_csv(path, convert_options=cells),
        ".ndjson": lambda: json.read_json(path),
    }
    if path.suffix not in readers:
        raise InputError(f"--input: {path} is none of the files {', '.join(readers)}")
    try:
        return readers[path.suffix]()
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"--input: {path}: {error}") from error
