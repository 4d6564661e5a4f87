"""Ctrl-C while this process starts Spark and waits for it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Thread
from types import FrameType
from typing import Any

from slackwater.cli.silence import silent_spark


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
