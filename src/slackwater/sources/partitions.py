"""Partitions of raw events, and the addresses of what they hold."""

from __future__ import annotations

from typing import NamedTuple


class Partition(NamedTuple):
    """Date and hour, both UTC, as they stand in addresses and in Glue: `2013-03-10`, `05`."""

    date: str
    hour: str


def source_prefix(bucket: str, source: str) -> str:
    """Return the address under which all partitions of a source lie."""
    return f"s3://{bucket}/raw/source={source}/"


def partition_prefix(bucket: str, source: str, partition: Partition) -> str:
    """Return the address under which one partition's objects lie."""
    return f"{source_prefix(bucket, source)}date={partition.date}/hour={partition.hour}/"


def object_uri(bucket: str, source: str, partition: Partition, name: str) -> str:
    """Return the address of a partition's object; its name is a hash of what it came from."""
    return f"{partition_prefix(bucket, source, partition)}{name}.parquet"
