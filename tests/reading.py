"""Read the raw bucket in plain Python: an independent implementation of "an event id counts once"."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.receiver.pull.file_cache import FileCache
from slackwater.runs.inputs.consistent_listing import consistent_listing
from slackwater.sources.definition import Source
from slackwater.storage import ObjectStore


def stored_events(store: ObjectStore, source: Source, *, files: FileCache | None = None) -> list[dict[str, Any]]:
    """Return every event in the source's committed objects, with the URI of its object as `_object`."""
    objects = list(store.list(f"s3://raw/raw/source={source.source}/"))
    if files:
        objects = consistent_listing(source, lambda: objects, files=files).objects
    return [{**row, "_object": item.uri} for item in objects for row in read_parquet(store.get(item.uri)).to_pylist()]


def read_parquet(body: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a small Parquet file, without the threads that take longer than reading it."""
    return pq.ParquetFile(pa.BufferReader(body)).read(columns, use_threads=False)


def counted_events(events: Iterable[dict[str, Any]], id_column: str | None) -> list[dict[str, Any]]:
    """Return the events that count: of the events with one id in one partition, the first received."""
    counted, seen = list[dict[str, Any]](), set[tuple[str, Any]]()
    for event in sorted(events, key=lambda event: (event["_received_at"], event["_object"])):
        partition, event_id = event["_object"].rpartition("/")[0], event.get(id_column)
        if event_id is None or (partition, event_id) not in seen:
            counted.append(event)
            seen.add((partition, event_id))
    return counted


EventKey = tuple[str, Any]
"""A partition, such as `date=2013-03-08/hour=12`, and what identifies an event in it."""


def read_once(
    store: ObjectStore, source: Source, *, key: str, value: str, files: FileCache | None = None
) -> dict[EventKey, Any]:
    """Return the column `value` of each event that counts, by partition and column `key`, which must be unique."""
    events = counted_events(stored_events(store, source, files=files), source.id_column)
    keys = [("/".join(event["_object"].split("/")[5:7]), event[key]) for event in events]
    assert max(Counter(keys).values(), default=1) == 1
    return dict(zip(keys, (event[value] for event in events), strict=True))


def rejected_indexes(store: ObjectStore, *, names: Container[str] | None = None) -> dict[str, list[int]]:
    """Return the sorted indexes of the rejected events of each batch, by batch id; with `names`, of these objects."""
    indexes = defaultdict[str, list[int]](list)
    for item in store.list("s3://raw/sideline/"):
        if names is not None and item.uri.rpartition("/")[2] not in names:
            continue
        for line in store.get(item.uri).decode().split("\n")[:-1]:
            record = json.loads(line)
            indexes[record["batch_id"]].append(record["index"])
    return defaultdict(list, {batch_id: sorted(numbers) for batch_id, numbers in indexes.items()})
