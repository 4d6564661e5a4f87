"""Columns that formats without nested types can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.errors import DefinitionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def expect_flat(frame: DataFrame, file_format: str) -> None:
    """Raise `DefinitionError` for columns that are nested, binary, or of a type that is no single number or string."""
    from pyspark.sql.types import (
        BooleanType,
        DateType,
        NullType,
        NumericType,
        StringType,
        TimestampNTZType,
        TimestampType,
    )

    flat = (BooleanType, DateType, NullType, NumericType, StringType, TimestampNTZType, TimestampType)
    others = [
        f"{field.name} ({field.dataType.simpleString()})"
        for field in frame.schema
        if not isinstance(field.dataType, flat)
    ]
    if others:
        raise DefinitionError(
            f"path: {file_format} cannot hold the columns {', '.join(others)}: convert them to string before, for "
            "example with to_json in an sql step, or use write_json or write_parquet"
        )
