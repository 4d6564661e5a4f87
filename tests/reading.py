"""What readers find in the raw bucket, in plain Python: the rule of ids, written down a second time."""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import pyarrow.parquet as pq

from slackwater.receiver.pull.file_cache import FileEntry, unsettled_objects
from slackwater.sources.definition import Source
from slackwater.storage import ObjectStore


def stored_events(store: ObjectStore, source: Source, *, entries: Iterable[FileEntry] = ()) -> list[dict[str, Any]]:
    """Return every event in the source's settled objects, with its object's address as `_object`."""
    unsettled = unsettled_objects(entries, bucket="raw")
    return [
        {**row, "_object": found.uri}
        for found in store.list(f"s3://raw/raw/source={source.source}/")
        if found.uri not in unsettled
        for row in pq.ParquetFile(io.BytesIO(store.get(found.uri))).read().to_pylist()
    ]


def counted_events(events: Iterable[dict[str, Any]], id_column: str | None) -> list[dict[str, Any]]:
    """Return the events that count: of each id, the first received of each partition."""
    found, seen = list[dict[str, Any]](), set[tuple[str, Any]]()
    for event in sorted(events, key=lambda event: (event["_received_at"], event["_object"])):
        partition, name = event["_object"].rpartition("/")[0], event.get(id_column)
        if name is None or (partition, name) not in seen:
            found.append(event)
            seen.add((partition, name))
    return found


Place = tuple[str, Any]
"""A partition, `date=2013-03-08/hour=12`, and what tells an event from others there."""


def read_once(
    store: ObjectStore, source: Source, *, key: str, value: str, entries: Iterable[FileEntry] = ()
) -> dict[Place, Any]:
    """Return a column's value by partition and key of each event that counts; no two may have the same."""
    events = counted_events(stored_events(store, source, entries=entries), source.id_column)
    places = [("/".join(event["_object"].split("/")[5:7]), event[key]) for event in events]
    assert max(Counter(places).values(), default=1) == 1
    return dict(zip(places, (event[value] for event in events), strict=True))


def sidelined(store: ObjectStore) -> dict[str, list[int]]:
    """Return the places of the events in the side-line, in order, by their batch."""
    found = defaultdict[str, list[int]](list)
    for item in store.list("s3://raw/sideline/"):
        for line in store.get(item.uri).decode().split("\n")[:-1]:
            record = json.loads(line)
            found[record["batch_id"]].append(record["index"])
    return defaultdict(list, {batch: sorted(places) for batch, places in found.items()})
