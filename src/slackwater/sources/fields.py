"""Definitions of columns: fields and how the partner writes their values, and columns that are derived from fields."""

from __future__ import annotations

import re
from enum import StrEnum
from string import Formatter
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat, field_validator, model_validator

from slackwater.model import Model, Name, TimeZone
from slackwater.sources.strptime_format import StrptimeFormat

ISO, EPOCH_S, EPOCH_MS = "iso8601", "epoch_s", "epoch_ms"
INT64_RANGE = range(-(2**63), 2**63)


class FieldType(StrEnum):
    """Types of event fields, with Arrow's names."""

    STRING = "string"
    INT64 = "int64"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    DATE = "date"


_TEMPORAL_TYPES = frozenset({FieldType.TIMESTAMP, FieldType.DATE})
_NUMBER_TYPES = frozenset({FieldType.INT64, FieldType.DOUBLE})
# A directive with its letter, or a lone `%` at the end of a pattern.
_DIRECTIVE = re.compile(r"%.?")
_SUPPORTED_DIRECTIVES = frozenset("aAbBdHIjmMpSfyYz%")


def _check_format(value: str) -> str:
    if value in {ISO, EPOCH_S, EPOCH_MS}:
        return value
    if "%" not in value:
        raise ValueError(
            f"{value!r} is not a format: use {ISO}, {EPOCH_S}, {EPOCH_MS}, or a pattern such as %d/%m/%Y %H:%M"
        )
    unsupported = [directive for directive in _DIRECTIVE.findall(value) if directive[1:] not in _SUPPORTED_DIRECTIVES]
    if unsupported:
        supported = " ".join(f"%{letter}" for letter in sorted(_SUPPORTED_DIRECTIVES))
        raise ValueError(f"{value!r}: {unsupported[0]} is not supported (supported: {supported})")
    StrptimeFormat(value)
    return value


# How timestamps and dates are written: `iso8601`, `epoch_s`, `epoch_ms`, or a pattern of strptime's directives.
Format = Annotated[str, AfterValidator(_check_format)]


class FieldDefinition(Model):
    """One field of an event, and how the partner writes it."""

    type: FieldType
    required: bool = False
    """Reject events without a value for this field."""
    partner_name: Annotated[str | None, Field(alias="from", min_length=1)] = None
    """The partner's name for the field, if it differs. In JSON, `a.b` is also the path to a nested value: `b` in the
    object `a`, if the event has no key `a.b`."""
    formats: tuple[Format, ...] = ()
    """Timestamps and dates: formats that are tried in order. The default is ISO 8601. With `epoch_s` and `epoch_ms`, a
    number whose absolute value is below 10^11 is seconds, and any other is milliseconds."""
    decimal: Literal[".", ","] = "."
    """Numbers in strings: the decimal separator."""
    thousands: Literal["", ",", ".", " ", "'"] = ""
    """Numbers in strings: the separator between groups of three digits."""
    true_values: tuple[str, ...] = ()
    """Booleans: strings that mean true, in addition to `true`. Case is ignored."""
    false_values: tuple[str, ...] = ()
    """Booleans: strings that mean false, in addition to `false`. Case is ignored."""

    @model_validator(mode="after")
    def _check_options(self) -> FieldDefinition:
        if self.formats and self.type not in _TEMPORAL_TYPES:
            raise ValueError(f"formats are for timestamps and dates, not for {self.type}")
        if self.type is FieldType.DATE and {EPOCH_S, EPOCH_MS} & set(self.formats):
            raise ValueError(
                "formats: epochs are for timestamps, not for dates: use iso8601 or a pattern such as %d/%m/%Y"
            )
        if self.has_separators and self.type not in _NUMBER_TYPES:
            raise ValueError(f"decimal and thousands are for numbers, not for {self.type}")
        if self.decimal == self.thousands:
            raise ValueError(f"decimal and thousands are both {self.decimal!r}: use different separators")
        if (self.true_values or self.false_values) and self.type is not FieldType.BOOLEAN:
            raise ValueError(f"true_values and false_values are for booleans, not for {self.type}")
        true, false = ({value.casefold() for value in values} for values in (self.true_values, self.false_values))
        ambiguous = (true | {"true"}) & (false | {"false"})
        if ambiguous:
            raise ValueError(f"{min(ambiguous)!r} is in true_values and in false_values: keep it in one of them")
        return self

    @property
    def has_mixed_epochs(self) -> bool:
        """Whether numbers are seconds or milliseconds since 1970, by their size."""
        return {EPOCH_S, EPOCH_MS} <= set(self.formats)

    @property
    def has_separators(self) -> bool:
        """Whether numbers in strings have other separators than `1234.5`."""
        return self.decimal != "." or bool(self.thousands)


def _expand_shorthand(value: Any) -> Any:
    """Expand `carrier: string` to `carrier: {type: string}`."""
    return {"type": value} if isinstance(value, str) else value


Fields = dict[
    Name,
    Annotated[FieldDefinition, BeforeValidator(_expand_shorthand, json_schema_input_type=FieldDefinition | FieldType)],
]


class ConstantColumn(Model):
    """The same value in every event."""

    constant: bool | int | FiniteFloat | str

    @field_validator("constant")
    @classmethod
    def _check_range(cls, value: bool | int | float | str) -> bool | int | float | str:
        # Python's integers have no limit; the column is a 64-bit integer in Arrow, Parquet and Glue.
        if isinstance(value, int) and value not in INT64_RANGE:
            raise ValueError(f"{value} does not fit into a 64-bit integer")
        return value

    @property
    def type(self) -> FieldType:
        """The type of the column."""
        types = {bool: FieldType.BOOLEAN, int: FieldType.INT64, float: FieldType.DOUBLE}
        return types.get(type(self.constant), FieldType.STRING)


class TemplateColumn(Model):
    """A string with the values of fields in it, such as `{carrier}-{flight}`. It is null if one of the fields is."""

    type: ClassVar = FieldType.STRING
    template: str

    @property
    def parts(self) -> list[tuple[str, str | None]]:
        """Pairs of a literal string and the field that follows it; None if no field follows."""
        return [(literal, field) for literal, field, _, _ in Formatter().parse(self.template)]

    # The checks cover only the syntax: the names of the fields are checked with the source's, in `Source`.
    @model_validator(mode="after")
    def _check_template(self) -> TemplateColumn:
        try:
            replacements = list(Formatter().parse(self.template))
        except ValueError as error:
            raise ValueError(f"{self.template!r}: {error}") from error
        if any(specification or conversion for _, _, specification, conversion in replacements):
            raise ValueError(f"{self.template!r}: only names of fields are allowed in braces, such as {{carrier}}")
        return self


class LookupColumn(Model):
    """The value for a field's value in a table: `{of: origin, values: {EWR: Newark}}`."""

    type: ClassVar = FieldType.STRING
    of: Name
    """The field to look up."""
    values: Annotated[dict[str, str], Field(min_length=1)]
    """The result for each value of the field."""
    default: str | None = None
    """The result for values that `values` does not list."""


class DatePartColumn(Model):
    """A part of a timestamp's local time in a timezone: `{part: hour, of: at, timezone: America/New_York}`."""

    part: Literal["date", "hour", "weekday", "month", "year"]
    """A weekday is 1 for Monday to 7 for Sunday."""
    of: Name
    """A timestamp field."""
    timezone: TimeZone = "UTC"

    @property
    def type(self) -> FieldType:
        """The type of the column."""
        return FieldType.DATE if self.part == "date" else FieldType.INT64


DerivedColumn = ConstantColumn | TemplateColumn | LookupColumn | DatePartColumn
