"""Read back what `slackwater.receiver.writing.rejects` has written under `sideline/`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slackwater.errors import DataError

UNKNOWN = "unknown"
"""The rule of a stored event without a rule."""


class StoredReject(BaseModel):
    """A rejected event, as `to_jsonl` stores it.

    Another release may have written it, so more fields and unknown rules are accepted.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    index: Annotated[int, Field(ge=0)]
    line: int | None = None
    reason: str
    rule: str = UNKNOWN
    batch_id: str
    origin: str
    text: str
    rows: int = 1
    """More than 1 in the last example of a file that was rejected as a whole: itself and all later rows."""


def read_rejects(uri: str, body: bytes) -> Iterator[StoredReject]:
    """Yield the rejected events of the object at `uri`, in order of index. Raises `DataError` for another format."""
    for number, line in enumerate(body.splitlines(), start=1):
        try:
            yield StoredReject.model_validate_json(line)
        except ValidationError as error:
            message = error.errors()[0]["msg"]
            raise DataError(f"{uri}: line {number} is not a rejected event: {message}") from error
