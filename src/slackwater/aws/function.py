"""What all Lambda functions have in common: settings from environment variables, and the id of their log lines."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


class FunctionEnvironment(BaseModel):
    """Base of a function's settings: each field is the environment variable of its name in upper case."""

    model_config = ConfigDict(alias_generator=str.upper, frozen=True)

    @classmethod
    def read(cls) -> Self:
        """Read the settings. Raises `pydantic.ValidationError` when a variable is missing."""
        return cls.model_validate(dict(os.environ))


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
