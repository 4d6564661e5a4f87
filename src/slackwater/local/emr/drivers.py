"""Drivers that are started before their job: the pre-initialised drivers of an application.

A started driver is a `spark-submit` whose JVM and Python have run `training_job.py` and wait. It knows nothing of a job
before it gets one: no credentials, archives, properties or arguments. It runs one job.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

from slackwater.local.emr import billing, spark
from slackwater.local.emr.store import Application, EmrStore
from slackwater.local.emr.submit import DRIVER_ENVIRONMENT, Submission

_PREFIX = "driver-"
# Properties that the JVM reads when it starts, or that `spark-submit` reads and a started one has read already.
_READ_AT_START = (
    *("spark.jars", "spark.files", "spark.submit.", "spark.hadoop.", "spark.driver.defaultJavaOptions"),
    *("spark.driver.extra", "spark.driver.userClassPathFirst"),
)
# Variables of the driver that only its Python reads. The JVM of a started driver cannot get others.
_PYTHON_VARIABLES = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_PYTHONS = (
    *(f"{DRIVER_ENVIRONMENT}{name}" for name in _PYTHON_VARIABLES[1:]),
    *("spark.pyspark.python", "spark.pyspark.driver.python"),
)


def fits(submission: Submission, worker: billing.Worker) -> bool:
    """Return whether a driver that was started with the size `worker`, and this Python, can run a job.

    All other jobs need a driver of their own.
    """
    conf, needed = submission.conf, billing.read_workers(submission.conf).driver
    return (
        submission.main_class is None
        and all(size <= started for size, started in zip(needed, worker, strict=True))
        and not any(key.startswith(_READ_AT_START) for key in conf)
        and set(submission.driver_environment) <= set(_PYTHON_VARIABLES)
        and all(conf.get(key, sys.executable) == sys.executable for key in _PYTHONS)
    )


class StartedDriver:
    """A driver that waits for its job."""

    def __init__(self, folder: Path, worker: billing.Worker, *, endpoint: str, jars: Path) -> None:
        self.worker = worker
        self._folder, self._pipe = folder, folder / "job"
        memory = f"spark.driver.memory={billing.largest_heap_mb(worker)}m"
        self.process = spark.start_driver(
            folder,
            ["--conf", memory, str(spark.TRAINING_JOB), str(self._pipe)],
            endpoint=endpoint,
            jars=jars,
            environment={},
        )

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.process.poll() is None

    @property
    def ready(self) -> bool:
        """Whether it waits for its job."""
        return self.alive and self._pipe.exists()

    @property
    def failed(self) -> bool:
        """Whether it has ended before it was ready."""
        return not self.alive and not self._pipe.exists()

    def move(self, folder: Path) -> None:
        """Make its folder the folder of its job. A link at the old path stays, which its environment variables name."""
        self._folder.rename(folder)
        self._folder.symlink_to(folder)
        for log in ("stdout", "stderr"):  # what the training has logged
            os.truncate(folder / log, 0)

    def run(self, command: Sequence[str], *, conf: Mapping[str, str], environment: Mapping[str, str]) -> bool:
        """Let it run a program with arguments. Return whether it does; its process may have ended in the meantime."""
        job = json.dumps({"command": list(command), "conf": dict(conf), "environment": dict(environment)})
        try:
            # Without O_NONBLOCK, the call would wait for a reader that no longer exists.
            pipe = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.set_blocking(pipe, True)
            with os.fdopen(pipe, "wb") as file:
                file.write(job.encode())
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Kill it if it still runs, and remove its folder; a folder that became its job's stays."""
        cast("IO[bytes]", self.process.stdin).close()
        self.process.wait()
        # If the guard itself was killed, what it has started still runs. All are one process group.
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        if self._folder.is_symlink():
            self._folder.unlink()
        else:
            shutil.rmtree(self._folder, ignore_errors=True)


class StartedDrivers:
    """Keeps the started drivers that the initial capacities of the started applications name, at most one per core."""

    def __init__(self, store: EmrStore, *, endpoint: str, jars: Path, folder: Path) -> None:
        self._store, self._endpoint, self._jars, self._folder = store, endpoint, jars.resolve(), folder
        self._lock = threading.Lock()
        self._drivers: dict[str, list[StartedDriver]] = {}
        # Applications whose drivers cannot start; there is no further try until they are started again.
        self._failed: set[str] = set()
        self._closed = False

    def run(self) -> None:
        """Start and close drivers until `close` is called."""
        for leftover in self._folder.glob(f"{_PREFIX}*"):  # of a process that was killed
            leftover.unlink() if leftover.is_symlink() else shutil.rmtree(leftover, ignore_errors=True)
        while not self._closed:
            self.adjust()
            with self._store.changed:
                self._store.changed.wait(1)

    def adjust(self) -> None:
        """Close the drivers that no application wants. Start one that is missing, if no job runs and none is starting.

        A job has the processor for itself: a replacement would slow it down.
        """
        with self._store.changed:
            for application in self._store.applications.values():
                self._store.stop_if_idle(application)
            wanted = {item.id: _wanted(item) for item in self._store.applications.values()}
            busy = any(not run.final for run in self._store.job_runs.values())
        with self._lock:
            for id_, drivers in self._drivers.items():
                count, worker = wanted.get(id_, (0, None))
                kept = [driver for driver in drivers if driver.alive and driver.worker == worker][:count]
                if any(driver.failed for driver in drivers):
                    self._failed.add(id_)
                for driver in drivers:
                    if driver not in kept:
                        driver.close()
                self._drivers[id_] = kept
            self._failed = {id_ for id_ in self._failed if wanted.get(id_, (0, None))[0]}
            starting = any(not driver.ready for drivers in self._drivers.values() for driver in drivers)
            if busy or starting or self._closed:
                return
            for id_, (count, worker) in wanted.items():
                drivers = self._drivers.setdefault(id_, [])
                if worker is not None and len(drivers) < count and id_ not in self._failed:
                    folder = self._folder / f"{_PREFIX}{uuid.uuid4().hex[:12]}"
                    drivers.append(StartedDriver(folder, worker, endpoint=self._endpoint, jars=self._jars))
                    return

    def take(self, job_run: str, submission: Submission) -> StartedDriver | None:
        """Return a driver that waits and that can run the job, if there is one. The caller closes it."""
        application = self._store.job_runs[job_run].application
        with self._lock:
            for driver in self._drivers.get(application, []):
                if driver.ready and fits(submission, driver.worker):
                    self._drivers[application].remove(driver)
                    return driver
        return None

    def close(self) -> None:
        """Close all drivers and start no others."""
        self._closed = True
        with self._lock:
            for drivers in self._drivers.values():
                for driver in drivers:
                    driver.close()
            self._drivers = {}


def _wanted(application: Application) -> tuple[int, billing.Worker | None]:
    """Return how many drivers are to wait for jobs of an application, and their size."""
    capacity: dict[str, Any] = application.settings.get("initialCapacity", {})
    for worker_type, wanted in capacity.items():
        if worker_type.upper() == "DRIVER" and application.state == "STARTED":
            return min(wanted["workerCount"], os.cpu_count() or 1), billing.configured(wanted["workerConfiguration"])
    return 0, None
