"""Two versions of a day's rows, set side by side by their key: what was added, removed and changed, and by how much."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, DecimalType, IntegralType, NumericType, StructField, StructType

from slackwater.arrow.names import quoted
from slackwater.errors import DataError
from slackwater.steps.spark.values import finite, same, shown

ADDED, REMOVED, CHANGED = "added", "removed", "changed"


@dataclass(frozen=True)
class Paired:
    """Two versions joined by their key, each key once."""

    frame: DataFrame
    """`key_N`, `before_N` and `after_N` by place in `key` and `values`; `change`, null for a row that is the same;
    `before` and `after`, true where there is such a row; `before_times` and `after_times`, how often its key stands
    there."""
    key: tuple[StructField, ...]
    values: tuple[StructField, ...]
    tolerance: float

    @property
    def numeric(self) -> tuple[int, ...]:
        """Places of the values that are numbers."""
        return tuple(place for place, field in enumerate(self.values) if isinstance(field.dataType, NumericType))

    def is_sum(self, place: int) -> bool:
        """Whether a day's number of this value is its sum: of whole numbers and decimals. Else it is the mean."""
        return isinstance(self.values[place].dataType, IntegralType | DecimalType)

    def is_other(self, place: int) -> Column:
        """Whether this value of a row is not the same; never null."""
        kind = self.values[place].dataType
        return ~same(sf.col(f"before_{place}"), sf.col(f"after_{place}"), kind, self.tolerance)

    def differing(self) -> Paired:
        """Return the rows that are not the same."""
        return replace(self, frame=self.frame.where(sf.col("change").isNotNull()))


def pair_up(before: DataFrame, after: DataFrame, *, key: Sequence[str], tolerance: float) -> Paired:
    """Join two versions by `key`; a column that one of them lacks is null there.

    Floating-point values, inside others too, are the same when they differ by no more than `tolerance` of the larger
    one; NaN is the same as NaN. Everything else is compared exactly. Raises `DataError` for a key that is no column.
    """
    fields = _fields(before.schema, after.schema)
    missing = [name for name in key if name.lower() not in fields]
    if missing:
        raise DataError(f"publish.key names {', '.join(missing)}, which neither version has")
    keys = tuple(fields.pop(name.lower()) for name in key)
    values = tuple(fields.values())
    sides = [_side(frame, name, keys, values) for frame, name in ((before, "before"), (after, "after"))]
    joined = sides[0].join(sides[1], on=[f"key_{place}" for place in range(len(keys))], how="full")
    paired = Paired(frame=joined, key=keys, values=values, tolerance=tolerance)
    change = (
        sf.when(sf.col("before").isNull(), ADDED)
        .when(sf.col("after").isNull(), REMOVED)
        .when(reduce(or_, map(paired.is_other, range(len(values))), sf.lit(False)), CHANGED)
    )
    return replace(paired, frame=joined.withColumn("change", change))


def totals(paired: Paired) -> DataFrame:
    """Return one row, found in one pass.

    `before`, `after`, `added`, `removed`, `changed` count rows; `before_times` and `after_times` are the most rows
    that one key has; `before_N` and `after_N` are the numbers of the day, of the numeric values.
    """
    found = [sf.count(side).alias(side) for side in ("before", "after")]
    found += [sf.count_if(sf.col("change") == kind).alias(kind) for kind in (ADDED, REMOVED, CHANGED)]
    found += [sf.max(side).alias(side) for side in ("before_times", "after_times")]
    for place in paired.numeric:
        found += [_total(paired, place, f"{side}_{place}") for side in ("before", "after")]
    return paired.frame.agg(*found)


def movers(differing: Paired, *, limit: int, max_text: int) -> DataFrame:
    """Return the largest movements of each numeric value, at most `limit` of each, by value and size.

    `metric` is the value's place; `before` and `after` are numbers, null where there is none. A row that is new or
    gone moves a sum by its whole value, and a mean by nothing that could be named.
    """
    keys = [sf.col(f"key_{place}") for place in range(len(differing.key))]
    movements = sf.array(*(_movement(differing, place) for place in differing.numeric))
    moved = differing.frame.select(*keys, sf.inline(movements))
    order = Window.partitionBy("metric").orderBy(sf.col("size").desc(), *keys)
    ranked = moved.where("size > 0").withColumn("rank", sf.row_number().over(order))
    return (
        ranked.where(sf.col("rank") <= limit)
        .orderBy("metric", "rank")
        .select("metric", "before", "after", *_shown_key(differing, max_text))
    )


def examples(differing: Paired, *, limit: int, max_text: int) -> DataFrame:
    """Return the first `limit` rows that are not the same, in order of key, as `Paired.frame` has them.

    `other_N` says whether a value is not the same.
    Every cell is a truth value, a number, or a text of at most `max_text` characters: cut before rows are brought
    together, so that the driver's memory is bounded whatever they hold.
    """
    cut = [
        shown(sf.col(f"{side}_{place}"), field.dataType, max_text).alias(f"{side}_{place}")
        for place, field in enumerate(differing.values)
        for side in ("before", "after")
    ]
    order = [sf.col(f"key_{place}").alias(f"order_{place}") for place in range(len(differing.key))]
    other = {f"other_{place}": differing.is_other(place) for place in range(len(differing.values))}
    # By a select of their own: inside of maps and arrays Spark would take a name for the cut cell of the same name.
    rows = differing.frame.withColumns(other) if other else differing.frame
    rows = rows.select("change", *_shown_key(differing, max_text), *cut, *other, *order)
    names = [f"order_{place}" for place in range(len(order))]
    return rows.orderBy(*names).limit(limit).drop(*names)


def all_rows(differing: Paired) -> DataFrame:
    """Return the rows that are not the same as people read them: the key, `change`, `X_before` and `X_after`."""
    columns = [(f"key_{place}", field.name) for place, field in enumerate(differing.key)]
    columns += [("change", "change")]
    columns += [
        (f"{side}_{place}", f"{field.name}_{side}")
        for place, field in enumerate(differing.values)
        for side in ("before", "after")
    ]
    named: dict[str, Column] = {}
    for column, name in columns:
        free = _free(name, named)
        named[free] = sf.col(column).alias(free)
    return differing.frame.select(*named.values())


def _fields(before: StructType, after: StructType) -> dict[str, StructField]:
    """Return the columns of both by their names in lower case, as Spark matches them; the later type is the wider."""
    fields = {field.name.lower(): field for field in after}
    return fields | {field.name.lower(): field for field in before if field.name.lower() not in fields}


def _side(frame: DataFrame, side: str, keys: Sequence[StructField], values: Sequence[StructField]) -> DataFrame:
    there = {name.lower() for name in frame.columns}

    def column(field: StructField) -> Column:
        found = sf.col(quoted(field.name)) if field.name.lower() in there else sf.lit(None)
        return found.cast(field.dataType)

    names = [f"key_{place}" for place in range(len(keys))]
    chosen = frame.select(
        *(column(field).alias(name) for field, name in zip(keys, names, strict=True)),
        *(column(field).alias(f"{side}_{place}") for place, field in enumerate(values)),
        sf.lit(True).alias(side),
    )
    # The join sorts by the key in any case: counting here costs no further exchange.
    return chosen.withColumn(f"{side}_times", sf.count(sf.lit(1)).over(Window.partitionBy(*names)))


def _total(paired: Paired, place: int, name: str) -> Column:
    column, kind = sf.col(name), paired.values[place].dataType
    if not paired.is_sum(place):
        return sf.avg(finite(column)).alias(name)
    return sf.try_sum(_exact(column, kind)).cast("double").alias(name)


def _exact(column: Column, kind: DataType) -> Column:
    """A whole number or decimal as a decimal, which neither overflows nor rounds when it is added up."""
    return column if isinstance(kind, DecimalType) else column.cast(DecimalType(20, 0))


def _movement(differing: Paired, place: int) -> Column:
    """How one row has moved one value; of no size if it has not."""
    old, new, kind = sf.col(f"before_{place}"), sf.col(f"after_{place}"), differing.values[place].dataType
    before, after = finite(old), finite(new)
    if differing.is_sum(place):
        whole = [sf.coalesce(_exact(column, kind), sf.lit(0).cast(kind)) for column in (new, old)]
        size = sf.abs(sf.try_subtract(*whole)).cast("double")
    else:
        size = sf.abs(after - before)
    return sf.struct(
        sf.lit(place).alias("metric"),
        before.alias("before"),
        after.alias("after"),
        sf.when(differing.is_other(place), size).alias("size"),
    )


def _shown_key(paired: Paired, max_text: int) -> list[Column]:
    return [
        shown(sf.col(f"key_{place}"), field.dataType, max_text).alias(f"key_{place}")
        for place, field in enumerate(paired.key)
    ]


def _free(name: str, taken: Collection[str]) -> str:
    """Return the name, with as many underscores behind it as keep it apart from those taken."""
    while name.lower() in {other.lower() for other in taken}:
        name += "_"
    return name
