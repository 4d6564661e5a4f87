"""`join`: join two inputs where their keys are equal.

The first input is the left one, the second the right one. A null key equals no other key, and NaN equals NaN.

| `how` | Rows of the result |
|---|---|
| `inner` | left rows with a matching right row |
| `left` | all left rows, with nulls in the right columns if no right row matches |
| `right` | all right rows, with nulls in the left columns if no left row matches |
| `full` | all rows of both inputs |
| `semi` | left rows with a matching right row, without columns of the right input |
| `anti` | left rows without a matching right row, without columns of the right input |

Effect: `left_unmatched` for `left` and `full`, and `right_unmatched` for `right` and `full`: how many rows of that
input match none of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Discriminator, Field, Tag

from slackwater.arrow.names import quoted
from slackwater.errors import DefinitionError
from slackwater.steps.columns import (
    all_quoted,
    require_distinct,
    require_same_types,
    require_sortable,
    require_unique_keys,
)
from slackwater.steps.input_columns import Columns, InputColumns, each
from slackwater.steps.step import Parameters, StepContext, Transform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IN_LEFT, _IN_RIGHT = "__in_left", "__in_right"


class KeyPair(Parameters):
    """A key whose column has another name in each input."""

    left: str
    """Column of the left input, which is also the name in the result."""
    right: str
    """Column of the right input."""


def _form(key: object) -> str:
    """Return how a key is written, so that only faults of this form are reported."""
    return "pair" if isinstance(key, Mapping | KeyPair) else "column"


Key = Annotated[Annotated[str, Tag("column")] | Annotated[KeyPair, Tag("pair")], Discriminator(_form)]


class Join(
    Parameters,
    json_schema_extra={
        "examples": [{"keys": ["origin", "time_hour"], "how": "left", "take": ["wind_speed", "precip"]}]
    },
):
    """Parameters of `join`."""

    keys: Annotated[tuple[Key, ...], Field(min_length=1)]
    """Columns that both inputs have, or `{left: COLUMN, right: COLUMN}` if their names differ."""
    how: Literal["inner", "left", "right", "full", "semi", "anti"]
    """Which rows the result has."""
    take: tuple[str, ...] | None = None
    """Columns of the right input to add. Without it, all columns but the keys are added."""
    many: bool = False
    """Whether a row may match several rows, and become several rows. If not, the run fails when the right input, or
    for `right` the left input, has a key twice, because sums over repeated rows would be wrong without anyone noticing.
    """


def check(_inputs: Sequence[str], parameters: Join) -> None:
    """Raise `DefinitionError` for a column that is named twice, and for what `semi` and `anti` do not use."""
    left_keys, right_keys = _keys(parameters)
    require_distinct(left_keys, field="keys")
    require_distinct(right_keys, field="keys")
    require_distinct(parameters.take or (), field="take")
    common = sorted({*left_keys, *right_keys} & set(parameters.take or ()))
    if common:
        raise DefinitionError(f"take: {', '.join(common)} is a key, which the result has in any case")
    if parameters.how in ("semi", "anti"):
        if parameters.take is not None:
            raise DefinitionError(f"take: the result of a {parameters.how} join has no columns of the right input")
        if parameters.many:
            raise DefinitionError(f"many: a {parameters.how} join repeats no row")


def result_columns(inputs: InputColumns, parameters: Join) -> Columns | None:
    """Return the columns of the left input, then the added ones. They are not known if one of these is missing."""
    for index, (side, names) in enumerate(zip(("left", "right"), _keys(parameters), strict=True)):
        written = zip(parameters.keys, names, strict=True)
        paths = {("keys", n, *(() if isinstance(key, str) else (side,))): name for n, (key, name) in enumerate(written)}
        inputs.require(index, paths)
    inputs.require(1, each(parameters.take or (), "take"))
    left, right = inputs[0], inputs[1]
    if parameters.how in ("semi", "anti"):
        return left
    take = parameters.take
    if take is None and right is not None:
        take = tuple(name for name in right if name not in _keys(parameters)[1])
    if left is None or take is None or inputs.problems:
        return None
    remedy = f"list the columns of {inputs.name(1)} to add in `take`, or rename it in a step before"
    inputs.require_new(0, take, path=("take",), remedy=remedy)
    return (*left, *take)


def apply(frames: Mapping[str, DataFrame], parameters: Join, context: StepContext) -> DataFrame:
    """Return the left columns, then the added ones. Raises `DefinitionError` for keys of different types."""
    from pyspark.sql import functions as sf

    (left_name, left), (right_name, right) = frames.items()
    how, (left_keys, right_keys) = parameters.how, _keys(parameters)
    only_left = how in ("semi", "anti")
    take = parameters.take
    if take is None:
        take = () if only_left else tuple(name for name in right.columns if name not in right_keys)
    require_sortable(left, left_keys, field="keys")
    pairs = list(zip(left_keys, right_keys, strict=True))
    require_same_types(left, right, pairs, field="keys", of=(left_name, right_name))
    columns = left.columns
    added = right.select(*(sf.col(quoted(theirs)).alias(ours) for ours, theirs in pairs), *all_quoted(take))
    if not parameters.many and not only_left:
        message = (
            f"join: {left_name if how == 'right' else right_name} has {{rows}} rows for one key, such as {{key}}; "
            "aggregate them in a step before the join, or set `many: true` if a row may become several"
        )
        if how == "right":
            left = require_unique_keys(_with_keys(left, left_keys), left_keys, message=message)
        else:
            added = added if how == "full" else _with_keys(added, left_keys)
            added = require_unique_keys(added, left_keys, message=message)
    counts = {}
    if how in ("left", "full"):
        added = added.withColumn(_IN_RIGHT, sf.lit(True))
        counts["left_unmatched"] = sf.count(sf.when(sf.col(_IN_RIGHT).isNull(), 1))
    if how in ("right", "full"):
        left = left.withColumn(_IN_LEFT, sf.lit(True))
        counts["right_unmatched"] = sf.count(sf.when(sf.col(_IN_LEFT).isNull(), 1))
    joined = left.join(added, on=list(left_keys), how=how)
    if counts:
        joined = context.observe(joined, counts)
    return joined.select(*all_quoted(columns), *all_quoted(take))


def _keys(parameters: Join) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the key columns of the left and of the right input."""
    return (
        tuple(key if isinstance(key, str) else key.left for key in parameters.keys),
        tuple(key if isinstance(key, str) else key.right for key in parameters.keys),
    )


def _with_keys(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the rows without a null in their key. The others match nothing, and need not be shuffled."""
    from pyspark.sql import functions as sf

    return frame.where(reduce(and_, (sf.col(quoted(key)).isNotNull() for key in keys)))


def reads_all_rows(parameters: Join, position: int) -> bool:
    """Return whether the result has all rows of the input: then Spark also reads them if the other input is empty."""
    return parameters.how in ("full", ("left", "right")[position])


STEP = Transform(
    name="join",
    parameters=Join,
    apply=apply,
    inputs=("left", "right"),
    check=check,
    columns=result_columns,
    reads_all_rows=reads_all_rows,
)
