"""The latest message about a new definition of a pipeline."""

from __future__ import annotations

from datetime import datetime

from slackwater.model import UpdatedRecord


class DefinitionNotice(UpdatedRecord):
    """The message that a new definition would change published days. `version` counts the writes, as in `DayRecord`."""

    pipeline: str
    version: int = 0
    digest: str = ""
    """Of the definition; empty if the message was refused, or none was sent."""
    execution: str = ""
    """ARN of the Step Functions execution that sends the message."""
    call: str = ""
    """Unique for each message."""
    since: datetime | None = None
    """UTC."""
    is_settled: bool = False
    """Whether the message was sent, refused, or may have been sent; until then, the execution is about to send it."""
