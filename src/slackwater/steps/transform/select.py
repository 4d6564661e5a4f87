"""`select`: choose, order, rename and cast columns.

Names in the parameters are those of the input. The result has the columns of `columns`, in that order; without it, all
columns in their order. A value that does not fit its new type fails the run: Spark casts as ANSI SQL says. Casting to a
decimal rounds to its scale, casting a number with a fraction to an integer cuts the fraction off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import sqlglot
from pydantic import AfterValidator
from sqlglot import exp

from slackwater.arrow.names import quoted
from slackwater.errors import DefinitionError
from slackwater.steps.columns import ColumnNames, require_columns, require_distinct
from slackwater.steps.step import Parameters, StepContext, Transform

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def check_type(name: str) -> str:
    """Return the name unchanged. Raises `ValueError` unless it is a type of Spark."""
    try:
        exp.DataType.build(name, dialect="spark")
    except sqlglot.errors.SqlglotError as error:
        raise ValueError(f"{name!r} is not a type such as int, double, string or decimal(10,2)") from error
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


def apply(frames: Mapping[str, DataFrame], parameters: Select, _context: StepContext) -> DataFrame:
    """Return the selected columns.

    Raises `DefinitionError` for a column that is missing, for two columns of one name, and for a cast that Spark does
    not have.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as sf

    ((input_name, frame),) = frames.items()
    columns = parameters.columns or tuple(frame.columns)
    require_columns(frame, columns, field="columns", of=input_name)
    require_columns(frame, parameters.rename, field="rename", of=input_name)
    require_columns(frame, parameters.cast, field="cast", of=input_name)
    require_distinct([parameters.rename.get(name, name) for name in columns], field="rename")

    def selected(name: str) -> Column:
        column = sf.col(quoted(name))
        if name in parameters.cast:
            try:
                column = column.cast(parameters.cast[name])
                frame.select(column)
            except PySparkException as error:
                raise DefinitionError(f"cast.{name}: {str(error).partition('; line')[0].strip()}") from error
        return column.alias(parameters.rename.get(name, name))

    return frame.select(*map(selected, columns))


STEP = Transform(name="select", parameters=Select, apply=apply, check=check)
