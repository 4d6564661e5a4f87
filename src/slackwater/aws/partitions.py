"""The Glue catalog of raw partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slackwater.aws.failures import error_type, translated
from slackwater.sources.partitions import Partition, partition_prefix

# Number of partitions that one BatchCreatePartition call accepts.
_LIMIT = 100
_PARQUET = {
    "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"},
}


class PartitionRegistry:
    """A `PartitionCatalog` over Glue: one table per source, with the partition keys date and hour."""

    def __init__(self, glue: Any, *, database: str, raw_bucket: str) -> None:
        self._glue = glue
        self._database = database
        self._raw_bucket = raw_bucket
        # Partitions that are in the catalog for certain. A warm function then writes to them without asking Glue.
        self._known: set[tuple[str, Partition]] = set()

    def register(self, source: str, partitions: Iterable[Partition]) -> None:
        """Add the partitions to the catalog; a partition that it already has is no error. Raises `CloudError`."""
        new = [partition for partition in partitions if (source, partition) not in self._known]
        for start in range(0, len(new), _LIMIT):
            chunk = new[start : start + _LIMIT]
            inputs = [
                {
                    "Values": list(partition),
                    "StorageDescriptor": {
                        **_PARQUET,
                        "Location": partition_prefix(self._raw_bucket, source, partition),
                    },
                }
                for partition in chunk
            ]
            with translated(f"register partitions of {self._database}.{source}"):
                response = self._glue.batch_create_partition(
                    DatabaseName=self._database, TableName=source, PartitionInputList=inputs
                )
            # The call succeeds even if Glue refuses single partitions.
            for failure in response.get("Errors", []):
                detail = failure["ErrorDetail"]
                if detail["ErrorCode"] != "AlreadyExistsException":
                    raise error_type(detail["ErrorCode"])(
                        f"could not register {'/'.join(failure['PartitionValues'])} of {self._database}.{source}: "
                        f"{detail['ErrorCode']}: {detail.get('ErrorMessage', '')}"
                    )
            self._known.update((source, partition) for partition in chunk)
