"""Raw partitions in the Glue catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from slackwater.aws.failures import translated
from slackwater.errors import CloudError
from slackwater.sources.partitions import Partition, partition_prefix

_LIMIT = 100
"""Partitions that one BatchCreatePartition call takes."""
_PARQUET = {
    "InputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
    "OutputFormat": "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat",
    "SerdeInfo": {"SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"},
}


class PartitionRegistry:
    """`slackwater.receiver.writing.raw_writer.PartitionCatalog` over Glue: one table per source, partition keys date and hour."""

    def __init__(self, glue: Any, *, database: str, raw_bucket: str) -> None:
        self._glue = glue
        self._database = database
        self._raw_bucket = raw_bucket
        self._known: set[tuple[str, Partition]] = set()

    def register(self, source: str, partitions: Iterable[Partition]) -> None:
        """Make the partitions known; one that is known already is no error. Raises `CloudError` for all others."""
        new = [partition for partition in partitions if (source, partition) not in self._known]
        for start in range(0, len(new), _LIMIT):
            some = new[start : start + _LIMIT]
            self._create(source, some)
            self._known.update((source, partition) for partition in some)

    def _create(self, source: str, partitions: Sequence[Partition]) -> None:
        with translated(f"register partitions of {self._database}.{source}"):
            answer = self._glue.batch_create_partition(
                DatabaseName=self._database,
                TableName=source,
                PartitionInputList=[self._input(source, partition) for partition in partitions],
            )
        for failure in answer.get("Errors", []):
            detail = failure["ErrorDetail"]
            if detail["ErrorCode"] != "AlreadyExistsException":
                raise CloudError(
                    f"could not register {'/'.join(failure['PartitionValues'])} of {self._database}.{source}: "
                    f"{detail['ErrorCode']}: {detail.get('ErrorMessage', '')}"
                )

    def _input(self, source: str, partition: Partition) -> dict[str, Any]:
        location = partition_prefix(self._raw_bucket, source, partition)
        return {"Values": list(partition), "StorageDescriptor": {**_PARQUET, "Location": location}}
