"""The sizes of a pipeline's Spark workers: those that EMR Serverless offers."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from slackwater.model import Model

MEMORY_GB = {1: (2, 8, 1), 2: (4, 16, 1), 4: (8, 30, 1), 8: (16, 60, 4), 16: (32, 120, 8)}
"""Memory of a worker in GB by its vCPU: minimum, maximum, step ("Supported worker configurations", user guide)."""


class WorkerSize(Model):
    """The vCPU and the memory of a driver or an executor."""

    vcpu: Literal[1, 2, 4, 8, 16]
    memory_gb: int
    """Memory of the worker. Spark's heap is 10 % less. 1 vCPU has 2 to 8 GB, 2 vCPU 4 to 16, 4 vCPU 8 to 30,
    8 vCPU 16 to 60 in steps of 4, 16 vCPU 32 to 120 in steps of 8."""

    @model_validator(mode="after")
    def _check_memory(self) -> Self:
        minimum, maximum, step = MEMORY_GB[self.vcpu]
        if self.memory_gb not in range(minimum, maximum + 1, step):
            steps = f" in steps of {step}" if step > 1 else ""
            raise ValueError(f"memory_gb: {self.vcpu} vCPU have {minimum} to {maximum} GB{steps}, not {self.memory_gb}")
        return self


class SparkSizes(Model):
    """The workers of a pipeline's Spark jobs. What is missing is that of the deployment's settings."""

    driver: WorkerSize | None = None
    executor: WorkerSize | None = None
    max_executors: Annotated[int, Field(gt=0)] | None = None
    """The most executors of a job. A job starts with one; Spark adds executors while tasks wait."""
