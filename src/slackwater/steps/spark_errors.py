"""What a person reads of an error that Spark or a Python worker raised."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from slackwater import errors
from slackwater.problems import Problems

# The part of Spark's message that names a file: the whole message also has the errors of all attempts of the task.
_UNREAD_FILE = re.compile(r"\[FAILED_READ_FILE\S*\] .*?(?= SQLSTATE|$)", re.MULTILINE)


def explain(error: BaseException) -> tuple[str, str]:
    """Return the error's type and its message in one line, without Spark's stack trace.

    For an error that a step or a Python worker raised inside of Spark, return that error and not Spark's own.
    """
    error_type, message = type(error).__name__, str(error)
    if isinstance(error, Problems):
        return errors.DefinitionError.__name__, "; ".join(map(str, error.problems))
    if isinstance(error, Py4JJavaError):
        # PySpark does not convert an error that a thread of the JVM has wrapped in another one.
        causes = [error.java_exception]
        while (cause := causes[-1].getCause()) is not None:
            causes.append(cause)
        error_type, message = causes[-1].getClass().getSimpleName(), str(causes[-1].getMessage())
        # Only this one of the outer errors says more: it names the file that cannot be read.
        unread = next(filter(None, (_UNREAD_FILE.search(str(outer.getMessage())) for outer in causes[:-1])), None)
        message = f"{unread[0]} {message}" if unread else message
    if isinstance(error, (PySparkException, Py4JJavaError)):
        raised = _raised_in_query(message) or _raised_in_worker(message)
        if raised:
            return raised
        # Spark appends the JVM's stack trace of thousands of characters, in one of these two ways.
        message = message.partition("JVM stacktrace")[0].partition("\n\tat ")[0]
    return error_type, " ".join(message.split())


def _raised_in_query(message: str) -> tuple[str, str] | None:
    """Return the error that a query raised with Spark's function `raise_error`, or None."""
    _, mark, rest = message.partition("[USER_RAISED_EXCEPTION] ")
    if not mark:
        return None
    return errors.DataError.__name__, rest.partition(" SQLSTATE: ")[0].partition("\n")[0].strip()


def _raised_in_worker(message: str) -> tuple[str, str] | None:
    """Return the error of this library that a Python worker raised, or None. It is a line of the worker's traceback."""
    for line in message.splitlines():
        qualified, _, reason = line.partition(": ")
        module, _, name = qualified.rpartition(".")
        if module == errors.__name__:
            return name, reason
    return None
