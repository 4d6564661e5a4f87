"""Parse a downloaded file into Parquet files and rejects on local disk, in bounded memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from slackwater.errors import DataError
from slackwater.formatting import counted
from slackwater.receiver.formats.csv_records import UTF_8, has_utf8_mark
from slackwater.receiver.formats.read import count_rows, read_file
from slackwater.receiver.parsing.compression import open_decompressed
from slackwater.receiver.parsing.event_checks import CheckedEvents
from slackwater.receiver.parsing.json_values import extra_names
from slackwater.receiver.pull.file_cache import ContentVersion
from slackwater.receiver.pull.rejected_rows import RejectedRows
from slackwater.receiver.writing.partition_writer import PartitionWriter
from slackwater.receiver.writing.partitioning import add_metadata, assign_event_ids
from slackwater.receiver.writing.raw_writer import PartitionFile
from slackwater.receiver.writing.rejected_hours import RejectedBins
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import EXTRA
from slackwater.sources.file_format import Csv
from slackwater.sources.old_events import OldEvents, find_old_events

# A pull's state machine passes the names of all files on: its states have at most 256 kB.
_SHOWN_COLUMNS, _SHOWN_CHARACTERS = 3, 40
# Of the name of a file in a note.
_NAME_LENGTH = 80


@dataclass(frozen=True, kw_only=True)
class StagedFile:
    """A parsed file on local disk, ready to be written to the raw bucket."""

    version: ContentVersion
    files: Sequence[PartitionFile]
    """One Parquet file for each partition of `version`, in the same order."""
    rejects: Path
    """The rejected rows as JSON lines, or examples of them if `version.rejection` is set."""
    rejected_bins: RejectedBins
    """Rejected rows by the time in them, as `count_bins` counts them."""
    first_reason: str
    """Why the first rejected row was rejected; empty if none was."""
    new_columns: Sequence[str]
    """At most `_SHOWN_COLUMNS` of the columns that the definition does not list, and whose values are kept."""
    note: str
    """As in `FetchResult`."""


def stage_file(
    path: Path,
    source: Source,
    *,
    name: str,
    content_sha256: str,
    received_at: datetime,
    first_received_at: datetime | None,
) -> StagedFile:
    """Parse the file at `path` and write its events and rejects to files in the same folder.

    `name` is the partner's name for the file, for errors and rejects. Limits on the age of events are relative to
    `received_at`, but the largest age to `first_received_at`, if it is set. If the file is rejected as a whole
    (`RejectedRows`), only examples are written, and the remaining rows are counted, not checked. Raises `DataError`
    when the file cannot be read, or its rows fall into too many hours.
    """
    batch_id = content_sha256[:32]
    # Added only when a table is written: the columns have one value for the whole file, and would fill the buffer.
    with_metadata = partial(add_metadata, source=source, received_at=received_at, batch_id=batch_id)
    rows, new_columns, missing = 0, list[str](), tuple[str, ...]()
    with (
        RejectedRows(path.with_name("rejects.jsonl"), batch_id=batch_id, origin=f"pull:{name}") as rejected,
        PartitionWriter(
            path.parent, with_metadata, name=name, id_column=source.event_id, keys=source.count_keys
        ) as partitions,
    ):
        blocks = read_file(path, source, name=name, received_at=received_at, first_received_at=first_received_at)
        for block in _without_empty_file(blocks, path, source, name):
            rejected.add(block.rejections)
            missing = tuple(block.missing_columns)
            # The rows of a file mostly have the same columns.
            new_columns += (name for name in extra_names(block.table[EXTRA], rows=1) if name not in new_columns)
            if rejected.is_limit_reached:
                rows = count_rows(path, source, name=name)
                break
            # Generated ids count all rows of the file, rejected ones included, so that a retry assigns the same ids.
            indexes = block.rejections["index"].combine_chunks()
            partitions.add(assign_event_ids(block.table, source, batch_id=batch_id, rejected=indexes, first_index=rows))
            rows += block.table.num_rows + len(indexes)
        files = partitions.finish()
        rejection = rejected.finish(rows)
    if not rows and source.require_pull().empty_files == "fail":
        raise DataError(f"{name}: no row (sources/{source.source}.yaml has `empty_files: fail`)")
    old = find_old_events(((file.partition.date, file.rows) for file in files), received_at=received_at)
    version = ContentVersion(
        definition=source.reading_digest,
        partitions=tuple(file.partition for file in files),
        rows=sum(file.rows for file in files),
        rejected=rejected.count,
        rejection=rejection,
        rows_digest=hashlib.sha256(json.dumps([file.rows for file in files]).encode()).hexdigest()[:12],
    )
    return StagedFile(
        version=version,
        files=files,
        rejects=rejected.path,
        rejected_bins=rejected.bins,
        first_reason=rejected.first.reason if rejected.first else "",
        new_columns=new_columns[:_SHOWN_COLUMNS],
        note=_note(path, source, name=name, missing=missing, rows=rows, old=old),
    )


def _without_empty_file(
    blocks: Iterable[CheckedEvents], path: Path, source: Source, name: str
) -> Iterator[CheckedEvents]:
    """Yield the blocks of a file: none for a file without a byte that cannot be read, if the source ignores it."""
    try:
        yield from blocks
    except DataError as error:
        if not _has_no_byte(path, name):
            raise
        if source.require_pull().empty_files != "ignore":
            remedy = f"to accept empty files: `empty_files: ignore` in sources/{source.source}.yaml"
            raise DataError(f"{error} ({remedy})") from error


def _note(path: Path, source: Source, *, name: str, missing: Sequence[str], rows: int, old: OldEvents | None) -> str:
    """Return what a user should know about a file whose rows are read nevertheless."""
    notes, definition, file_format = list[str](), f"sources/{source.source}.yaml", source.require_pull().format
    if missing:
        columns = ", ".join(f"'{name[:_SHOWN_CHARACTERS]}'" for name in missing[:_SHOWN_COLUMNS])
        more = ", ..." if len(missing) > _SHOWN_COLUMNS else ""
        noun, verb = "column" if len(missing) == 1 else "columns", "has" if rows == 1 else "have"
        notes.append(
            f"lacks the {noun} {columns}{more} of {definition}: its {counted(rows, 'row')} {verb} no value there"
        )
    if isinstance(file_format, Csv) and file_format.encoding not in UTF_8:
        with open_decompressed(path, name=name) as stream:
            if has_utf8_mark(stream)[0]:
                notes.append(
                    f"begins with the byte order mark of UTF-8: it was read as UTF-8, not {file_format.encoding}"
                )
    sentences = [f"{name[:_NAME_LENGTH]}: {old.note()}"] if old else []
    if notes:
        sentences.append(f"{name[:_NAME_LENGTH]} {', and '.join(notes)}")
    return ". ".join(sentences)


def _has_no_byte(path: Path, name: str) -> bool:
    try:
        with open_decompressed(path, name=name) as stream:
            return not stream.read(1)
    except DataError:
        return False
