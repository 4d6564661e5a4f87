"""`select`: choose, order, rename and cast columns.

Names in the parameters are those of the input. The result has the columns of `columns`, in that order; without it, all
columns in their order.

A value that does not fit its new type fails the run, and the error shows it: a string that is no number, a number that
is too large, an infinity as a decimal. Spark casts as ANSI SQL says, and these casts lose digits without an error:

- to a decimal: rounded half up to its scale;
- a number with a fraction to an integer: the fraction is cut off;
- to a `float` or a `double`: the nearest one, of about 7 or 16 digits, so integers beyond 2^24 or 2^53 may change;
- a timestamp to a date or a number: the time of day, or the fraction of a second, is cut off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import sqlglot
from pydantic import AfterValidator
from sqlglot import exp

from slackwater.arrow.names import quoted
from slackwater.errors import DefinitionError
from slackwater.steps.columns import ColumnNames, example, require_distinct
from slackwater.steps.input_columns import Columns, InputColumns, each
from slackwater.steps.step import Parameters, StepContext, Transform, always, any_input

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WITH_LENGTH = (exp.DataType.Type.CHAR, exp.DataType.Type.VARCHAR)


def check_type(name: str) -> str:
    """Return the name unchanged. Raises `ValueError` unless it is a type that a column of Spark may have."""
    try:
        data_type = exp.DataType.build(name, dialect="spark")
    except sqlglot.errors.SqlglotError as error:
        raise ValueError(f"{name!r} is not a type such as int, double, string or decimal(10,2)") from error
    if any(part.this in _WITH_LENGTH for part in data_type.find_all(exp.DataType)):
        raise ValueError(f"{name!r}: Spark does not check the length: use string, and a filter if it matters")
    return name


class Select(
    Parameters,
    json_schema_extra={
        "examples": [
            {"columns": ["origin", "dep_delay"], "rename": {"dep_delay": "delay"}, "cast": {"dep_delay": "int"}}
        ]
    },
):
    """Parameters of `select`."""

    columns: ColumnNames | None = None
    """Columns of the result, in order. Without it, all columns stay."""
    rename: Mapping[str, str] = {}
    """New names by column, such as `{dep_delay: delay}`."""
    cast: Mapping[str, Annotated[str, AfterValidator(check_type)]] = {}
    """New types by column, as Spark SQL writes them: `{distance: int, price: "decimal(10,2)"}`."""


def check(_inputs: Sequence[str], parameters: Select) -> None:
    """Raise `DefinitionError` for a step that changes nothing, and for a column that is named twice or not selected."""
    if parameters.columns is None and not parameters.rename and not parameters.cast:
        raise DefinitionError("columns: select needs columns, rename or cast")
    if parameters.columns is not None:
        require_distinct(parameters.columns, field="columns")
        for field, names in (("rename", parameters.rename), ("cast", parameters.cast)):
            others = [name for name in names if name not in parameters.columns]
            if others:
                raise DefinitionError(f"{field}: {', '.join(others)} is not in `columns`: add it there")


def result_columns(inputs: InputColumns, parameters: Select) -> Columns | None:
    """Return the selected columns with their new names. They are not known if one of them is missing."""
    inputs.require(0, each(parameters.columns or (), "columns"))
    if parameters.columns is None:
        for field, names in (("rename", parameters.rename), ("cast", parameters.cast)):
            inputs.require(0, {(field, name): name for name in names}, at_key=True)
    columns = parameters.columns or inputs[0]
    return None if columns is None or inputs.problems else tuple(parameters.rename.get(name, name) for name in columns)


def apply(frames: Mapping[str, DataFrame], parameters: Select, _context: StepContext) -> DataFrame:
    """Return the selected columns. Raises `DefinitionError` for two of one name, and for an unknown cast."""
    from pyspark.sql import functions as sf

    (frame,) = frames.values()
    columns = parameters.columns or tuple(frame.columns)
    require_distinct([parameters.rename.get(name, name) for name in columns], field="rename")

    def selected(name: str) -> Column:
        column = sf.col(quoted(name))
        if name in parameters.cast:
            column = _cast(frame, name, parameters.cast[name])
        return column.alias(parameters.rename.get(name, name))

    return frame.select(*map(selected, columns))


def _cast(frame: DataFrame, name: str, new_type: str) -> Column:
    """Return a column in a new type; Spark fails for a value that does not fit, naming the column and the value.

    Raises `DefinitionError` for a cast that Spark does not have.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as sf
    from pyspark.sql import types as t

    from slackwater.steps.spark_errors import explain

    column = sf.col(quoted(name))
    try:
        data_type = frame.select(column.cast(new_type)).schema[0].dataType
    except PySparkException as error:
        raise DefinitionError(f"cast.{name}: {explain(error)[1]}") from error
    if isinstance(data_type, t.ArrayType | t.MapType | t.StructType | t.VariantType):
        # With `try_cast`, a value inside that does not fit would become null.
        return column.cast(data_type)
    value = column.try_cast(data_type)
    if isinstance(frame.schema[name].dataType, t.BinaryType):
        # Spark's cast to string keeps bytes that are no UTF-8.
        value = sf.try_validate_utf8(value)
    elif isinstance(data_type, t.FloatType | t.DoubleType):
        # Spark's cast of a finite number that is too large is an infinity.
        is_infinite = sf.abs(value) == sf.lit(float("inf"))
        value = sf.when(~is_infinite | ~column.cast("string").rlike("[0-9]"), value)
    fault = sf.concat(
        sf.lit(f"select: cast.{name}: "),
        example(frame, [name]),
        sf.lit(f" does not fit {data_type.simpleString()}: correct or drop such rows in a step before"),
    )
    return sf.coalesce(value, sf.when(column.isNotNull(), sf.raise_error(fault)))


STEP = Transform(
    name="select",
    parameters=Select,
    apply=apply,
    check=check,
    columns=result_columns,
    reads_all_rows=any_input,
    is_row_by_row=always,
)
