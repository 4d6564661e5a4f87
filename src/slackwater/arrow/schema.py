"""Conversion of Spark schemas to Arrow schemas: what an exchange can carry.

Timestamps are microseconds in UTC; those without a timezone stay without one. This module needs pyspark.
"""

from __future__ import annotations

from collections import Counter
from typing import cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from slackwater.errors import DefinitionError


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """Return the Arrow schema with which a frame is written.

    Raises `DefinitionError` naming the columns that could not be read back unchanged: columns with the same name, and
    columns of types that Arrow lacks, such as intervals of months and collated strings.
    """
    repeated = sorted(name for name, times in Counter(name.lower() for name in schema.names).items() if times > 1)
    if repeated or not schema.names:
        fault = f"more than one column is named {', '.join(repeated)}" if repeated else "it has no columns"
        raise DefinitionError(f"the result of a stage cannot be stored: {fault}")
    return pa.schema([_arrow_field(field) for field in schema.fields])


def spark_schema_of(schema: pa.Schema) -> StructType:
    """Return the Spark schema of a frame that is read back from files with this Arrow schema."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def has_nullable_struct(schema: pa.Schema) -> bool:
    """Return whether a struct that may be null has a field that is never null, such as the two of each variant.

    PySpark's conversions in the driver refuse a null struct of such a type; those of the executors do not.
    """
    return any(_has_nullable_struct(field) for field in schema)


def _has_nullable_struct(field: pa.Field) -> bool:
    children = [field.type.field(index) for index in range(field.type.num_fields)]
    if pa.types.is_struct(field.type) and field.nullable and not all(child.nullable for child in children):
        return True
    return any(_has_nullable_struct(child) for child in children)


def _arrow_field(field: StructField) -> pa.Field:
    """Return the Arrow field of a column. Raises `DefinitionError` if it would be read back with another type."""
    # One column at a time, so that the message can name the column: PySpark's error does not.
    schema = StructType([field])
    message = (
        f"column {field.name!r} is of type {field.dataType.simpleString()}, which does not pass between stages: "
        "cast it in the step that creates it"
    )
    try:
        arrow = to_arrow_schema(schema, error_on_duplicated_field_names_in_struct=True)
        # These strings leave out nullability and metadata, which change no value.
        unchanged = spark_schema_of(arrow).simpleString() == schema.simpleString()
    except PySparkException as error:
        raise DefinitionError(message) from error
    if not unchanged:
        raise DefinitionError(message)
    return cast("pa.Field", arrow.field(0))
