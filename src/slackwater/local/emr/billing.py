"""The workers of a job run, the capacity that they need, and what they would cost on AWS.

One Spark process on this machine replaces a driver and its executors. Each executor is billed for as long as the
driver runs, as on EMR Serverless when a job keeps its executors busy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from slackwater.local.service_model import EmrValidationError

ACCOUNT_VCPU = 16
"""The quota "Max concurrent vCPUs per account" of a new account, for each region."""
# EMR Serverless' defaults for every Spark job.
_CORES, _MEMORY, _DISK, _EXECUTORS = "4", "14g", "20g", "3"
# EMR Serverless' prices: 20 GB of storage are free for each worker, and a worker is billed for at least a minute.
_FREE_DISK_GB = 20
_MINIMUM_SECONDS = 60
# Spark's default for memory outside of the heap: 10 %, at least 384 MB.
_OVERHEAD_SHARE, _OVERHEAD_GB = 0.10, 0.375
# The memory of a worker by its vCPU, in GB: minimum, maximum, step. From EMR Serverless' "worker configurations".
_SIZES = {1: (2, 8, 1), 2: (4, 16, 1), 4: (8, 30, 1), 8: (16, 60, 4), 16: (32, 120, 8)}


class Worker(NamedTuple):
    """The size of one worker."""

    cpu: int
    memory_gb: int
    disk_gb: int


class Workers(NamedTuple):
    """The workers of one job run."""

    driver: Worker
    executor: Worker
    executors: int
    """How many executors a job starts with. Further ones are not modelled: how many depends on its tasks."""


def gigabytes(size: str) -> float:
    """Read a size as Spark and EMR write it, `512m` or `20 GB`; without a unit, MiB. Raises `EmrValidationError`."""
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", size.lower())
    if not match:
        raise EmrValidationError(f"{size!r} is not a size")
    return int(match[1]) * {"k": 1 / 1024**2, "": 1 / 1024, "m": 1 / 1024, "g": 1, "t": 1024}[match[2]]


def read_workers(conf: Mapping[str, str]) -> Workers:
    """Return the workers that Spark properties ask for. Raises `EmrValidationError` for an impossible size."""
    executors = _whole_number(conf, "spark.executor.instances", _EXECUTORS)
    if conf.get("spark.dynamicAllocation.enabled", "true") == "true":
        # Spark starts the larger of two numbers, and EMR's default is 3 for both.
        executors = max(executors, _whole_number(conf, "spark.dynamicAllocation.initialExecutors", _EXECUTORS))
        minimum = _whole_number(conf, "spark.dynamicAllocation.minExecutors", "0")
        maximum = _whole_number(conf, "spark.dynamicAllocation.maxExecutors", str(executors))
        # A job of the service fails with this message at once (aws-samples/aws-emr-utilities, pull request 175).
        if not minimum <= executors <= maximum:
            raise EmrValidationError(
                f"Maximum value of spark.dynamicAllocation.initialExecutors: {executors} must be between "
                f"spark.dynamicAllocation.minExecutor {minimum} and spark.dynamicAllocation.maxExecutors {maximum}."
            )
    return Workers(_read_worker(conf, "driver"), _read_worker(conf, "executor"), executors)


def fits(workers: Iterable[Worker], maximum: Mapping[str, Any]) -> bool:
    """Return whether workers are together within an application's `maximumCapacity`."""
    cpu, memory, disk = (sum(sizes) for sizes in zip((0, 0, 0), *workers, strict=True))
    limits = (int(maximum["cpu"].lower().split("v")[0]), gigabytes(maximum["memory"]))
    return cpu <= limits[0] and memory <= limits[1] and ("disk" not in maximum or disk <= gigabytes(maximum["disk"]))


def largest_heap_mb(worker: Worker) -> int:
    """Return the largest heap in MB that fits into a worker with Spark's overhead."""
    return math.floor(1024 * min(worker.memory_gb / (1 + _OVERHEAD_SHARE), worker.memory_gb - _OVERHEAD_GB))


def used(workers: Workers, seconds: float) -> dict[str, float]:
    """Return `totalResourceUtilization`: hours of vCPU, memory GB and storage GB over whole seconds."""
    return _utilization(workers, math.ceil(seconds), free_disk=0)


def billed(workers: Workers, seconds: float) -> dict[str, float]:
    """Return `billedResourceUtilization`: at least a minute of each worker, without its first 20 GB of storage."""
    return _utilization(workers, max(_MINIMUM_SECONDS, math.ceil(seconds)), free_disk=_FREE_DISK_GB)


def _read_worker(conf: Mapping[str, str], role: str) -> Worker:
    """Return the size of the `driver` or of an `executor`, rounded up to one that EMR Serverless offers."""
    cpu = _whole_number(conf, f"spark.{role}.cores", _CORES)
    if cpu not in _SIZES:
        raise EmrValidationError(f"spark.{role}.cores must be one of {sorted(_SIZES)}, not {cpu}")
    requested = gigabytes(conf.get(f"spark.{role}.memory", _MEMORY))
    overhead = conf.get(f"spark.{role}.memoryOverhead")
    requested += gigabytes(overhead) if overhead else max(requested * _OVERHEAD_SHARE, _OVERHEAD_GB)
    minimum, maximum, step = _SIZES[cpu]
    memory = max(minimum, math.ceil(requested / step) * step)
    if memory > maximum:
        raise EmrValidationError(
            f"spark.{role}.memory with its overhead is {memory} GB, more than the {maximum} GB of {cpu} vCPU"
        )
    return Worker(cpu, memory, math.ceil(gigabytes(conf.get(f"spark.emr-serverless.{role}.disk", _DISK))))


def _whole_number(conf: Mapping[str, str], key: str, default: str) -> int:
    value = conf.get(key, default)
    try:
        return int(value)
    except ValueError as error:
        raise EmrValidationError(f"{key} must be a whole number, not {value!r}") from error


def _utilization(workers: Workers, seconds: int, *, free_disk: int) -> dict[str, float]:
    every_worker, hours = [workers.driver] + [workers.executor] * workers.executors, seconds / 3600
    return {
        "vCPUHour": round(sum(worker.cpu for worker in every_worker) * hours, 3),
        "memoryGBHour": round(sum(worker.memory_gb for worker in every_worker) * hours, 3),
        "storageGBHour": round(sum(max(0, worker.disk_gb - free_disk) for worker in every_worker) * hours, 3),
    }
