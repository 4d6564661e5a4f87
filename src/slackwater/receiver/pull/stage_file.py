"""Parse a downloaded file into Parquet files and rejects on local disk, in bounded memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from slackwater.receiver.parsing.formats.read import read_file
from slackwater.receiver.pull.file_cache import ContentVersion
from slackwater.receiver.writing.partition_writer import PartitionFile, PartitionWriter
from slackwater.receiver.writing.partitioning import add_metadata, assign_event_ids
from slackwater.receiver.writing.rejects import RejectRecord, to_jsonl
from slackwater.sources.definition import Source


@dataclass(frozen=True, kw_only=True)
class StagedFile:
    """A parsed file on local disk, ready to be written to the raw bucket."""

    version: ContentVersion
    files: Sequence[PartitionFile]
    """One Parquet file for each partition of `version`, in the same order."""
    rejects: Path
    """The rejected rows, as JSON lines."""


def stage_file(path: Path, source: Source, *, name: str, content_sha256: str, received_at: datetime) -> StagedFile:
    """Parse the file at `path` and write its events and rejects to files in the same folder.

    `name` is the partner's name for the file, for errors and rejects. Limits on the age of events are relative to
    `received_at`. Raises `DataError` when the file cannot be read, or its rows fall into too many hours.
    """
    batch_id = content_sha256[:32]
    rejects, first_index, rejected = path.with_name("rejects.jsonl"), 0, 0
    # Added only when a table is written: the columns have one value for the whole file, and would fill the buffer.
    with_metadata = partial(add_metadata, source=source, received_at=received_at, batch_id=batch_id)
    with (
        rejects.open("wb") as rejects_file,
        PartitionWriter(path.parent, with_metadata, name=name, id_column=source.event_id) as partitions,
    ):
        for block in read_file(path, source, name=name, received_at=received_at):
            # Generated ids count all rows of the file, rejected ones included, so that a retry assigns the same ids.
            indexes = frozenset(event.index for event in block.rejected)
            partitions.add(
                assign_event_ids(block.table, source, batch_id=batch_id, rejected=indexes, first_index=first_index)
            )
            records = (
                RejectRecord(
                    index=event.index,
                    line=event.line,
                    reason=event.reason,
                    rule=event.rule,
                    batch_id=batch_id,
                    origin=f"pull:{name}",
                    text=event.text or "",
                )
                for event in block.rejected
            )
            rejects_file.write(to_jsonl(records))
            first_index += block.table.num_rows + len(indexes)
            rejected += len(indexes)
        files = partitions.finish()
    version = ContentVersion(
        definition=source.reading_digest,
        partitions=tuple(file.partition for file in files),
        rows=sum(file.rows for file in files),
        rejected=rejected,
        partition_rows=tuple(file.rows for file in files),
        rows_digest=hashlib.sha256(json.dumps([file.rows for file in files]).encode()).hexdigest()[:12],
    )
    return StagedFile(version=version, files=files, rejects=rejects)
