"""What a user writes about one partner feed: `sources/<name>.yaml`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
"""A source's, pipeline's, step's or column's name: lower case, digits and underscores, as Glue and SQL like it."""


def _zone(value: str) -> str:
    if value not in available_timezones():
        raise ValueError(f"no such time zone: {value!r} (use an IANA name such as America/New_York)")
    return value


TimeZone = Annotated[str, AfterValidator(_zone)]


class Model(BaseModel):
    """Base of all definitions: a wrong key is an error, and a definition never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FieldType(StrEnum):
    """Types of event fields, by the names that Arrow gives them."""

    STRING = "string"
    INT64 = "int64"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    DATE = "date"


class FieldDefinition(Model):
    """One field of an event."""

    type: FieldType
    required: bool = False


def _shorthand(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


class Timestamp(Model):
    """Where an event says when it happened: ISO 8601 with an offset, or naive in `timezone`."""

    field: Name
    timezone: TimeZone | None = None


class Push(Model):
    """Partners POST events to the API."""

    max_events: Annotated[int, Field(gt=0)] = 10_000


class Pull(Model):
    """Files are fetched from a partner's server, over a rolling look-back window."""

    url: Annotated[str, StringConstraints(pattern=r"^https?://")]
    """Answers with the JSON listing; a file's address is this, a slash and the file's name."""
    files: Annotated[str, StringConstraints(pattern=r"\{date\}")]
    """Names of the wanted files, `{date}` standing for the date (YYYY-MM-DD) that a file belongs to."""
    format: Literal["csv"] = "csv"
    lookback_days: Annotated[int, Field(gt=0, le=366)] = 7
    timezone: TimeZone = "UTC"
    """Whose calendar `{date}` and "today" are of."""


class Source(Model):
    """A partner feed: the shape of its events and the way they come."""

    source: Name
    description: str = ""
    timestamp: Timestamp
    fields: dict[Name, Annotated[FieldDefinition, BeforeValidator(_shorthand)]]
    null_values: tuple[str, ...] = ("",)
    """Texts that mean "no value", in CSV cells and in string fields of events alike."""
    push: Push | None = None
    pull: Pull | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Source:
        if self.push is None and self.pull is None:
            raise ValueError("a source needs `push` or `pull`: say how its data comes")
        declared = self.fields.get(self.timestamp.field)
        if declared is None or declared.type is not FieldType.TIMESTAMP:
            raise ValueError(f"timestamp.field {self.timestamp.field!r} must stand in `fields` with type timestamp")
        return self

    @property
    def zone(self) -> ZoneInfo | None:
        """The zone of naive timestamps, if the source allows them."""
        return ZoneInfo(self.timestamp.timezone) if self.timestamp.timezone else None
