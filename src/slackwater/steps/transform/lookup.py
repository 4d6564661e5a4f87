"""`lookup`: replace a key by the values that another table has for it.

The first input has the key, the second is the reference, with one row for each key. The columns `values` of the
reference replace the key's column, at its position: `{column: carrier, values: [name]}` replaces carriers' codes by
their names. A null key refers to nothing: the values are null, and the row stays, whatever `missing` says.

The run fails if the reference has a key twice. Rows of the reference without a key are ignored.

Effect: `missing`, the number of rows whose key the reference lacks, up to three `examples` of such keys, and
`rows_dropped` for `missing: drop`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator

from slackwater.arrow.names import quoted
from slackwater.errors import DataError, DefinitionError
from slackwater.steps.columns import (
    ColumnNames,
    all_quoted,
    example,
    find_examples,
    require_distinct,
    require_same_types,
    require_sortable,
    require_unique_keys,
)
from slackwater.steps.input_columns import Columns, InputColumns, each
from slackwater.steps.step import Effect, Parameters, StepContext, Transform, first_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_KEY, _FOUND, _MISSING = "__key", "__found", "__missing"


def _null_is_a_word(value: object) -> object:
    """Return `null` as a string: YAML reads the bare word as no value."""
    return "null" if value is None else value


class Lookup(
    Parameters,
    json_schema_extra={
        "examples": [{"column": "carrier", "reference_column": "code", "values": ["name"], "missing": "keep"}]
    },
):
    """Parameters of `lookup`."""

    column: str
    """The column of the first input that has the key."""
    reference_column: str | None = None
    """The column of the reference that has the key. Without it, the one of the same name."""
    values: ColumnNames
    """The columns of the reference that replace the key."""
    missing: Annotated[Literal["fail", "drop", "null", "keep"], BeforeValidator(_null_is_a_word)] = "fail"
    """What happens to a row whose key the reference lacks: `fail` fails the run, `drop` drops the row, `null` makes the
    values null, and `keep` keeps the key as the value, if there is one column in `values`, of the key's type."""


def check(_inputs: Sequence[str], parameters: Lookup) -> None:
    """Raise `DefinitionError` for a column that is named twice, and for `keep` with several values."""
    require_distinct(parameters.values, field="values")
    if parameters.missing == "keep" and len(parameters.values) > 1:
        raise DefinitionError("missing: keep needs exactly one column in `values`, which takes the key")


def result_columns(inputs: InputColumns, parameters: Lookup) -> Columns | None:
    """Return the columns of the first input, with the values in place of the key."""
    column, values = parameters.column, parameters.values
    inputs.require(0, {("column",): column})
    # Without `reference_column`, the reference has a column of the same name.
    key = "column" if parameters.reference_column is None else "reference_column"
    inputs.require(1, {(key,): parameters.reference_column or column, **each(values, "values")})
    if inputs[0] is None or inputs.problems:
        return None
    others = [name for name in inputs[0] if name != column]
    inputs.require_new(0, [name for name in values if name.lower() in map(str.lower, others)], path=("values",))
    position = inputs[0].index(column)
    return (*inputs[0][:position], *values, *inputs[0][position + 1 :])


def apply(frames: Mapping[str, DataFrame], parameters: Lookup, context: StepContext) -> DataFrame:
    """Return the rows with values in place of the key. Raises `DefinitionError` for columns of different types."""
    from pyspark.sql import functions as sf

    (input_name, frame), (reference_name, reference) = frames.items()
    column, values = parameters.column, parameters.values
    key = parameters.reference_column or column
    require_sortable(frame, [column], field="column")
    names = (input_name, reference_name)
    require_same_types(frame, reference, [(column, key)], field="column", of=names)
    if parameters.missing == "keep":
        require_same_types(frame, reference, [(column, values[0])], field="missing", of=names)
    known = require_unique_keys(
        reference.where(sf.col(quoted(key)).isNotNull()),
        [key],
        message=f"lookup: {reference_name} has {{rows}} rows for one key, such as {{key}}; keep one of them in a "
        "deduplicate step before",
    )
    known = known.select(
        sf.col(quoted(key)).alias(_KEY),
        sf.lit(True).alias(_FOUND),
        *(sf.col(quoted(name)).alias(f"__value_{name}") for name in values),
    )
    joined = frame.join(known, on=sf.col(quoted(column)) == sf.col(_KEY), how="left")
    joined = joined.withColumn(_MISSING, sf.col(quoted(column)).isNotNull() & sf.col(_FOUND).isNull())
    joined = context.observe(joined, {"missing": sf.count_if(_MISSING)})
    if parameters.missing == "drop":
        joined = joined.where(~sf.col(_MISSING))
    found = [sf.col(quoted(f"__value_{name}")) for name in values]
    if parameters.missing == "keep":
        found = [sf.when(sf.col(_MISSING), sf.col(quoted(column))).otherwise(found[0])]
    position = frame.columns.index(column)
    return joined.select(
        *all_quoted(frame.columns[:position]),
        *(value.alias(name) for name, value in zip(values, found, strict=True)),
        *all_quoted(frame.columns[position + 1 :]),
    )


def report(parameters: Lookup, observed: Mapping[str, Any]) -> Effect:
    """Return how many rows have a key that the reference lacks; examples of keys are not known yet."""
    missing = observed["missing"]
    dropped = {"rows_dropped": missing} if parameters.missing == "drop" else {}
    return {"missing": missing, "examples": [], **dropped}


def add_examples(frames: Mapping[str, DataFrame], parameters: Lookup, effect: Effect) -> Effect:
    """Return the effect with examples of keys that the reference lacks."""
    from pyspark.sql import functions as sf

    if not effect["missing"]:
        return effect
    frame, reference = frames.values()
    column, key = parameters.column, parameters.reference_column or parameters.column
    known = reference.select(sf.col(quoted(key)).alias(_KEY))
    missing = frame.join(known, on=sf.col(quoted(column)) == sf.col(_KEY), how="left_anti")
    missing = missing.where(sf.col(quoted(column)).isNotNull())
    found = find_examples(missing, {"missing": example(frame, [column])})["missing"]
    return {**effect, "examples": [values[column] for values in found]}


def verify(parameters: Lookup, effect: Effect) -> None:
    """Raise `DataError` with examples if a key is missing that may not be."""
    if parameters.missing == "fail" and effect["missing"]:
        shown = ", ".join(map(str, effect["examples"]))
        raise DataError(
            f"column: the reference lacks the {parameters.column} of {effect['missing']} rows, such as {shown}: "
            "add them to the reference, or set `missing` to drop, null or keep"
        )


STEP = Transform(
    name="lookup",
    parameters=Lookup,
    apply=apply,
    inputs=("rows", "reference"),
    check=check,
    columns=result_columns,
    report=report,
    add_examples=add_examples,
    verify=verify,
    reads_all_rows=first_input,
)
