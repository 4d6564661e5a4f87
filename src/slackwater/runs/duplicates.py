"""Copies: events whose id stands in their partition already, of a source with an id column.

An id counts once wherever a partition is read. Of several events the first received counts: by `_received_at`, then by
the address of the object. So read Spark's steps (`slackwater.steps.spark.sources`) and queries (`slackwater.cli.sql`).
An event without an id always counts: objects from before the source had the column do not hold it.

A listing only says how many events of which object count. There an object that the published run has read goes before
all others: a copy that came since takes no event from it, and is no late data.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.errors import CloudError
from slackwater.runs.manifest import InputObject

Ids = Callable[[Sequence[InputObject]], Sequence[pa.ChunkedArray]]
"""Reads the ids of each object's events; null is an event without one."""


def without_duplicates(
    objects: Iterable[InputObject], *, known: Iterable[InputObject], ids: Ids
) -> Iterator[InputObject]:
    """Return the objects of one source with the rows that count, without those in which none does.

    `known` is what the published run has read of the source; an object that is still as it was comes with the rows that
    it had there. It stays, also where no row of it counts any more, and so does what has taken the place of a file that
    was read: neither has vanished. `ids` is asked for one partition at a time, and only for those that hold something
    else than what is known: for one with copies, every time.
    """
    before = _by_partition(known)
    for partition, found in _by_partition(objects).items():
        yield from _counted(found, before.get(partition, []), ids)


def read_ids(body: bytes, column: str, *, uri: str) -> pa.ChunkedArray:
    """Return the ids in an object of raw events, which is Parquet. Raises `CloudError` if it is not."""
    try:
        file = pq.ParquetFile(io.BytesIO(body))
        if column not in file.schema_arrow.names:
            return pa.chunked_array([pa.nulls(file.metadata.num_rows)])
        return file.read(columns=[column])[column]
    except pa.ArrowException as error:
        raise CloudError(f"{uri} is no Parquet ({error}): it was not written by the receiver") from error


def _counted(found: Collection[InputObject], before: Collection[InputObject], ids: Ids) -> Iterable[InputObject]:
    """Return one partition's objects as they count; the receiver stores no id twice in one object."""
    if _identities(found) == _identities(before) or (len(found) == 1 and not before):
        return found
    published = {item.uri: item for item in before}
    of_file: dict[str | None, InputObject] = {item.file: item for item in before if item.file}
    stands_for = {item.uri: published.get(item.uri) or of_file.get(item.file) for item in found}

    def order(item: InputObject) -> tuple[object, ...]:
        place = stands_for[item.uri]
        return place is None, (place or item).arrived, (place or item).uri, item.uri

    ordered = sorted(found, key=order)
    counted = zip(ordered, _rows(ids(ordered)), strict=True)
    return [item.model_copy(update={"rows": rows}) for item, rows in counted if rows or stands_for[item.uri]]


def _rows(ids: Sequence[pa.ChunkedArray]) -> list[int]:
    """Return how many events of each object count, from the ids of all objects in their order."""
    places = (pa.repeat(pa.scalar(n, pa.int32()), len(column)) for n, column in enumerate(ids))
    tables = [pa.table({"id": column, "object": place}) for column, place in zip(ids, places, strict=True)]
    first = pa.concat_tables(tables, promote_options="default").group_by("id").aggregate([("object", "min")])
    counted = first["object_min"].filter(first["id"].is_valid()).value_counts()
    counts = {item["values"]: item["counts"] for item in counted.to_pylist()}
    return [column.null_count + counts.get(n, 0) for n, column in enumerate(ids)]


def _by_partition(objects: Iterable[InputObject]) -> dict[tuple[str, str], list[InputObject]]:
    found: dict[tuple[str, str], list[InputObject]] = {}
    for item in objects:
        found.setdefault((item.date, item.hour), []).append(item)
    return found


def _identities(objects: Iterable[InputObject]) -> set[tuple[str, str, int]]:
    return {(item.uri, item.etag, item.bytes) for item in objects}
