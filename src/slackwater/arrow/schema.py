"""Schemas of frames in Arrow's words: what an exchange can carry, and how a manifest keeps it.

Timestamps are microseconds in UTC; those without a zone stay without one. Only `slackwater.arrow` and Spark jobs
import this module: it needs pyspark.
"""

from __future__ import annotations

import base64
from collections import Counter
from typing import cast

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from slackwater.errors import DefinitionError


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """Return the Arrow schema under which a frame is written.

    Raises `DefinitionError` naming the columns that would not come back as they went: two of one name, intervals of
    months, collated strings.
    """
    doubled = sorted(name for name, times in Counter(name.lower() for name in schema.names).items() if times > 1)
    if doubled or not schema.names:
        what = f"more than one column is named {', '.join(doubled)}" if doubled else "it has no columns"
        raise DefinitionError(f"the result of a stage cannot be kept: {what}")
    return pa.schema([_arrow_field(field) for field in schema.fields])


def spark_schema_of(schema: pa.Schema) -> StructType:
    """Return the schema with which a frame written under `schema` comes back."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def encode_schema(schema: pa.Schema) -> str:
    """Return the serialised schema message, base64, as `ArrowManifest.arrow_schema` keeps it."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def decode_schema(text: str) -> pa.Schema:
    """Return the schema that `encode_schema` made `text` of."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _arrow_field(field: StructField) -> pa.Field:
    only = StructType([field])
    try:
        arrow = to_arrow_schema(only, error_on_duplicated_field_names_in_struct=True)
        returned = spark_schema_of(arrow).simpleString() == only.simpleString()
    except PySparkException as error:
        raise _unfit(field) from error
    if not returned:
        raise _unfit(field)
    return cast("pa.Field", arrow.field(0))


def _unfit(field: StructField) -> DefinitionError:
    return DefinitionError(
        f"column {field.name!r} is of type {field.dataType.simpleString()}, which does not pass between stages: "
        "cast it in the step that makes it"
    )
