"""The sizes of EMR Serverless' workers."""

from __future__ import annotations

import math
from typing import NamedTuple

from slackwater.pipeline.spark_workers import MEMORY_GB, WorkerSize

# What Spark adds to its heap: 10 %, at least 384 MB.
_OVERHEAD, _LEAST_OVERHEAD_GB = 0.1, 0.375
DISK_GB = 20
"""The disk of a worker that asks for no other. EMR allows 20 to 200 GB."""
LARGE_FILE_DISK_GB = 200
"""Disk of the driver that fetches a large file (`step_functions/pull_source.asl.json`): the most that EMR allows."""


class Worker(NamedTuple):
    """What one driver or executor uses of an application's capacity."""

    vcpu: int
    memory_gb: int
    disk_gb: int = DISK_GB


def capacity_of(*workers: tuple[int, Worker]) -> dict[str, int]:
    """Return the settings of an application that holds these numbers of workers."""
    return {
        "maximum_vcpu": sum(count * worker.vcpu for count, worker in workers),
        "maximum_memory_gb": sum(count * worker.memory_gb for count, worker in workers),
        "maximum_disk_gb": sum(count * worker.disk_gb for count, worker in workers),
    }


def worker_for(cores: int, heap_gb: int) -> Worker:
    """Return the smallest worker with these cores whose memory holds Spark's heap and its overhead.

    Raises `ValueError` for a heap that no worker with these cores may have.
    """
    minimum, maximum, step = MEMORY_GB[cores]
    allowed = [heap for heap in range(1, maximum) if minimum <= _memory_gb(heap, step) <= maximum]
    if heap_gb not in allowed:
        raise ValueError(
            f"a worker of {cores} vCPU has {minimum} to {maximum} GB, with Spark's overhead of 10 %: choose "
            f"{allowed[0]} to {allowed[-1]}, not {heap_gb}"
        )
    return Worker(cores, _memory_gb(heap_gb, step))


def heap_mb(size: WorkerSize) -> int:
    """Return the largest heap in MB that a worker of this size holds with Spark's overhead."""
    return math.floor(1024 * min(size.memory_gb / (1 + _OVERHEAD), size.memory_gb - _LEAST_OVERHEAD_GB))


def _memory_gb(heap_gb: int, step: int) -> int:
    return math.ceil((heap_gb + max(heap_gb * _OVERHEAD, _LEAST_OVERHEAD_GB)) / step) * step
