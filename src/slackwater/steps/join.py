"""`join`: two inputs side by side, where their keys are equal.

The first input is the left one, the second the right one. A null key equals nothing: a left join keeps its row with
nulls, an inner join drops it.
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

_TIMES = "__times"


class Join(Parameters):
    """Parameters of `join`."""

    keys: Annotated[tuple[str, ...], Field(min_length=1)]
    """Columns of both inputs."""
    how: Literal["inner", "left"]
    """`left` keeps left rows that find nothing, `inner` drops them."""
    take: tuple[str, ...] | None = None
    """Columns of the right input to add; all but the keys, when it is not given."""
    many: bool = False
    """Whether a left row may find several right rows, and become several. Unless it may, a key that the right input
    holds twice fails the run: figures made of rows counted twice look right and are not."""


def _check(_inputs: Sequence[str], parameters: Join) -> None:
    both = sorted(set(parameters.keys) & set(parameters.take or ()))
    if both:
        raise DefinitionError(f"take: {', '.join(both)} is a key, which the result has anyhow")
    for field, names in (("keys", parameters.keys), ("take", parameters.take or ())):
        if len(set(names)) < len(names):
            raise DefinitionError(f"{field}: a column is named twice ({', '.join(names)})")


def _apply(frames: Mapping[str, DataFrame], parameters: Join) -> DataFrame:
    (left_name, left), (right_name, right) = frames.items()
    keys = parameters.keys
    take = parameters.take
    if take is None:
        take = tuple(name for name in right.columns if name not in keys)
    _require(left, left_name, "keys", keys)
    _require(right, right_name, "keys", keys)
    _require(right, right_name, "take", take)
    _require_equal_types(frames, keys)
    taken = {name.lower() for name in take}
    clashing = [name for name in left.columns if name.lower() in taken]
    if clashing:
        raise DefinitionError(
            f"take: both {left_name} and {right_name} have a column {', '.join(clashing)}: "
            f"say with `take` which columns of {right_name} are wanted, or rename one in an sql step before"
        )
    wanted = right.select(*_quoted(keys), *_quoted(take)).dropna(subset=list(keys))
    if not parameters.many:
        wanted = _one_per_key(wanted, right_name, keys, take)
    return left.join(wanted, on=list(keys), how=parameters.how).select(*_quoted(left.columns), *_quoted(take))


def _one_per_key(frame: DataFrame, name: str, keys: Sequence[str], take: Sequence[str]) -> DataFrame:
    """Return the rows as they are, failing when they are computed if two of them have one key."""
    from pyspark.sql import functions as sf  # noqa: PLC0415 - not there where pipelines are only checked

    grouped = frame.groupBy(*_quoted(keys)).agg(
        sf.count(sf.lit(1)).alias(_TIMES), *(sf.first(quoted(column)).alias(column) for column in take)
    )
    message = sf.concat(
        sf.lit(f"join: {name} has "),
        sf.col(_TIMES),
        sf.lit(" rows for one key, such as "),
        sf.to_json(sf.struct(*_quoted(keys))),
        sf.lit("; aggregate them before, or say `many: true` if a row may become several"),
    )
    alone = sf.when(sf.col(_TIMES) == 1, sf.lit(True)).otherwise(sf.raise_error(message).cast("boolean"))
    return grouped.where(alone).drop(_TIMES)


def _require(frame: DataFrame, name: str, field: str, columns: Sequence[str]) -> None:
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise DefinitionError(
            f"{field}: {name} has no column {', '.join(missing)} (it has: {', '.join(frame.columns)})"
        )


def _require_equal_types(frames: Mapping[str, DataFrame], keys: Sequence[str]) -> None:
    (left_name, left), (right_name, right) = frames.items()
    for key in keys:
        kinds = [frame.schema[key].dataType.simpleString() for frame in (left, right)]
        if kinds[0] != kinds[1]:
            raise DefinitionError(
                f"keys: {key} is {kinds[0]} in {left_name} and {kinds[1]} in {right_name}: "
                "cast one in an sql step before"
            )


def _quoted(columns: Sequence[str]) -> list[str]:
    return [quoted(name) for name in columns]


STEP = Step(name="join", parameters=Join, apply=_apply, inputs=range(2, 3), check=_check)
