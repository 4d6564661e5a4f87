"""Many small objects of raw events: stored without the receiver, which takes a request for each, and packed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from hashlib import sha256
from typing import Any

import boto3
import pyarrow as pa
from botocore.config import Config

from slackwater.aws.objects import S3ObjectStore
from slackwater.project.project import load_project
from slackwater.receiver.writing.raw_writer import encode_parquet
from slackwater.runs.period import partition_of
from slackwater.sources.event_schema import raw_schema
from slackwater.sources.partitions import object_name, object_uri
from tests.conftest import Cloud


def put_events(cloud: Cloud, source: str, events: Sequence[tuple[str, int, datetime]], objects: int) -> None:
    """Store events, each an id, a value and a time, in so many objects, as the receiver writes them.

    Those of an object are in the hour of its first one.
    """
    store, bucket = S3ObjectStore(cloud.client("s3")), cloud.outputs()["RawBucket"]
    schema, size = raw_schema(load_project(cloud.project).source(source)), len(events) // objects

    def put(number: int) -> None:
        ids, values, times = zip(*events[number * size : (number + 1) * size], strict=True)
        # The order of names is not that of arrival.
        batch = sha256(ids[0].encode()).hexdigest()[:32]
        columns = {field.name: pa.nulls(size, field.type) for field in schema}
        columns |= {"id": pa.array(ids), "value": pa.array(values, pa.int64()), "_batch_id": pa.array([batch] * size)}
        for name in ("at", "_event_time", "_received_at"):
            columns[name] = pa.array(times, schema.field(name).type)
        uri = object_uri(bucket, source, partition_of(times[0]), object_name(batch, size))
        store.put_new(uri, encode_parquet(pa.table(columns, schema=schema)))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(put, range(objects)))


def patient_client(cloud: Cloud) -> Any:
    """Return a client of Lambda for calls that take minutes: other clients would call again meanwhile."""
    return boto3.client(
        "lambda",
        endpoint_url=cloud.endpoint,
        region_name=cloud.environment["AWS_REGION"],
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(read_timeout=900, retries={"total_max_attempts": 1}),
    )
