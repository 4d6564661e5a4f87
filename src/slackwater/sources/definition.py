"""The definition of one partner feed: what a user writes in `sources/<name>.yaml`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from slackwater.errors import DefinitionError
from slackwater.model import Model, Name, TimeZone
from slackwater.problems import Path, Problem, Problems, unknown_name
from slackwater.sources.counts import ALL, Counts, has_whole_hours
from slackwater.sources.fields import (
    ConstantColumn,
    DatePartColumn,
    DerivedColumn,
    FieldDefinition,
    Fields,
    FieldType,
    LookupColumn,
    TemplateColumn,
)
from slackwater.sources.late_thresholds import ANY_LATE_DATA, LateThresholds
from slackwater.sources.pull_config import PullConfig

# The column with the ids that the receiver generates.
GENERATED_ID = "_event_id"
# Types of an event id. A double may be rounded, and a timestamp can be written in several ways.
_ID_TYPES = frozenset({FieldType.STRING, FieldType.INT64})


SHORTEST_BUFFER, LONGEST_BUFFER = 5, 60
"""Seconds of `push.buffer_seconds`. The mapping between the queue and the function that stores its events always
collects messages for the shortest time."""
# No limit is longer than 100 years, so that an instant minus or plus a limit is always a valid date.
_MAX_AGE_DAYS, _MAX_FUTURE_HOURS = 36_500, 876_000
# Keys that former releases do not know.
_NEW_KEYS = frozenset({"counts", "pack"})


class EventTimestamp(Model):
    """The field that says when an event happened, and how far that may be from the time it was received."""

    field: Name
    timezone: TimeZone | None = None
    """Timezone of timestamps without an offset. If none is set, such timestamps are rejected."""
    max_age_days: Annotated[int, Field(gt=0, le=_MAX_AGE_DAYS)] | None = None
    """Older events are rejected. If not set, events of any age are accepted."""
    max_future_hours: Annotated[int, Field(ge=0, le=_MAX_FUTURE_HOURS)] | None = None
    """Events with a later timestamp are rejected. If not set, any later timestamp is accepted."""


class UnknownFields(StrEnum):
    """What the receiver does with fields that the definition does not list."""

    KEEP = "keep"
    """Store them as JSON in the column `_extra`."""
    IGNORE = "ignore"
    """Drop them."""
    REJECT = "reject"
    """Reject the event."""


class PushConfig(Model):
    """Partners send events to the API with POST."""

    max_events: Annotated[int, Field(gt=0, le=10_000)] = 10_000
    """Largest number of events in one batch."""
    buffer: Literal["none", "queue"] = "none"
    """`queue` is for partners that send one event per request: the API answers when a queue has the request body, and
    the events of many requests are stored together."""
    buffer_seconds: Annotated[int, Field(ge=SHORTEST_BUFFER, le=LONGEST_BUFFER)] = SHORTEST_BUFFER
    """The events of so many seconds are stored together with `buffer: queue`. More seconds make fewer and larger
    objects, and events reach their partitions later."""

    @model_validator(mode="after")
    def _check_buffer(self) -> PushConfig:
        if self.buffer == "none" and self.buffer_seconds != SHORTEST_BUFFER:
            message = "only a queue collects events: add `buffer: queue`, or remove `buffer_seconds`"
            raise Problems(Problem(path=("buffer_seconds",), message=message))
        return self

    @model_serializer(mode="wrap")
    def _without_new_keys(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # For functions of the release before, as in `Source`.
        return {
            key: value for key, value in serialize(self).items() if key != "buffer_seconds" or value != SHORTEST_BUFFER
        }


class PackConfig(Model):
    """The small objects of an hour are written again as one."""

    max_objects: Annotated[int, Field(ge=1, le=100_000)]
    """When an hour has ended, its small objects are packed if there are more of them. While a pipeline publishes the
    open period (`live`), also before: each minute, the objects that have come since."""


class Source(Model):
    """A partner feed: the fields of its events and how the events arrive."""

    source: Name
    """Name of the source; the file has the same name."""
    # Glue allows 2,048 characters in the description of a table.
    description: Annotated[str, Field(max_length=2048)] = ""
    timestamp: EventTimestamp
    event_id: Name | None = None
    """The field that identifies an event. Events with the same id in the same hour count as one."""
    fields: Fields
    """The fields of an event by the names of their columns."""
    trim: bool = False
    """Remove whitespace from both ends of every string before anything else is done with it."""
    null_values: tuple[str, ...] = ("",)
    """Strings that mean "no value", in CSV cells and in string values of JSON events."""
    unknown_fields: UnknownFields = UnknownFields.KEEP
    """What to do with fields that `fields` does not list."""
    enrich: dict[Name, DerivedColumn] = Field(default_factory=dict)
    """Columns that the receiver derives from the fields of an event."""
    push: PushConfig | None = None
    """Set it when the partner sends events to the API."""
    pull: PullConfig | None = None
    """Set it when files are fetched from the partner."""
    late: LateThresholds = ANY_LATE_DATA
    """How much late data makes a finished day run again. By default any late data does."""
    late_max_age_hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Late data below every threshold makes its day run again when the oldest of it has waited so many hours. The
    `late.max_age_hours` of a pipeline replaces it."""
    silent_hours: Annotated[int, Field(gt=0)] = 48
    """An alarm fires when no data has arrived for this number of hours."""
    counts: Counts | None = None
    """Set it when the partner reports how many events it has sent, so that missing events are known."""
    pack: PackConfig | None = None
    """Set it when an hour has many small objects: runs and queries then read one in their place."""

    @model_serializer(mode="wrap")
    def _without_new_keys(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # While a deployment updates the functions, those of the release before read receipts and messages with this
        # definition, and refuse keys that they do not know.
        return {key: value for key, value in serialize(self).items() if key not in _NEW_KEYS or value is not None}

    @model_validator(mode="after")
    def _check_references(self) -> Source:
        problems = [*self._reference_problems(), *self._derived_column_problems(), *self._counts_problems()]
        if problems:
            raise Problems(*problems)
        return self

    def _reference_problems(self) -> Iterator[Problem]:
        if self.push is None and self.pull is None:
            yield Problem(message="a source needs `push` or `pull`: add the one by which its data arrives")
        for path, name, types in (
            (("timestamp", "field"), self.timestamp.field, frozenset({FieldType.TIMESTAMP})),
            (("event_id",), self.event_id, _ID_TYPES),
        ):
            possible = [field for field, definition in self.fields.items() if definition.type in types]
            if name is not None and name not in possible:
                message = f"{name!r} must be listed in `fields` with type {' or '.join(sorted(types))}"
                yield unknown_name(message, name, possible, path=path)
        readers: dict[str, str] = {}
        for name in self.fields:
            reader = readers.setdefault(self.partner_name(name), name)
            if reader != name:
                message = f"{reader} is read from {self.partner_name(name)!r} too: change the `from` of one of them"
                yield Problem(path=("fields", name), at_key=True, message=message)

    def _counts_problems(self) -> Iterator[Problem]:
        if self.counts is None:
            return
        strings = [name for name, field in self.fields.items() if field.type is FieldType.STRING]
        if self.counts.by and self.counts.by not in strings:
            message = f"{self.counts.by!r} must be listed in `fields` with type string"
            yield unknown_name(message, self.counts.by, strings, path=("counts", "by"))
        if self.counts.files and self.pull is None:
            message = "files with counts are read by pulls, and the source has no `pull`: remove it"
            yield Problem(path=("counts", "files"), message=message)
        if self.counts.files and self.pull and self.counts.files == self.pull.files:
            yield Problem(path=("counts", "files"), message="`pull.files` is the same pattern: name other files")
        pattern = self.counts.pattern
        if pattern and self.pull and self.pull.listing == "none" and not pattern.is_exact:
            message = "no * with `listing: none`, because each name is requested: name one file of a date or hour"
            yield Problem(path=("counts", "files"), message=message)
        if self.counts.window == "day" and not has_whole_hours(self.pull_timezone):
            message = f"days in {self.pull_timezone} do not begin with a UTC hour: use 5m, 10m or 1h"
            yield Problem(path=("counts", "window"), message=message)

    def _derived_column_problems(self) -> Iterator[Problem]:
        for name, derived in self.enrich.items():
            if name in self.fields:
                message = "a field already has this name: rename the derived column"
                yield Problem(path=("enrich", name), at_key=True, message=message)
            match derived:
                case LookupColumn() | DatePartColumn():
                    key, read = "of", {derived.of}
                case TemplateColumn():
                    key, read = "template", {field for _, field in derived.parts if field is not None}
                case ConstantColumn():
                    continue
            path: Path = ("enrich", name, key)
            for field in sorted(read):
                if field not in self.fields:
                    yield unknown_name(f"no field {field!r}", field, self.fields, path=path)
                elif isinstance(derived, DatePartColumn) and self.fields[field].type is not FieldType.TIMESTAMP:
                    yield Problem(path=path, message=f"{field!r} is not a timestamp field")

    def partner_name(self, field: str) -> str:
        """Return the name that the partner uses for `field`, one of `fields`."""
        return self.fields[field].partner_name or field

    def field_label(self, field: str) -> str:
        """Return the name of `field` as reasons show it: with the partner's name for it if that differs."""
        partner_name = self.partner_name(field)
        return field if partner_name == field else f"{field} ({partner_name})"

    @property
    def partner_fields(self) -> dict[str, FieldDefinition]:
        """The fields by the partner's names, in the order of `fields`."""
        return {self.partner_name(name): field for name, field in self.fields.items()}

    @property
    def count_keys(self) -> tuple[str, ...]:
        """What its events are counted by: `Counts.keys`, or `ALL` without `counts`."""
        return self.counts.keys if self.counts else (ALL,)

    @property
    def timezone(self) -> ZoneInfo | None:
        """The timezone of timestamps without an offset; None when they are rejected."""
        return ZoneInfo(self.timestamp.timezone) if self.timestamp.timezone else None

    @property
    def pull_timezone(self) -> str:
        """The name of the timezone of the dates in the names of files, of "today" and of the schedule of pulls."""
        return (self.pull and self.pull.timezone) or self.timestamp.timezone or "UTC"

    @property
    def local_timezone(self) -> str | None:
        """The timezone of its timestamps, or else of its files, if one of them is not UTC."""
        names = (self.timestamp.timezone, self.pull.timezone if self.pull else None)
        return next((name for name in names if name not in {None, "UTC"}), None)

    def require_pull(self) -> PullConfig:
        """Return how the source's files are pulled. Raises `DefinitionError` when its data is only pushed."""
        if self.pull is None:
            raise DefinitionError(f"source {self.source!r} has no `pull`: its data is pushed")
        return self.pull

    @property
    def reading_digest(self) -> str:
        """Digest of what decides how the source's files are read: 12 hex digits.

        It changes with the fields, the timestamp and the format, and not with a description, a schedule or a threshold.
        """
        operational = {"description", "push", "pull", "late", "silent_hours", *_NEW_KEYS}
        # Only what differs from the defaults: an option that a later release adds does not change the digest.
        reading = self.model_dump(mode="json", exclude=operational, exclude_defaults=True, by_alias=True)
        if self.pull:
            reading["format"] = self.pull.format.model_dump(mode="json", by_alias=True, exclude_defaults=True)
            reading["type"] = self.pull.format.type
        reading["id_column"] = self.id_column
        return hashlib.sha256(json.dumps(reading).encode()).hexdigest()[:12]

    @property
    def columns(self) -> dict[str, FieldType]:
        """Names and types of an event's columns: its fields, then the derived columns."""
        fields = {name: field.type for name, field in self.fields.items()}
        return fields | {name: derived.type for name, derived in self.enrich.items()}

    @property
    def required_fields(self) -> frozenset[str]:
        """Fields that every event must have: the required ones, the timestamp and the event id."""
        required = {name for name, field in self.fields.items() if field.required}
        return frozenset(required | {self.timestamp.field} | ({self.event_id} if self.event_id else set()))

    @property
    def id_column(self) -> str | None:
        """The column by which duplicates are recognised; None when every stored event counts.

        A queue may deliver an event twice, and only an id shows that. So the receiver generates ids for queued events
        when the partner sends none.
        """
        if self.event_id:
            return self.event_id
        return GENERATED_ID if self.push and self.push.buffer == "queue" else None


def source_schema() -> dict[str, Any]:
    """Return the JSON Schema of a source definition, including the short forms of fields and file formats."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Source.model_json_schema(by_alias=True)}
