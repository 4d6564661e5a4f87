"""Spark in this process: its output is hidden, and Ctrl-C ends it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any


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
def interruptible_spark(start: Callable[[ExitStack], Any]) -> Iterator[tuple[Any, Callable[[], None]]]:
    """Start Spark without its output; yield the session, and a function that raises `KeyboardInterrupt` after Ctrl-C.

    `start` returns the session and registers its end. The first Ctrl-C cancels Spark's jobs and is only noted, because
    py4j would print and drop the exception. A second one raises it at once.
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
            spark = start(stack)
        # PySpark has set a handler of its own.
        signal.signal(signal.SIGINT, note)
        try:
            yield spark, check
        finally:
            for thread in cancelling:  # before the session ends
                thread.join()
