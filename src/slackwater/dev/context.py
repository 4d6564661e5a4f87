"""What steps use that run in this process: Spark without its output, files, credentials, allowed connections."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Any

from slackwater.outbound.guard import Outbound
from slackwater.project.environments import settings_of_environment

if TYPE_CHECKING:
    from slackwater.dev.samples import Samples
    from slackwater.spark.standalone import StepResult
    from slackwater.steps.step import StepContext


def outbound_of_environment() -> Outbound:
    """Return the guard of connections; `outbound_allow` in SLACKWATER_SET allows some. Raises `InputError`."""
    return Outbound.of(filter(None, settings_of_environment().get("outbound_allow", "").split(",")))


def loop_context(spark: Any, samples: Samples, folder: Path | None = None) -> StepContext:
    """Return what steps may use: files and credentials of the deployed system, or else files below a folder.

    By default it is the current folder.
    """
    from slackwater.steps.io.local_folder import files_below
    from slackwater.steps.step import StepContext

    if deployed := samples.deployed:
        return StepContext(spark=spark, files=deployed.files, secrets=deployed.secrets, outbound=deployed.outbound)
    return StepContext(spark=spark, files=files_below(folder or Path.cwd()), outbound=outbound_of_environment())


def run_one_step(name: str, tables: Any, parameters: Mapping[str, Any]) -> StepResult:
    """Run one step in a local Spark session without its output, and return its rows and what it did.

    `tables` is what `slackwater.steps.run` accepts, and its errors are raised. Files are below the current folder.
    """
    with silent_spark():
        from slackwater.spark.standalone import run_step

        return run_step(name, tables, parameters)


@contextmanager
def silent_spark() -> Iterator[None]:
    """Hide what Spark writes: its JVM keeps the standard output and error of the process that starts it."""
    with Path(os.devnull).open("w") as nothing:
        sys.stdout.flush()
        sys.stderr.flush()
        saved = [(number, os.dup(number)) for number in (1, 2)]
        for number, _ in saved:
            os.dup2(nothing.fileno(), number)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in saved:
                os.dup2(copy, number)
                os.close(copy)


@contextmanager
def interruptible_spark() -> Iterator[tuple[Any, Callable[[], None]]]:
    """Start Spark without its output; yield the session, and a function that raises `KeyboardInterrupt` after Ctrl-C.

    The first Ctrl-C cancels Spark's jobs and is only noted, because py4j would print and drop the exception. A second
    one raises it at once. The session ends with the block. Raises `InputError` without Java.
    """
    spark: Any = None
    noted = False
    cancelling: list[Thread] = []

    def note(_number: int, _frame: FrameType | None) -> None:
        nonlocal noted
        if noted and spark:
            raise KeyboardInterrupt
        noted = True
        if spark:
            # In another thread, because this one may be waiting for an answer of py4j.
            cancelling.append(Thread(target=spark.sparkContext.cancelAllJobs, daemon=True))
            cancelling[-1].start()

    def check() -> None:
        if noted:
            raise KeyboardInterrupt

    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT))
        # An exception while the JVM starts would leave the JVM behind.
        signal.signal(signal.SIGINT, note)
        with silent_spark():
            from slackwater.spark.standalone import loop_session

            spark = stack.enter_context(loop_session())
        # PySpark has set a handler of its own.
        signal.signal(signal.SIGINT, note)
        try:
            yield spark, check
        finally:
            for thread in cancelling:  # before the session ends
                thread.join()
