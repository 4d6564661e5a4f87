"""Columns that the receiver derives from an event's fields."""

from __future__ import annotations

from string import Formatter
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, field_validator, model_validator

from slackwater.model import Model, Name, TimeZone
from slackwater.sources.fields import FieldType


class ConstantColumn(Model):
    """The same value in every event."""

    constant: bool | int | FiniteFloat | str

    @field_validator("constant")
    @classmethod
    def _fits_a_column(cls, value: bool | int | float | str) -> bool | int | float | str:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError(f"{value} is outside what 64 bits hold")
        return value

    @property
    def type(self) -> FieldType:
        """The type of its column."""
        kinds = {bool: FieldType.BOOLEAN, int: FieldType.INT64, float: FieldType.DOUBLE}
        return kinds.get(type(self.constant), FieldType.STRING)

    @property
    def reads(self) -> frozenset[str]:
        """The fields that it is made of."""
        return frozenset()


class TemplateColumn(Model):
    """A text with fields in it: `{carrier}-{flight}`; null where one of them is."""

    template: str

    @property
    def type(self) -> FieldType:
        """The type of its column."""
        return FieldType.STRING

    @property
    def parts(self) -> list[tuple[str, str | None]]:
        """Its pieces: a text, and the field after it."""
        return [(text, field) for text, field, _, _ in Formatter().parse(self.template)]

    @property
    def reads(self) -> frozenset[str]:
        """The fields that it is made of."""
        return frozenset(field for _, field in self.parts if field is not None)

    @model_validator(mode="after")
    def _is_plain(self) -> TemplateColumn:
        try:
            plain = all(not spec and not conversion for _, _, spec, conversion in Formatter().parse(self.template))
        except ValueError as error:
            raise ValueError(f"{self.template!r}: {error}") from error
        if not plain:
            raise ValueError(f"{self.template!r}: only names of fields stand in braces")
        return self


class LookupColumn(Model):
    """A field's text looked up: `{of: origin, values: {EWR: Newark}}`."""

    of: Name
    values: Annotated[dict[str, str], Field(min_length=1)]
    default: str | None = None

    @property
    def type(self) -> FieldType:
        """The type of its column."""
        return FieldType.STRING

    @property
    def reads(self) -> frozenset[str]:
        """The fields that it is made of."""
        return frozenset({self.of})


class DatePartColumn(Model):
    """A part of a moment as the clock of a zone shows it: `{part: hour, of: at, timezone: America/New_York}`."""

    part: Literal["date", "hour", "weekday", "month", "year"]
    """A weekday is 1 for Monday to 7 for Sunday."""
    of: Name
    timezone: TimeZone = "UTC"

    @property
    def type(self) -> FieldType:
        """The type of its column."""
        return FieldType.DATE if self.part == "date" else FieldType.INT64

    @property
    def reads(self) -> frozenset[str]:
        """The fields that it is made of."""
        return frozenset({self.of})


DerivedColumn = ConstantColumn | TemplateColumn | LookupColumn | DatePartColumn
"""A column that the receiver adds."""
