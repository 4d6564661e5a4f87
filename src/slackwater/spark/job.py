"""What every Spark job does around its work: a session, logs as one-line JSON, an exit code."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import socketserver
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pyspark.sql import SparkSession

from slackwater import errors
from slackwater.steps.spark_errors import explain

RESULT_SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}
"""The settings of a session that change results."""

_LOG = logging.getLogger("slackwater.job")
_Argument = TypeVar("_Argument", bound=BaseModel)


def run_job(
    name: str,
    work: Callable[[SparkSession], Any],
    *,
    context: dict[str, str],
    report_failure: Callable[[str], None],
) -> int:
    """Start Spark, call `work`, stop Spark, and return the exit code of the process: 0, or 1 after an error.

    Every line that is logged to standard output contains `context`, and the name of the Spark application its
    `correlation_id`. After an error, `report_failure` is called with the
    line `ErrorType: message`, which is also the last line on standard error: EMR passes on only 256 characters of it.
    """
    # A manifest may list 86,400 objects: with the default of 700, the garbage collector takes half of the time to read
    # it.
    gc.set_threshold(100_000, 20, 20)
    # `spark.stop` waits until PySpark's server of accumulators has looked for its end, each half second by default.
    socketserver.BaseServer.serve_forever.__defaults__ = (0.05,)
    _log_as_json({"job": name, **context})
    application = " ".join(filter(None, ("slackwater", name, context.get("correlation_id"))))
    try:
        # Only settings that change results are made here. All others, such as memory and catalogs, are made where the
        # job is submitted.
        spark = SparkSession.builder.appName(application).config(map={**RESULT_SETTINGS}).getOrCreate()
        try:
            log("spark started", start_seconds=_seconds_since_start(spark))
            began = time.monotonic()
            work(spark)
            log("done", work_seconds=round(time.monotonic() - began, 3))
        finally:
            spark.stop()
    except Exception as error:  # noqa: BLE001 - the outermost function: every error becomes the exit code
        error_type, message = explain(error)
        _LOG.error("failed", exc_info=error, extra={"fields": {"error": error_type, "reason": message}})
        try:
            report_failure(f"{error_type}: {message}")
        except errors.SlackwaterError as unreported:
            # The job's own error is the one that matters; the run table then gets the shorter message from EMR.
            _LOG.warning("the failure could not be reported", extra={"fields": {"reason": str(unreported)}})
        sys.stderr.write(f"{error_type}: {message}\n")
        return 1
    return 0


def json_argument(model: type[_Argument]) -> Callable[[str], _Argument]:
    """Return a function that parses a command line argument as JSON of `model`, for argparse's `type`.

    For a malformed value argparse prints every fault with its field, and exits with 2.
    """

    def parse(value: str) -> _Argument:
        try:
            return model.model_validate_json(value)
        except ValidationError as error:
            faults = [f"{'.'.join(map(str, fault['loc'])) or 'the value'}: {fault['msg']}" for fault in error.errors()]
            raise argparse.ArgumentTypeError(f"not a {model.__name__} as JSON: {'; '.join(faults)}") from error

    return parse


def log(message: str, **fields: Any) -> None:
    """Log one line with fields."""
    _LOG.info(message, extra={"fields": fields})


def _seconds_since_start(spark: SparkSession) -> float:
    """Return the seconds since the driver's JVM started."""
    jvm: Any = spark._jvm
    started: int = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getStartTime()
    return round(time.time() - started / 1000, 3)


class _JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: the context of the job, and the record's own `fields`."""

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


def _log_as_json(context: dict[str, str]) -> None:
    """Send the job's log to standard output as JSON, one line for each record."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_JsonFormatter(context))
    # Spark's own loggers write to standard error; standard output carries these lines only.
    _LOG.handlers = [handler]
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False
