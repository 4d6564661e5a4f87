"""What ended a driver, in one line, found in its logs."""

from __future__ import annotations

import re
from pathlib import Path

_LOGGED = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d [A-Z]+ |WARNING: ")
_RAISED = re.compile(r"(Exception in thread \S+ |Caused by: )?([a-z_]\w*\.)*[A-Z]\w*[a-z]\w*: .+")
_TRACEBACK = "Traceback (most recent call last):"
_TAIL_BYTES = 64 * 1024


def last_error(stdout: Path, stderr: Path) -> str:
    """Return the error that ended a driver.

    spark-submit sends a Python driver's standard error to its standard output, so that is looked at first: its last
    line if it reads `ErrorType: message`, else what its last traceback raised, else the last such line; then the same
    in what the JVM said; then the last line that anything said.
    """
    logs = [_tail(stdout), _tail(stderr)]
    for lines in logs:
        if lines and _RAISED.fullmatch(lines[-1]):
            return lines[-1]
        if found := _raised(lines):
            return found
    said = [lines[-1] for lines in logs if lines]
    return said[0] if said else "the driver said nothing"


def _raised(lines: list[str]) -> str | None:
    """Return what the last traceback raised, or else the last line that reads like an error."""
    starts = [number for number, line in enumerate(lines) if line.strip() == _TRACEBACK]
    if starts:
        after = [line for line in lines[starts[-1] + 1 :] if not line.startswith(" ")]
        if after:
            # Spark's errors from the JVM go on in the next line, after a colon.
            return " ".join([after[0], *(line for line in after[1:2] if line.startswith(":"))])
    return next((line for line in reversed(lines) if _RAISED.fullmatch(line)), None)


def _tail(log: Path) -> list[str]:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        lines = [line.rstrip() for line in file.read().decode("utf-8", "replace").splitlines()]
    return [line for line in lines if line and not _LOGGED.match(line)]
