"""Counting the events of a listing without duplicates, for sources with an id column.

An event id counts once in its partition. Readers count the first received event: by `_received_at`, then by the URI of
its object (`slackwater.sources.first_by_id`, for Spark and DuckDB). Events without an id all count.

A listing needs only the number of events of each object that count. It assigns an id that several objects hold to an
object that the published run has read, if there is one. So a duplicate that arrives later does not lower the count of
that object, and is not late data.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from slackwater.errors import CloudError
from slackwater.receiver.writing.partitioning import first_rows
from slackwater.runs.manifest import InputObject

IdReader = Callable[[Sequence[InputObject]], Sequence[pa.ChunkedArray]]
"""Returns, for each object in order, the ids of its events; null for an event without an id."""


def without_duplicates(
    objects: Iterable[InputObject], *, known: Iterable[InputObject], read_ids: IdReader
) -> Iterator[InputObject]:
    """Yield the objects of one source with the number of events that count; objects with only duplicates are left out.

    `known` are the objects that the published run has read, with the rows that counted then. A partition whose objects
    are all unchanged keeps its rows. A known object, and a new object of a known file, is yielded even when no event of
    it counts any more, so that it does not look like a removed input.

    `read_ids` is called for one partition at a time, and only for partitions whose objects differ from `known`.
    """
    known_by_partition = _by_partition(known)
    for partition, items in _by_partition(objects).items():
        before = known_by_partition.get(partition, [])
        is_known = {item.identity for item in items} == {item.identity for item in before}
        # The receiver stores no id twice in one object, so a single object needs no count.
        if is_known or (len(items) == 1 and not before):
            yield from items
        else:
            yield from _counted(items, before, read_ids)


def ids_in(body: bytes, column: str, *, uri: str) -> pa.ChunkedArray:
    """Return the ids in an object of raw events; all null if it was written before the source had the id column.

    `uri` is the object's, for the error message. Raises `CloudError` when the body is not Parquet.
    """
    try:
        file = pq.ParquetFile(io.BytesIO(body))
        if column not in file.schema_arrow.names:
            return pa.chunked_array([pa.nulls(file.metadata.num_rows)])
        return file.read(columns=[column])[column]
    except pa.ArrowException as error:
        raise CloudError(f"{uri} is not Parquet ({error}): it was not written by the receiver (remove it)") from error


def _counted(items: Sequence[InputObject], before: Sequence[InputObject], read_ids: IdReader) -> Iterator[InputObject]:
    """Yield the objects of one partition with the number of events that count."""
    known_by_uri = {item.uri: item for item in before}
    known_by_file: dict[str | None, InputObject] = {item.file: item for item in before if item.file}
    # The known object with the same URI, or one of the same file if the file's content was replaced.
    predecessors = {item.uri: known_by_uri.get(item.uri) or known_by_file.get(item.file) for item in items}

    def order(item: InputObject) -> tuple[object, ...]:
        predecessor = predecessors[item.uri]
        return predecessor is None, (predecessor or item).arrived, (predecessor or item).uri, item.uri

    # Known objects come first, then all are in order of arrival: the first object with an id is the one that counts it.
    ordered = sorted(items, key=order)
    id_columns = read_ids(ordered)
    # All ids of the partition form one table with the index of their object, so that Arrow finds the first row of each
    # id without a Python object for each event.
    indexes = (pa.repeat(pa.scalar(index, pa.int32()), len(ids)) for index, ids in enumerate(id_columns))
    tables = [pa.table({"id": ids, "object": index}) for ids, index in zip(id_columns, indexes, strict=True)]
    events = pa.concat_tables(tables, promote_options="default")
    with_id = events.filter(pc.is_valid(events["id"]))
    first_events = with_id["object"].take(first_rows(with_id.select(["id"])))
    counts = Counter({item["values"]: item["counts"] for item in first_events.value_counts().to_pylist()})
    for index, (item, ids) in enumerate(zip(ordered, id_columns, strict=True)):
        rows = ids.null_count + counts[index]
        if rows or predecessors[item.uri]:
            yield item.model_copy(update={"rows": rows})


def _by_partition(objects: Iterable[InputObject]) -> dict[tuple[str, str], list[InputObject]]:
    """Group the objects by date and hour."""
    partitions: dict[tuple[str, str], list[InputObject]] = {}
    for item in objects:
        partitions.setdefault((item.date, item.hour), []).append(item)
    return partitions
