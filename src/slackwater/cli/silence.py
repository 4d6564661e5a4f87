"""Keep what Spark writes from the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
