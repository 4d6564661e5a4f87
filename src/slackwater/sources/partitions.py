"""Partitions of raw events, and the URIs of their objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import datetime
from typing import NamedTuple

ROWS, FILE = "rows", "file"
"""Keys of the metadata of raw objects whose names have no rows: the number of events, and the path of the partner's
file that contained them. The receiver still writes `ROWS`, because a retry may write such a name."""
# The name of a batch's object is `<hash>-<rows>`, that of a file's object `<content id>-<attempt>-<rows>`. Before names
# had rows, the latter was `<content id>-<digest>`, and the 12 digits of a digest may all be decimal.
_NAMED_ROWS = re.compile(r"[0-9a-f]{32}(?:-[0-9a-f]{12})?-([0-9]{1,11})\.parquet")
_FILE_OBJECT = re.compile(r"([0-9a-f]{32})-([0-9a-f]{12})(?:-[0-9]+)?\.parquet")

# The key of an object of a partition, as `object_uri` writes it.
_KEY = re.compile(r"raw/source=(?P<source>[a-z][a-z0-9_]*)/date=(?P<date>\d{4}-\d\d-\d\d)/hour=(?P<hour>\d\d)/[^/]+")


class Partition(NamedTuple):
    """A UTC date and hour, as in S3 keys: `2013-03-10`, `05`."""

    date: str
    hour: str


UpdateTable = Callable[[str, Collection[Partition]], None]
"""Has the Iceberg table of a source follow the listing of these partitions, some time later."""


# Hive's layout, `key=value`.
def source_prefix(bucket: str, source: str) -> str:
    """Return the URI prefix of all objects of a source."""
    return f"s3://{bucket}/raw/source={source}/"


def partition_prefix(bucket: str, source: str, partition: Partition) -> str:
    """Return the URI prefix of all objects of a partition."""
    return f"{source_prefix(bucket, source)}date={partition.date}/hour={partition.hour}/"


def object_uri(bucket: str, source: str, partition: Partition, name: str) -> str:
    """Return the URI of an object of a partition; `name` is its `object_name`."""
    return f"{partition_prefix(bucket, source, partition)}{name}.parquet"


def source_partition(key: str) -> tuple[str, Partition] | None:
    """Return the source and the partition of an object of the raw bucket; None for any other key."""
    match = _KEY.fullmatch(key)
    if not match:
        return None
    try:
        datetime.fromisoformat(f"{match['date']}T{match['hour']}:00:00+00:00")
    except ValueError:
        return None  # Such as the 30th of February, or hour 24.
    return match["source"], Partition(match["date"], match["hour"])


def object_name(origin: str, rows: int) -> str:
    """Return the name of an object with `rows` events; `origin` identifies the batch or file that it comes from."""
    return f"{origin}-{rows}"


def named_rows(uri: str) -> int | None:
    """Return the number of events in the name of an object; None for an object written before names had it."""
    match = _NAMED_ROWS.fullmatch(uri, uri.rfind("/") + 1)
    return int(match[1]) if match else None


def version_of(uri: str) -> tuple[str, str] | None:
    """Return the ids of content and version (`object_id`) that the name of a pulled file's object has.

    None for an object of a pushed batch.
    """
    match = _FILE_OBJECT.fullmatch(uri, uri.rfind("/") + 1)
    return (match[1], match[2]) if match else None


def object_partition(uri: str) -> Partition:
    """Return the partition of an object from its URI, which is one of a source's objects; it is not checked."""
    return Partition(partition_value(uri, "date"), partition_value(uri, "hour"))


def partition_value(uri: str, key: str) -> str:
    """Return the value of `key=value` in the URI of a partition's object, or an empty string without that key."""
    return next((part.removeprefix(f"{key}=") for part in uri.split("/") if part.startswith(f"{key}=")), "")
