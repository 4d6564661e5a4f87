"""Partitions of raw events, and the URIs of their objects."""

from __future__ import annotations

from typing import NamedTuple

ROWS, FILE = "rows", "file"
"""Keys of a raw object's metadata: its number of events, and the path of the partner's file that contained them."""


class Partition(NamedTuple):
    """A UTC date and hour, as in S3 keys and in Glue: `2013-03-10`, `05`."""

    date: str
    hour: str


# Hive's layout, `key=value`: Glue, Athena and Spark read the partition of an object from its key.
def source_prefix(bucket: str, source: str) -> str:
    """Return the URI prefix of all objects of a source."""
    return f"s3://{bucket}/raw/source={source}/"


def partition_prefix(bucket: str, source: str, partition: Partition) -> str:
    """Return the URI prefix of all objects of a partition."""
    return f"{source_prefix(bucket, source)}date={partition.date}/hour={partition.hour}/"


def object_uri(bucket: str, source: str, partition: Partition, name: str) -> str:
    """Return the URI of an object of a partition; `name` is the hash of the batch or file that it comes from."""
    return f"{partition_prefix(bucket, source, partition)}{name}.parquet"


def partition_value(uri: str, key: str) -> str:
    """Return the value of `key=value` in the URI of a partition's object, or an empty string without that key."""
    return next((part.removeprefix(f"{key}=") for part in uri.split("/") if part.startswith(f"{key}=")), "")
