"""What a job run would have used and cost on AWS, from the workers it asked for and the seconds it ran.

One Spark on this machine stands for a driver and its executors. They are taken to live as long as the driver did, each
of the size that the job's settings ask for, which is what EMR Serverless bills when a job keeps its executors busy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from slackwater.local.emr.errors import Invalid

DEFAULTS = {
    "spark.driver.cores": "4",
    "spark.driver.memory": "14g",
    "spark.emr-serverless.driver.disk": "20g",
    "spark.executor.cores": "4",
    "spark.executor.memory": "14g",
    "spark.emr-serverless.executor.disk": "20g",
    "spark.executor.instances": "3",
}
"""The properties that EMR Serverless gives every Spark job."""

_FREE_DISK_GB = 20
_MINIMUM_SECONDS = 60
_OVERHEAD_SHARE, _OVERHEAD_GB = 0.10, 0.375
_SIZES = {1: (2, 8, 1), 2: (4, 16, 1), 4: (8, 30, 1), 8: (16, 60, 4), 16: (32, 120, 8)}
"""Memory that a worker of so many vCPU can have: least GB, most GB, step."""


class Worker(NamedTuple):
    """The size of one worker."""

    cpu: int
    memory_gb: int
    disk_gb: int


class Workers(NamedTuple):
    """What one job run occupies."""

    driver: Worker
    executor: Worker
    executors: int

    def all(self) -> list[Worker]:
        """Every worker, the driver first."""
        return [self.driver] + [self.executor] * self.executors


def gigabytes(text: str) -> float:
    """Read a size as Spark and EMR write it: `512m`, `14g`, `20 GB`; without a unit, MiB. Raises `Invalid`."""
    found = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", text.lower())
    if not found:
        raise Invalid(f"{text!r} is not a size")
    return int(found[1]) * {"k": 1 / 1024**2, "": 1 / 1024, "m": 1 / 1024, "g": 1, "t": 1024}[found[2]]


def workers(conf: Mapping[str, str]) -> Workers:
    """Return the workers that Spark properties ask for. Raises `Invalid` for a size that no worker can have."""
    settings = {**DEFAULTS, **conf}
    count = _whole(settings, "spark.executor.instances")
    if settings.get("spark.dynamicAllocation.enabled", "true") == "true":
        count = min(count, _whole({"spark.dynamicAllocation.maxExecutors": str(count), **conf}, _MAX_EXECUTORS))
    return Workers(_worker(settings, "driver"), _worker(settings, "executor"), count)


_MAX_EXECUTORS = "spark.dynamicAllocation.maxExecutors"


def _worker(settings: Mapping[str, str], role: str) -> Worker:
    cpu = _whole(settings, f"spark.{role}.cores")
    if cpu not in _SIZES:
        raise Invalid(f"spark.{role}.cores must be one of {sorted(_SIZES)}, not {cpu}")
    asked = gigabytes(settings[f"spark.{role}.memory"])
    overhead = settings.get(f"spark.{role}.memoryOverhead")
    extra = gigabytes(overhead) if overhead else max(asked * _OVERHEAD_SHARE, _OVERHEAD_GB)
    least, most, step = _SIZES[cpu]
    memory = max(least, math.ceil((asked + extra) / step) * step)
    if memory > most:
        raise Invalid(f"spark.{role}.memory with its overhead is {memory} GB, more than the {most} GB of {cpu} vCPU")
    return Worker(cpu, memory, math.ceil(gigabytes(settings[f"spark.emr-serverless.{role}.disk"])))


def _whole(settings: Mapping[str, str], key: str) -> int:
    try:
        return int(settings[key])
    except ValueError as error:
        raise Invalid(f"{key} must be a whole number, not {settings[key]!r}") from error


def used(size: Workers, seconds: float) -> dict[str, float]:
    """Return `totalResourceUtilization`: hours of vCPU, memory GB and storage GB over `seconds`, rounded up to one."""
    return _utilization(size, math.ceil(seconds), free_disk=0)


def billed(size: Workers, seconds: float) -> dict[str, float]:
    """Return `billedResourceUtilization`: at least a minute of each worker, without its first 20 GB of storage."""
    return _utilization(size, max(_MINIMUM_SECONDS, math.ceil(seconds)), free_disk=_FREE_DISK_GB)


def _utilization(size: Workers, seconds: int, *, free_disk: int) -> dict[str, float]:
    hours = seconds / 3600
    return {
        "vCPUHour": round(sum(worker.cpu for worker in size.all()) * hours, 3),
        "memoryGBHour": round(sum(worker.memory_gb for worker in size.all()) * hours, 3),
        "storageGBHour": round(sum(max(0, worker.disk_gb - free_disk) for worker in size.all()) * hours, 3),
    }
