"""A downloaded file read, and gathered into what is to be written of it: all on local disk, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from slackwater.receiver.parsing.event_checks import RejectedEvent
from slackwater.receiver.parsing.formats.read import read_file
from slackwater.receiver.pull.file_cache import FileVersion
from slackwater.receiver.writing.partition_writer import PartitionFile, PartitionWriter
from slackwater.receiver.writing.partitioning import add_metadata, assign_event_ids
from slackwater.receiver.writing.rejects import RejectRecord, to_jsonl
from slackwater.sources.definition import Source


@dataclass(frozen=True, kw_only=True)
class StagedFile:
    """What is to be written of a file."""

    version: FileVersion
    received_at: datetime
    """When the content was first received."""
    files: Sequence[PartitionFile]
    """One for each of the version's partitions."""
    sideline: Path
    """Rejected records, as JSON on lines."""
    rejected: int

    @property
    def rows(self) -> int:
        """Events of all partitions."""
        return sum(file.rows for file in self.files)


def stage_file(path: Path, source: Source, *, name: str, content_sha256: str, received_at: datetime) -> StagedFile:
    """Read the file at `path`, which the partner calls `name`; what is made of it lies beside it.

    Events' ages are judged by `received_at`. Raises `DataError` when no row could be read, or rows of too many hours.
    """
    batch_id = content_sha256[:32]
    sidelined, index, rejected = path.with_name("sideline.jsonl"), 0, 0

    def stamped(table: pa.Table) -> pa.Table:
        return add_metadata(table, source, received_at=received_at, batch_id=batch_id)

    with (
        sidelined.open("wb") as sideline,
        PartitionWriter(path.parent, stamped, name=name, id_column=source.event_id) as parts,
    ):
        for block in read_file(path, source, name=name, received_at=received_at):
            places = frozenset(item.index for item in block.rejected)
            parts.add(assign_event_ids(block.table, source, batch_id=batch_id, rejected=places, first=index))
            sideline.write(to_jsonl(_records(block.rejected, name, batch_id)))
            index += block.table.num_rows + len(places)
            rejected += len(places)
        files = parts.finish()
    version = FileVersion(
        content_sha256=content_sha256, partitions=tuple(file.partition for file in files), received_at=received_at
    )
    return StagedFile(version=version, received_at=received_at, files=files, sideline=sidelined, rejected=rejected)


def _records(rejected: Sequence[RejectedEvent], name: str, batch_id: str) -> Iterator[RejectRecord]:
    for item in rejected:
        yield RejectRecord(
            index=item.index,
            line=item.line,
            reason=item.reason,
            rule=item.rule,
            batch_id=batch_id,
            origin=f"pull:{name}",
            text=item.text or "",
        )
