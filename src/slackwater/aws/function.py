"""What all Lambda functions have in common: the id of their log lines, and work whose errors are only logged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from aws_lambda_powertools import Logger

from slackwater.errors import SlackwaterError

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


def warn(message: str, **fields: object) -> None:
    """Log a warning with these fields, under the correlation id of the invocation."""
    Logger().warning(message, extra=fields)  # it shares the handler of the function's own logger


@contextmanager
def best_effort(message: str, **fields: object) -> Iterator[None]:
    """Run the block. A `SlackwaterError` in it is only logged, as `message` with its reason: nothing depends on it."""
    try:
        yield
    except SlackwaterError as error:
        warn(message, reason=str(error), **fields)


def with_correlation_id(logger: Logger) -> Callable[[Handler], Handler]:
    """Return a decorator for the handler of a function that a state machine calls.

    Every line that the handler logs has the correlation id of its event, or of the run in its event, and the pipeline
    and the date, if the event has them: all days that one client runs have the same id. An error that it raises is
    logged with them as well: Lambda's own line about it has none.
    """

    def decorate(handler: Handler) -> Handler:
        @wraps(handler)
        def handle(event: dict[str, Any], context: Any) -> dict[str, Any]:
            # Read before the event is validated, so that the line about a wrong event has it too.
            run = event.get("run")
            subject = run if isinstance(run, dict) else event
            logger.set_correlation_id(str(subject.get("correlation_id", "")))
            # None removes the key of the event before.
            logger.append_keys(pipeline=subject.get("pipeline"), date=subject.get("date"))
            try:
                return handler(event, context)
            except Exception:
                logger.exception("failed")
                raise

        return handle

    return decorate
