"""What a Spark job costs on EMR Serverless."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Self

from slackwater.model import Model
from slackwater.pipeline.spark_workers import SparkSizes, WorkerSize


class Workers(Model):
    """The workers of a job. It starts with one executor; Spark adds executors while tasks wait."""

    driver: WorkerSize
    executor: WorkerSize
    max_executors: int

    @classmethod
    def of(cls, sizes: SparkSizes, defaults: SparkSizes) -> Self:
        """Return the workers of a pipeline's jobs. What `sizes` lacks is that of `defaults`, which lacks nothing."""
        return cls.model_validate({**defaults.model_dump(), **sizes.model_dump(exclude_none=True)})


class SparkPrices(Model):
    """The prices of one region. The first 20 GB of a worker's disk are free, and our workers have no more."""

    source: str
    """URL of the page that states the prices."""
    as_of: str
    """The date of the prices."""
    region: str
    architecture: str
    usd_per_vcpu_hour: float
    usd_per_gb_hour: float
    """For a GB of memory."""
    minimum_seconds: float
    """A worker is billed for at least this time."""

    def job_usd(self, workers: Workers, seconds: float, *, executors: int) -> float:
        """Return the price of a job in USD whose driver and executors all work for `seconds`."""
        hours = max(seconds, self.minimum_seconds) / 3600
        return hours * sum(
            count * (size.vcpu * self.usd_per_vcpu_hour + size.memory_gb * self.usd_per_gb_hour)
            for count, size in ((1, workers.driver), (executors, workers.executor))
        )


@cache
def read_prices() -> SparkPrices:
    """Return the prices that this package contains."""
    return SparkPrices.model_validate_json(files(__package__).joinpath("spark_prices.json").read_bytes())
