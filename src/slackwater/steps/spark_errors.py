"""What a person reads of an error that Spark or a Python worker raised."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import QueryContextType
from pyspark.logger import PySparkLogger

from slackwater import errors
from slackwater.problems import Problem, Problems, sql_position

# The part of Spark's message that names a file: the whole message also has the errors of all attempts of the task.
_UNREAD_FILE = re.compile(r"\[FAILED_READ_FILE\S*\] .*?(?= SQLSTATE|$)", re.MULTILINE)

# What Spark writes before and after the sentences that help: its code, and position, query, plan and stack trace.
_CODE = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ")
_REST = re.compile(r" SQLSTATE: |JVM stacktrace|\s+at [\w.$]+\(|\n== |;? \(?line \d+,? pos \d+|;\n")
_SETTINGS = re.compile(
    r" (?:If necessary,? s|S)et \"spark\.[^.]*(?:\.\w[^.]*)*\.(?= |$)|You may get a different[^.]*\."
)
_UNPARSED = re.compile(r" \(line (\d+), pos (\d+)\)")


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
        message = _plain(message)
    return error_type, " ".join(message.split())


def silence_query_logger() -> None:
    """Keep PySpark from writing each error in a query to standard error as JSON, with the stack traces of the JVM."""
    for kind in ("SQL", "DataFrame"):
        PySparkLogger.getLogger(f"{kind}QueryContextLogger").setLevel(logging.CRITICAL)


@contextmanager
def located_in(steps: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Raise `Problems` for an error of Spark inside the `with` block that is in the SQL of one of the steps.

    `steps` are their parameters by name. Any other error is raised as it is.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        start, fragment = _fragment(error)
        found = [
            (name, field, text)
            for name, parameters in steps.items()
            for field, text in parameters.items()
            if isinstance(text, str) and fragment and fragment in text
        ]
        found = [one for one in found if one[2].startswith(fragment, start)] or found
        if len(found) != 1:
            raise
        ((name, field, text),) = found
        raise Problems(sql_problem(error, text, path=("steps", name, "with", field))) from error


def sql_problem(
    error: PySparkException | Py4JJavaError, sql: str, *, path: tuple[str, ...], offset: int = 0
) -> Problem:
    """Return the problem of SQL that Spark refuses; `path` is that of the SQL in the definition.

    `offset` is where `sql` begins in the query that Spark has parsed.
    """
    start, fragment = _fragment(error)
    index = start - offset
    if fragment and not sql.startswith(fragment, max(index, 0)):
        index = sql.find(fragment)
    position = sql_position(index, sql) if fragment and 0 <= index < len(sql) else None
    # Of SQL that it cannot parse, Spark states the position only in its message.
    unparsed = _UNPARSED.search(str(error)) if not fragment and not offset else None
    if unparsed:
        position = int(unparsed[1]), int(unparsed[2]) + 1
    return Problem(message=explain(error)[1], path=path, position=position)


def _fragment(error: PySparkException | Py4JJavaError) -> tuple[int, str]:
    """Return the part of a query that an error is about, and the index at which it begins; empty if it is not known."""
    contexts: list[Any] = []
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause is not None and not contexts:
            with suppress(Py4JError):  # an error of Java itself has none
                contexts = list(cause.getQueryContext())
            cause = cause.getCause()
        is_sql = bool(contexts) and str(contexts[0].contextType()) == "SQL"
    else:
        contexts = list(error.getQueryContext() or ())
        is_sql = bool(contexts) and contexts[0].contextType() == QueryContextType.SQL
    return (contexts[0].startIndex(), contexts[0].fragment()) if is_sql else (0, "")


def _plain(message: str) -> str:
    """Return the sentences of Spark's message that help a person."""
    return _SETTINGS.sub("", _CODE.sub("", _REST.split(message.strip(), maxsplit=1)[0])).strip()


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
