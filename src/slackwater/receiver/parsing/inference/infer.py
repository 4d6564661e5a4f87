"""Infer the definition of a source from a sample file, and check it with the receiver's own reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from slackwater.errors import DataError
from slackwater.formatting import counted
from slackwater.receiver.parsing.compression import detect_compression
from slackwater.receiver.parsing.event_checks import RejectedEvent
from slackwater.receiver.parsing.formats.read import read_file
from slackwater.receiver.parsing.inference.column import NULL_STRINGS
from slackwater.receiver.parsing.inference.definition_yaml import write_definition
from slackwater.receiver.parsing.inference.finding import reader_of
from slackwater.receiver.parsing.inference.inferred import UNDECIDED, Inferred, infer
from slackwater.receiver.parsing.inference.names import source_name
from slackwater.receiver.parsing.inference.read_sample import read_sample, read_start
from slackwater.sources.definition import Source
from slackwater.sources.fields import FieldType

# Rejected rows that the definition quotes.
_QUOTED_ROWS = 3


@dataclass(frozen=True, kw_only=True)
class InferredDefinition:
    """A definition that was inferred from a sample."""

    source: str
    definition: str
    """The YAML, with comments."""
    rows: int
    """Rows of the sample."""
    is_complete: bool
    """Whether the sample is the whole file."""
    rejected: int | None
    """Rows of the sample that the receiver rejects by this definition; None if it could not be checked."""
    fields: dict[str, str]
    """Types of the fields."""
    undecided: dict[str, str]
    """What the user has to decide, by the field of the definition."""


def infer_definition(
    path: Path, *, name: str, source: str | None = None, url: str | None = None, is_whole: bool = True
) -> InferredDefinition:
    """Infer the definition of a source from a file.

    `name` is the name of the file, `source` that of the source (by default, it is made of the file's), and `url` where
    the file comes from. `is_whole` is False if `path` holds only the beginning of it. Raises `DataError` when the file
    has no row that can be read.
    """
    with _in_own_folder(path, name, is_whole=is_whole) as file:
        sample = read_sample(file, name=name, is_whole=is_whole)
        source = source or source_name(name)
        inferred = infer(sample, source=source)
        if sample.header and _is_data(inferred):
            inferred = infer(read_sample(file, name=name, is_whole=is_whole, has_header=False), source=source)
        rejected = _check(inferred, file, name=name, is_whole=is_whole)
    return InferredDefinition(
        source=source,
        definition=write_definition(inferred, name=name, head=_head(inferred, rejected, url or name), url=url),
        rows=inferred.sample.rows,
        is_complete=inferred.sample.is_complete,
        rejected=None if rejected is None else len(rejected),
        fields={field.name: str(field.definition.type) for field in inferred.fields if field.definition},
        undecided=inferred.undecided,
    )


@contextmanager
def _in_own_folder(path: Path, name: str, *, is_whole: bool) -> Iterator[Path]:
    """Yield the file in a temporary folder: the receiver decompresses some formats beside the file."""
    with TemporaryDirectory(prefix="slackwater-infer-") as folder:
        sample = Path(folder, "sample")
        if is_whole or detect_compression(path) in {None, "zip"}:
            sample.symlink_to(path.resolve())
        else:
            # The receiver's reader does not return what comes before the end of broken compressed data.
            sample.write_bytes(read_start(path, name, is_whole=False)[0])
        yield sample


def _is_data(inferred: Inferred) -> bool:
    """Return whether the header of a CSV file is a row of data: its cells have the types of their columns."""
    reader = reader_of(inferred.null_values, trim=True)
    has_type: list[bool] = []
    for field, cell in zip(inferred.fields, inferred.sample.header, strict=True):
        best = field.finding.best_field
        if best and best.type is not FieldType.STRING and cell.casefold() not in NULL_STRINGS | {""}:
            has_type.append(not reader.read_array(pa.array([cell]), best).rejections)
    return bool(has_type) and all(has_type)


def _check(inferred: Inferred, path: Path, *, name: str, is_whole: bool) -> list[RejectedEvent] | None:
    """Return the rows of the sample that the receiver rejects; None if it does not read all rows of the sample.

    It reads none without a timestamp, and not the last rows of an incomplete JSON array.
    """
    content, sample = inferred.source_content, inferred.sample
    if content is None or sample.list_key is not None:
        return None
    pull: dict[str, Any] = {"url": "https://partner.example", "files": "{date}", "format": sample.file_format}
    source = Source.model_validate({**content, "pull": pull})
    rejected: list[RejectedEvent] = []
    rows = 0
    try:
        for block in read_file(path, source, name=name, received_at=datetime.now(UTC)):
            rejected += [event for event in block.rejected if event.index < sample.rows]
            rows += block.table.num_rows + len(block.rejected)
            if rows >= sample.rows:
                return rejected
    except DataError:
        # The beginning of a file ends within a row.
        if is_whole:
            raise
    return None


def _head(inferred: Inferred, rejected: Sequence[RejectedEvent] | None, name: str) -> Iterator[str]:
    """Yield what the first lines of the definition say."""
    sample = inferred.sample
    rows = counted(sample.rows, "row")
    if sample.is_complete:
        yield f"Written by `slackwater source infer` from {name}: {rows}, all of the file."
    else:
        yield f"Written by `slackwater source infer` from {name}: only its first {rows}. The others were not read."
    if inferred.undecided:
        yield f"{UNDECIDED} marks what the values do not decide."
    if not rejected:
        if rejected is not None:
            yield "The receiver accepts all of these rows" + (" after the decisions." if inferred.undecided else ".")
        return
    yield f"The receiver rejects {counted(len(rejected), 'row')} of them:"
    for event in rejected[:_QUOTED_ROWS]:
        yield f"- row {event.index + 1:,}: {event.reason}"
