"""Counting the events of a listing without duplicates, for sources with an id column.

An event id counts once in its partition. Readers count the first received event: by `_received_at`, then by the URI of
its object (`slackwater.sources.first_by_id`, for Spark and DuckDB). Events without an id all count.

A listing shows only how many events of each object count. It puts the objects that the published run has read first: a
duplicate that arrives later takes no event from them, and is not late data.
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
"""Returns the ids of each object's events; null for an event without an id."""


def without_duplicates(
    objects: Iterable[InputObject], *, known: Iterable[InputObject], read_ids: IdReader
) -> Iterator[InputObject]:
    """Yield the objects of one source with the number of events that count, without objects of duplicates only.

    `known` are the objects that the published run has read, with the rows that counted then. An object that is still
    the same keeps its rows. A known object, and a new object of a known file, is yielded even when no event of it
    counts any more, so that it is not taken for removed.

    `read_ids` is called for one partition at a time, and only for partitions whose objects differ from `known`.
    """
    known_by_partition = _by_partition(known)
    for partition, items in _by_partition(objects).items():
        before = known_by_partition.get(partition, [])
        is_known = {item.identity for item in items} == {item.identity for item in before}
        # The receiver stores no id twice in one object.
        if is_known or (len(items) == 1 and not before):
            yield from items
        else:
            yield from _counted(items, before, read_ids)


def ids_in(body: bytes, column: str, *, uri: str) -> pa.ChunkedArray:
    """Return the ids in an object of raw events, all null where it was written before the source had the column.

    Raises `CloudError` when the body is not Parquet.
    """
    try:
        file = pq.ParquetFile(io.BytesIO(body))
        if column not in file.schema_arrow.names:
            return pa.chunked_array([pa.nulls(file.metadata.num_rows)])
        return file.read(columns=[column])[column]
    except pa.ArrowException as error:
        raise CloudError(f"{uri} is not Parquet ({error}): it was not written by the receiver") from error


def _counted(items: Sequence[InputObject], before: Sequence[InputObject], read_ids: IdReader) -> Iterator[InputObject]:
    """Yield the objects of one partition with the number of events that count."""
    known_by_uri = {item.uri: item for item in before}
    known_by_file: dict[str | None, InputObject] = {item.file: item for item in before if item.file}
    predecessors = {item.uri: known_by_uri.get(item.uri) or known_by_file.get(item.file) for item in items}

    def order(item: InputObject) -> tuple[object, ...]:
        predecessor = predecessors[item.uri]
        return predecessor is None, (predecessor or item).arrived, (predecessor or item).uri, item.uri

    ordered = sorted(items, key=order)
    id_columns = read_ids(ordered)
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
    partitions: dict[tuple[str, str], list[InputObject]] = {}
    for item in objects:
        partitions.setdefault((item.date, item.hour), []).append(item)
    return partitions
