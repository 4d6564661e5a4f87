"""What the receiver writes to, in the cloud."""

from __future__ import annotations

from slackwater.aws.clients import client
from slackwater.aws.partitions import PartitionRegistry
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.storage import ObjectStore


def raw_delivery(store: ObjectStore, *, raw_bucket: str, raw_database: str) -> RawWriter:
    """Return the raw bucket and its catalogue: every way in ends there."""
    registry = PartitionRegistry(client("glue"), database=raw_database, raw_bucket=raw_bucket)
    return RawWriter(store=store, partitions=registry, raw_bucket=raw_bucket)
