"""`join`: join two inputs where their keys are equal.

The first input is the left one, the second the right one. A null key equals no other key: a left join keeps the row
with nulls in the right columns, an inner join drops it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from slackwater.arrow.names import quoted
from slackwater.errors import DefinitionError
from slackwater.steps.step import Parameters, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS_PER_KEY = "__rows_per_key"


class Join(Parameters):
    """Parameters of `join`."""

    keys: Annotated[tuple[str, ...], Field(min_length=1)]
    """Columns that both inputs have."""
    how: Literal["inner", "left"]
    """`left` keeps left rows without a matching right row, `inner` drops them."""
    take: tuple[str, ...] | None = None
    """Columns of the right input to add. Without it, all columns but the keys are added."""
    many: bool = False
    """Whether a left row may match several right rows, and become several rows. If not, the run fails when the right
    input has a key twice, because sums over repeated rows would be wrong without anyone noticing."""


def check(_inputs: Sequence[str], parameters: Join) -> None:
    """Raise `DefinitionError` for a column that is named twice in `keys` and `take`."""
    common = sorted(set(parameters.keys) & set(parameters.take or ()))
    if common:
        raise DefinitionError(f"take: {', '.join(common)} is a key, which the result has in any case")
    for field, names in (("keys", parameters.keys), ("take", parameters.take or ())):
        if len(set(names)) < len(names):
            raise DefinitionError(f"{field}: a column is named twice ({', '.join(names)})")


def apply(frames: Mapping[str, DataFrame], parameters: Join) -> DataFrame:
    """Return the columns of the left input, then the added columns.

    Raises `DefinitionError` for a column that is missing, for keys of different types, and for an added column that the
    left input has too.
    """
    (left_name, left), (right_name, right) = frames.items()
    keys = parameters.keys
    take = parameters.take
    if take is None:
        take = tuple(name for name in right.columns if name not in keys)
    _require(left, left_name, "keys", keys)
    _require(right, right_name, "keys", keys)
    _require(right, right_name, "take", take)
    for key in keys:
        left_type, right_type = (frame.schema[key].dataType.simpleString() for frame in (left, right))
        if left_type != right_type:
            raise DefinitionError(
                f"keys: {key} is {left_type} in {left_name} and {right_type} in {right_name}: "
                "cast one of them in an sql step before the join"
            )
    right_columns = {name.lower() for name in take}
    # Spark would return both columns, and every later step would fail on the ambiguous name.
    clashing = [name for name in left.columns if name.lower() in right_columns]
    if clashing:
        raise DefinitionError(
            f"take: both {left_name} and {right_name} have a column {', '.join(clashing)}: "
            f"list the columns of {right_name} to add in `take`, or rename one in an sql step before the join"
        )
    # Right rows with a null key match nothing. Dropped here, they do not count as repeated keys below.
    added = right.select(*_quoted(keys), *_quoted(take)).dropna(subset=list(keys))
    if not parameters.many:
        added = _require_unique_keys(added, right_name, keys, take)
    return left.join(added, on=list(keys), how=parameters.how).select(*_quoted(left.columns), *_quoted(take))


def _require_unique_keys(frame: DataFrame, name: str, keys: Sequence[str], take: Sequence[str]) -> DataFrame:
    """Return the frame with one row for each key. Spark fails when it computes the frame, if two rows have one key.

    `name` is the name of the input, for the message.
    """
    from pyspark.sql import functions as sf  # noqa: PLC0415 - pipelines are checked without Spark

    # With one row per key, `first` is that row's value: the check costs the shuffle that the join needs in any case.
    grouped = frame.groupBy(*_quoted(keys)).agg(
        sf.count(sf.lit(1)).alias(_ROWS_PER_KEY), *(sf.first(quoted(column)).alias(column) for column in take)
    )
    # The error is raised in the query, because a step may not trigger a Spark action of its own.
    message = sf.concat(
        sf.lit(f"join: {name} has "),
        sf.col(_ROWS_PER_KEY),
        sf.lit(" rows for one key, such as "),
        sf.to_json(sf.struct(*_quoted(keys))),
        sf.lit("; aggregate them in a step before the join, or set `many: true` if a row may become several"),
    )
    unique = sf.when(sf.col(_ROWS_PER_KEY) == 1, sf.lit(True)).otherwise(sf.raise_error(message).cast("boolean"))
    return grouped.where(unique).drop(_ROWS_PER_KEY)


def _require(frame: DataFrame, name: str, field: str, columns: Sequence[str]) -> None:
    """Raise `DefinitionError` if the input `name` lacks one of the columns that the parameter `field` names."""
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise DefinitionError(
            f"{field}: {name} has no column {', '.join(missing)} (it has: {', '.join(frame.columns)})"
        )


def _quoted(columns: Sequence[str]) -> list[str]:
    """Return the names of columns, quoted for Spark."""
    return [quoted(name) for name in columns]


STEP = Step(name="join", parameters=Join, apply=apply, inputs=range(2, 3), check=check)
