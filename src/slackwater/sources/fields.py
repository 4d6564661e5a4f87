"""An event's fields: their types, how a partner writes them, and what is derived from them."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from slackwater.model import Model, Name
from slackwater.sources.strptime_format import StrptimeFormat

ISO, EPOCH_S, EPOCH_MS = "iso8601", "epoch_s", "epoch_ms"


class FieldType(StrEnum):
    """Types of event fields, by the names that Arrow gives them."""

    STRING = "string"
    INT64 = "int64"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"
    DATE = "date"


_MOMENTS = frozenset({FieldType.TIMESTAMP, FieldType.DATE})
_NUMBERS = frozenset({FieldType.INT64, FieldType.DOUBLE})
_DIRECTIVE = re.compile(r"%.?")
_DIRECTIVES = frozenset("aAbBdHIjmMpSfyYz%")


def _format(value: str) -> str:
    if value in {ISO, EPOCH_S, EPOCH_MS}:
        return value
    if "%" not in value:
        named = f"{ISO}, {EPOCH_S}, {EPOCH_MS}"
        raise ValueError(f"{value!r} is no format: use {named}, or a pattern such as %d/%m/%Y %H:%M")
    unknown = [found for found in _DIRECTIVE.findall(value) if found[1:] not in _DIRECTIVES]
    if unknown:
        known = " ".join(f"%{letter}" for letter in sorted(_DIRECTIVES))
        raise ValueError(f"{value!r}: {unknown[0]} is not known (known: {known})")
    StrptimeFormat(value)
    return value


Format = Annotated[str, AfterValidator(_format)]
"""How a moment is written: `iso8601`, `epoch_s`, `epoch_ms`, or a pattern of strptime's directives."""


class FieldDefinition(Model):
    """One field of an event, and how the partner writes it."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    type: FieldType
    required: bool = False
    origin: Annotated[str | None, Field(alias="from", min_length=1)] = None
    """The name that the partner gives it, where that is another one."""
    formats: tuple[Format, ...] = ()
    """Timestamps and dates: tried in order; ISO 8601 alone when none is named."""
    decimal: Literal[".", ","] = "."
    """Numbers written as text: what stands before the fraction."""
    thousands: Literal["", ",", ".", " ", "'"] = ""
    """Numbers written as text: what stands between groups of three digits."""
    true_values: tuple[str, ...] = ()
    """Booleans: texts that mean true, besides `true`; whatever their case."""
    false_values: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _fits_its_type(self) -> FieldDefinition:
        if self.formats and self.type not in _MOMENTS:
            raise ValueError(f"formats are for timestamps and dates, not for {self.type}")
        if {EPOCH_S, EPOCH_MS} <= set(self.formats):
            raise ValueError(f"formats: {EPOCH_S} and {EPOCH_MS} cannot be told apart: name one of them")
        if self.type is FieldType.DATE and {EPOCH_S, EPOCH_MS} & set(self.formats):
            raise ValueError("formats: a date is no moment: use iso8601 or a pattern such as %d/%m/%Y")
        if self.is_punctuated and self.type not in _NUMBERS:
            raise ValueError(f"decimal and thousands are for numbers, not for {self.type}")
        if self.decimal == self.thousands:
            raise ValueError(f"decimal and thousands are both {self.decimal!r}: no number could be read")
        if (self.true_values or self.false_values) and self.type is not FieldType.BOOLEAN:
            raise ValueError(f"true_values and false_values are for booleans, not for {self.type}")
        true, false = ({text.casefold() for text in texts} for texts in (self.true_values, self.false_values))
        both = (true | {"true"}) & (false | {"false"})
        if both:
            raise ValueError(f"{min(both)!r} stands in true_values and in false_values")
        return self

    @property
    def is_punctuated(self) -> bool:
        """Whether its numbers are texts of their own form."""
        return self.decimal != "." or bool(self.thousands)


def shorthand(value: Any) -> Any:
    """Take `carrier: string` for `carrier: {type: string}`."""
    return {"type": value} if isinstance(value, str) else value


Fields = dict[
    Name, Annotated[FieldDefinition, BeforeValidator(shorthand, json_schema_input_type=FieldDefinition | FieldType)]
]
