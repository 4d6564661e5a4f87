"""Definitions of derived columns: columns that the receiver computes from an event's fields."""

from __future__ import annotations

from string import Formatter
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, field_validator, model_validator

from slackwater.model import Model, Name, TimeZone
from slackwater.sources.fields import INT64_RANGE, FieldType


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

    @property
    def reads(self) -> frozenset[str]:
        """Names of the fields that the column is computed from."""
        return frozenset()


class TemplateColumn(Model):
    """A string with the values of fields in it, such as `{carrier}-{flight}`. It is null if one of the fields is."""

    template: str

    @property
    def type(self) -> FieldType:
        """The type of the column."""
        return FieldType.STRING

    @property
    def parts(self) -> list[tuple[str, str | None]]:
        """Pairs of a literal string and the field that follows it; None if no field follows."""
        return [(literal, field) for literal, field, _, _ in Formatter().parse(self.template)]

    @property
    def reads(self) -> frozenset[str]:
        """Names of the fields that the column is computed from."""
        return frozenset(field for _, field in self.parts if field is not None)

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

    of: Name
    """The field to look up."""
    values: Annotated[dict[str, str], Field(min_length=1)]
    """The result for each value of the field."""
    default: str | None = None
    """The result for values that `values` does not list."""

    @property
    def type(self) -> FieldType:
        """The type of the column."""
        return FieldType.STRING

    @property
    def reads(self) -> frozenset[str]:
        """Names of the fields that the column is computed from."""
        return frozenset({self.of})


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

    @property
    def reads(self) -> frozenset[str]:
        """Names of the fields that the column is computed from."""
        return frozenset({self.of})


DerivedColumn = ConstantColumn | TemplateColumn | LookupColumn | DatePartColumn
