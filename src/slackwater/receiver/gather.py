"""A downloaded file read, and gathered into what is to be written of it: all on local disk, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from slackwater.receiver.encode import number, stamp
from slackwater.receiver.events import Rejected
from slackwater.receiver.file_cache import Version
from slackwater.receiver.formats.read import read_file
from slackwater.receiver.sideline import SidelineRecord, to_jsonl
from slackwater.receiver.source import Source
from slackwater.receiver.spill import PartitionFile, PartitionFiles


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What is to be written of a file."""

    version: Version
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


def gather(path: Path, source: Source, *, name: str, content_sha256: str, received_at: datetime) -> Gathered:
    """Read the file at `path`, which the partner calls `name`; what is made of it lies beside it.

    Events' ages are judged by `received_at`. Raises `DataError` when no row could be read, or rows of too many hours.
    """
    batch_id = content_sha256[:32]
    sidelined, index, rejected = path.with_name("sideline.jsonl"), 0, 0

    def stamped(table: pa.Table) -> pa.Table:
        return stamp(table, source, received_at=received_at, batch_id=batch_id)

    with (
        sidelined.open("wb") as sideline,
        PartitionFiles(path.parent, stamped, name=name, id_column=source.event_id) as parts,
    ):
        for block in read_file(path, source, name=name, received_at=received_at):
            places = frozenset(item.index for item in block.rejected)
            parts.add(number(block.table, source, batch_id=batch_id, rejected=places, first=index))
            sideline.write(to_jsonl(_records(block.rejected, name, batch_id)))
            index += block.table.num_rows + len(places)
            rejected += len(places)
        files = parts.finish()
    version = Version(
        content_sha256=content_sha256, partitions=tuple(file.partition for file in files), received_at=received_at
    )
    return Gathered(version=version, received_at=received_at, files=files, sideline=sidelined, rejected=rejected)


def _records(rejected: Sequence[Rejected], name: str, batch_id: str) -> Iterator[SidelineRecord]:
    for item in rejected:
        yield SidelineRecord(
            index=item.index,
            line=item.line,
            reason=item.reason,
            rule=item.rule,
            batch_id=batch_id,
            origin=f"pull:{name}",
            text=item.text or "",
        )
