"""What a user writes about one partner feed: `sources/<name>.yaml`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import Field, model_validator

from slackwater.model import Model, Name
from slackwater.sources.enrichment import DatePartColumn, DerivedColumn
from slackwater.sources.fields import Fields, FieldType
from slackwater.sources.late_thresholds import ANY_LATE_DATA, LateThresholds
from slackwater.sources.pull_config import PullConfig
from slackwater.sources.timestamps import EventTimestamp

GENERATED_ID = "_event_id"
"""The column of ids that the receiver makes itself."""
_IDS = frozenset({FieldType.STRING, FieldType.INT64})


class UnknownFields(StrEnum):
    """What becomes of fields that no definition names."""

    KEEP = "keep"
    """They stand as JSON in the column `_extra`."""
    IGNORE = "ignore"
    REJECT = "reject"
    """An event that has one is rejected."""


class PushConfig(Model):
    """Partners POST events to the API."""

    max_events: Annotated[int, Field(gt=0, le=10_000)] = 10_000
    buffer: Literal["none", "queue"] = "none"
    """`queue`, for partners that cannot batch: small bodies are answered once a queue has them, and stored together."""


class Source(Model):
    """A partner feed: the shape of its events and the way they come."""

    source: Name
    description: str = ""
    timestamp: EventTimestamp
    event_id: Name | None = None
    """The field that tells one event from another within its hour: a second one of the same id does not count."""
    fields: Fields
    trim: bool = False
    """Take the blanks off both ends of every text, before anything else."""
    null_values: tuple[str, ...] = ("",)
    """Texts that mean "no value", in CSV cells and in string fields of events alike."""
    unknown_fields: UnknownFields = UnknownFields.KEEP
    enrich: dict[Name, DerivedColumn] = Field(default_factory=dict)
    """Columns that the receiver adds to an event's own."""
    push: PushConfig | None = None
    pull: PullConfig | None = None
    late: LateThresholds = ANY_LATE_DATA
    silent_hours: Annotated[int, Field(gt=0)] = 48
    """After so long without new data, the partner is silent and an alarm rings."""

    @model_validator(mode="after")
    def _is_whole(self) -> Source:
        if self.push is None and self.pull is None:
            raise ValueError("a source needs `push` or `pull`: say how its data comes")
        declared = self.fields.get(self.timestamp.field)
        if declared is None or declared.type is not FieldType.TIMESTAMP:
            raise ValueError(f"timestamp.field {self.timestamp.field!r} must stand in `fields` with type timestamp")
        if self.event_id and (self.event_id not in self.fields or self.fields[self.event_id].type not in _IDS):
            raise ValueError(f"event_id {self.event_id!r} must stand in `fields` with type string or int64")
        return self

    @model_validator(mode="after")
    def _has_no_name_twice(self) -> Source:
        origins = [field.origin or name for name, field in self.fields.items()]
        twice = sorted({origin for origin in origins if origins.count(origin) > 1})
        if twice:
            raise ValueError(f"fields: two are read from {twice[0]!r}")
        return self

    @model_validator(mode="after")
    def _derives_from_what_is_there(self) -> Source:
        for name, derived in self.enrich.items():
            if name in self.fields:
                raise ValueError(f"enrich.{name}: a field has this name already")
            missing = sorted(derived.reads - set(self.fields))
            if missing:
                raise ValueError(f"enrich.{name}: no field {missing[0]!r} (there are: {', '.join(self.fields)})")
            kinds = {self.fields[read].type for read in derived.reads}
            if isinstance(derived, DatePartColumn) and not kinds <= {FieldType.TIMESTAMP}:
                raise ValueError(f"enrich.{name}: {derived.of!r} is no timestamp")
        return self

    @property
    def zone(self) -> ZoneInfo | None:
        """The zone of naive timestamps, if the source allows them."""
        return ZoneInfo(self.timestamp.timezone) if self.timestamp.timezone else None

    @property
    def columns(self) -> dict[str, FieldType]:
        """Names and types of what an event has: its fields, then what is derived from them."""
        own = {name: field.type for name, field in self.fields.items()}
        return own | {name: derived.type for name, derived in self.enrich.items()}

    @property
    def needed(self) -> frozenset[str]:
        """The fields without which an event is of no use."""
        required = {name for name, field in self.fields.items() if field.required}
        return frozenset(required | {self.timestamp.field} | ({self.event_id} if self.event_id else set()))

    @property
    def id_column(self) -> str | None:
        """The column by whose value an event counts once in its hour; None where every stored event counts.

        What a queue hands over twice can only be told by an id, so the receiver makes one where the partner has none.
        """
        if self.event_id:
            return self.event_id
        return GENERATED_ID if self.push and self.push.buffer == "queue" else None
