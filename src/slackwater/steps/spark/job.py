"""What every Spark job does around its work: a session, one-line JSON logs, an exit code."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from slackwater import errors

_LOG = logging.getLogger("slackwater.job")


def run_job(
    name: str, work: Callable[[SparkSession], Any], *, context: dict[str, str], tell: Callable[[str], None]
) -> int:
    """Start Spark, do `work`, stop Spark; return the process's exit code.

    Every line logged to standard output carries `context`. A failure leaves `ErrorType: message` as the job's last
    line on standard error, and is told whole: of that line EMR hands on 256 characters.
    """
    _log_json({"job": name, **context})
    try:
        spark = _session(name)
        try:
            started = _seconds_since_start(spark)
            _LOG.info("spark started", extra={"fields": {"start_seconds": started}})
            before = time.monotonic()
            work(spark)
            _LOG.info("done", extra={"fields": {"work_seconds": round(time.monotonic() - before, 3)}})
        finally:
            spark.stop()
    except Exception as error:  # noqa: BLE001 - the edge of the process: every failure becomes its exit code
        kind, message = explain(error)
        _LOG.error("failed", exc_info=error, extra={"fields": {"error": kind, "reason": message}})
        _tell(tell, f"{kind}: {message}")
        sys.stderr.write(f"{kind}: {message}\n")
        return 1
    return 0


def _tell(tell: Callable[[str], None], failure: str) -> None:
    try:
        tell(failure)
    except errors.SlackwaterError as error:
        _LOG.warning("the failure could not be told", extra={"fields": {"reason": str(error)}})


def log(message: str, **fields: Any) -> None:
    """Log one line with fields."""
    _LOG.info(message, extra={"fields": fields})


def explain(error: BaseException) -> tuple[str, str]:
    """Return the error's name and message on one line, without Spark's stack around what a step or a worker raised."""
    text = str(error)
    if isinstance(error, PySparkException):
        raised = _raised_in_query(text) or _raised_in_worker(text)
        if raised:
            return raised
        text = text.partition("JVM stacktrace")[0].partition("\n\tat ")[0]
    return type(error).__name__, " ".join(text.split())


def _raised_in_query(text: str) -> tuple[str, str] | None:
    """Find what a step raised with `raise_error`."""
    _, mark, rest = text.partition("[USER_RAISED_EXCEPTION] ")
    if not mark:
        return None
    return errors.DataError.__name__, rest.partition(" SQLSTATE: ")[0].partition("\n")[0].strip()


def _raised_in_worker(text: str) -> tuple[str, str] | None:
    """Find what this library raised in a Python worker: the last line of its traceback."""
    for line in text.splitlines():
        kind, _, message = line.partition(": ")
        module, _, name = kind.rpartition(".")
        if module == errors.__name__:
            return name, message
    return None


def _session(name: str) -> SparkSession:
    """Settings here are those on which results depend; all others belong to whoever submits the job."""
    return (
        SparkSession.builder.appName(f"slackwater {name}")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        .getOrCreate()
    )


def _seconds_since_start(spark: SparkSession) -> float:
    jvm: Any = spark._jvm
    started: int = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getStartTime()
    return round(time.time() - started / 1000, 3)


class _OneLine(logging.Formatter):
    def __init__(self, context: dict[str, str]) -> None:
        super().__init__()
        self._context = context

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "timestamp": datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "message": record.getMessage(),
            **self._context,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _log_json(context: dict[str, str]) -> None:
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_OneLine(context))
    _LOG.handlers = [handler]
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False
