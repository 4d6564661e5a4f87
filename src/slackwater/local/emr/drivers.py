"""Drivers: a JVM with Spark that waits for the Python program of a job, and after it for the next one.

They are kept between jobs, because a JVM that has run a job runs the next one in a third of the processor time. A job
that needs another JVM gets one of its own. A driver has the credentials, archives, properties and arguments of its
present job only: `job_program.py` removes those of the job before.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, cast

from slackwater.local import layout
from slackwater.local.emr import billing, spark
from slackwater.local.emr.store import EmrStore
from slackwater.local.emr.submit import DRIVER_ENVIRONMENT, Submission
from slackwater.local.fork_server import ForkServers, Process

_PREFIX = "driver-"
INPUT_BYTES = "spark.slackwater.inputBytes"
"""The property of a job with the size of its input."""
# From this size of the input on, the JVM's second compiler saves more than its threads and a cold start cost.
_LARGE_BYTES = 128 * 1024 * 1024
# No job for so long: the driver is closed, because it holds 600 to 900 MB.
_IDLE_SECONDS = 180
# Properties that the JVM reads when it starts, or that `spark-submit` reads and a started one has read already.
_READ_AT_START = (
    *("spark.jars", "spark.files", "spark.submit.", "spark.hadoop.", "spark.driver.defaultJavaOptions"),
    *("spark.driver.extra", "spark.driver.userClassPathFirst"),
)
# Variables of the driver that only its Python reads. The JVM of a driver that runs cannot get others.
_PYTHON_VARIABLES = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
# A JVM that waits for a job has the region that all jobs of a deployment set.
_REGION = {"AWS_REGION": layout.REGION}
_PYTHONS = (
    *(f"{DRIVER_ENVIRONMENT}{name}" for name in _PYTHON_VARIABLES[1:]),
    *("spark.pyspark.python", "spark.pyspark.driver.python"),
)


class Size(NamedTuple):
    """The size of a driver."""

    worker: billing.Worker
    executors_mb: int = 0
    """Memory of the executors that it replaces, for a job with much input; 0 for all others, which need none of it.

    A driver for much input compiles its code for a long life, and one for little input for a short one.
    """

    @property
    def heap_mb(self) -> int:
        """The heap of its JVM."""
        return billing.largest_heap_mb(self.worker) + self.executors_mb


def size_of(submission: Submission) -> Size:
    """Return the size of the driver that a job needs."""
    workers, input_bytes = billing.read_workers(submission.conf), submission.conf.get(INPUT_BYTES, "")
    if not input_bytes.isdecimal() or int(input_bytes) < _LARGE_BYTES:
        return Size(workers.driver)
    return Size(workers.driver, workers.executors * billing.largest_heap_mb(workers.executor))


def fits(submission: Submission, size: Size) -> bool:
    """Return whether a driver of this size, and this Python, can run a job.

    All other jobs need a driver of their own.
    """
    conf, needed = submission.conf, size_of(submission)
    return (
        all(size <= started for size, started in zip(needed.worker, size.worker, strict=True))
        and needed.executors_mb == size.executors_mb
        and not any(key.startswith(_READ_AT_START) for key in conf)
        and submission.driver_environment.get("AWS_REGION", layout.REGION) == layout.REGION
        and set(submission.driver_environment) <= {*_PYTHON_VARIABLES, *_REGION}
        and all(conf.get(key, sys.executable) == sys.executable for key in _PYTHONS)
    )


class Driver:
    """A JVM that runs one program at a time."""

    def __init__(self, folder: Path, size: Size, *, image: spark.Image, forks: ForkServers | None) -> None:
        self.size, self.idle_since = size, time.monotonic()
        self.work = folder / "work"
        """The working directory of the JVM and its programs."""
        self.log = folder / "stderr"
        """What the JVM has logged in this job."""
        self._temporary = folder / "tmp"
        self._folder, self._image, self._forks = folder, image, forks
        self._jvm = spark.start_driver(
            folder,
            ["--conf", f"spark.driver.memory={size.heap_mb}m", "pyspark-shell"],
            image=image,
            is_large=size.executors_mb > 0,
            environment={**_REGION, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / "connection")},
        )

    @property
    def alive(self) -> bool:
        """Whether its JVM runs."""
        return self._jvm.poll() is None

    def start(
        self, folder: Path, command: Sequence[str], *, conf: Mapping[str, str], environment: Mapping[str, str]
    ) -> Process:
        """Start the program of a job, whose folder is `folder`."""
        os.truncate(self.log, 0)
        return spark.start_program(
            folder,
            command,
            connection=self._folder / "connection",
            work=self.work,
            image=self._image,
            conf=conf,
            environment=environment,
            forks=self._forks,
        )

    def clear(self) -> None:
        """Remove what a job has left in the working directory and among the temporary files of the JVM."""
        # The JVM uses its own temporary folders again. Libraries that it has loaded need their files no more.
        own = [path for path in self._temporary.iterdir() if path.is_dir()]
        left = [path for folder in (self.work, self._temporary, *own) for path in folder.iterdir() if path not in own]
        for path in left:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self.idle_since = time.monotonic()

    def close(self) -> None:
        """Kill it if it still runs, and remove its folder."""
        cast("IO[bytes]", self._jvm.stdin).close()
        self._jvm.wait()
        # If the guard itself was killed, what it has started still runs. All are one process group.
        with suppress(ProcessLookupError):
            os.killpg(self._jvm.pid, signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)


class Drivers:
    """The drivers of the started applications: at most one per core waits for the jobs of an application."""

    def __init__(self, store: EmrStore, *, image: spark.Image, folder: Path, forks: ForkServers | None = None) -> None:
        """With `forks`, the programs of jobs are forked."""
        self._store, self._image, self._folder, self._forks = store, image, folder, forks
        self._lock = threading.Lock()
        # Those that wait for a job, by application; the one that has waited for the longest time first.
        self._waiting: dict[str, list[Driver]] = {}
        self._closed = False

    def run(self) -> None:
        """Close the drivers that nobody needs, again and again until `close` is called."""
        for leftover in self._folder.glob(f"{_PREFIX}*"):  # of a process that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        while not self._closed:
            self.close_unneeded()
            with self._store.changed:
                self._store.changed.wait(1)

    def close_unneeded(self) -> None:
        """Close the drivers that have ended, that had no job for a while, or whose application is not started."""
        with self._store.changed:
            for application in self._store.applications.values():
                self._store.stop_if_idle(application)
            started = {item.id for item in self._store.applications.values() if item.state == "STARTED"}
        recent = time.monotonic() - _IDLE_SECONDS
        with self._lock:
            for id_, drivers in self._waiting.items():
                for driver in list(drivers):
                    if id_ not in started or not driver.alive or driver.idle_since < recent:
                        driver.close()
                        drivers.remove(driver)

    def take(self, job_run: str, submission: Submission) -> Driver | None:
        """Return a driver for a job: one that waits, or a new one. Return None for a job that needs a JVM of its own.

        The caller gives it back or closes it.
        """
        application = self._store.job_runs[job_run].application
        with self._lock:
            for driver in reversed(self._waiting.get(application, [])):
                if driver.alive and fits(submission, driver.size):
                    self._waiting[application].remove(driver)
                    return driver
        size = size_of(submission)
        return self._start(size) if fits(submission, size) else None

    def give_back(self, job_run: str, driver: Driver) -> None:
        """Keep the driver of a job that has ended for the next job."""
        driver.clear()
        application = self._store.job_runs[job_run].application
        with self._lock:
            drivers = self._waiting.setdefault(application, [])
            drivers.append(driver)
            while len(drivers) > (os.cpu_count() or 1) or (self._closed and drivers):
                drivers.pop(0).close()

    def close(self) -> None:
        """Close all drivers and start no others."""
        self._closed = True
        with self._lock:
            for drivers in self._waiting.values():
                for driver in drivers:
                    driver.close()
            self._waiting = {}

    def _start(self, size: Size) -> Driver:
        folder = self._folder / f"{_PREFIX}{uuid.uuid4().hex[:12]}"
        return Driver(folder, size, image=self._image, forks=self._forks)
