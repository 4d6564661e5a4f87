from __future__ import annotations

import pytest

from slackwater.aws.partitions import PartitionRegistry
from slackwater.errors import Unavailable
from slackwater.sources.partitions import Partition

pytestmark = pytest.mark.unit


class Glue:
    """A table that keeps partitions; those of hour 23 cannot be created."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, ...], str] = {}
        self.calls: list[int] = []

    def batch_create_partition(self, *, DatabaseName, TableName, PartitionInputList):  # noqa: N803
        self.calls.append(len(PartitionInputList))
        errors = []
        for item in PartitionInputList:
            values = (DatabaseName, TableName, *item["Values"])
            code = "AlreadyExistsException" if values in self.partitions else "InternalServiceException"
            if values in self.partitions or item["Values"][1] == "23":
                errors.append({"PartitionValues": item["Values"], "ErrorDetail": {"ErrorCode": code}})
            else:
                self.partitions[values] = item["StorageDescriptor"]["Location"]
        return {"Errors": errors}


class TestPartitions:
    def test_partitions_are_registered_once_and_in_batches_of_100(self):
        glue = Glue()
        registry = PartitionRegistry(glue, database="raw_db", raw_bucket="raw")
        partitions = [Partition(f"2013-03-{day:02d}", f"{hour:02d}") for day in range(1, 11) for hour in range(23)]
        registry.register("weather", partitions)
        assert glue.calls == [100, 100, 30]
        assert len(glue.partitions) == 230
        location = glue.partitions["raw_db", "weather", "2013-03-01", "05"]
        assert location == "s3://raw/raw/source=weather/date=2013-03-01/hour=05/"
        registry.register("weather", partitions)
        assert len(glue.calls) == 3
        registry.register("flights", partitions[:1])
        assert glue.calls[3:] == [1]

    def test_existing_partitions_are_accepted(self):
        glue = Glue()
        for _ in range(2):
            registry = PartitionRegistry(glue, database="raw_db", raw_bucket="raw")
            registry.register("weather", [Partition("2013-03-01", "05")])
        assert glue.calls == [1, 1]

    def test_a_failed_partition_is_reported_and_registered_again_next_time(self):
        glue = Glue()
        registry = PartitionRegistry(glue, database="raw_db", raw_bucket="raw")
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"2013-03-01/23 of raw_db\.weather: InternalServiceException"):
                registry.register("weather", [Partition("2013-03-01", "23")])
        assert glue.calls == [1, 1]
