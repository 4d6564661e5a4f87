"""Join two versions of a day's rows by their key: which rows were added, removed or changed, and by how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf
from pyspark.sql.types import DecimalType, IntegralType, NumericType, StructField

from slackwater.arrow.names import quoted
from slackwater.errors import DataError
from slackwater.late.comparison import Totals
from slackwater.pipeline.definition import Aggregation
from slackwater.steps.values import as_decimal, equal, finite, readable

ADDED, REMOVED, CHANGED = "added", "removed", "changed"


@dataclass(frozen=True)
class Metric:
    """A column whose totals over the day are compared."""

    name: str
    total: Totals
    index: int | None
    """The index in `PairedVersions.values`; None if neither version has a column of numbers with this name."""


@dataclass(frozen=True)
class PairedVersions:
    """Two versions of a day's rows, joined by their key."""

    frame: DataFrame
    """One row for each key, if no version has a key twice, with these columns:

    - `key_N`, `before_N` and `after_N`, where N is the index in `key` or `values`,
    - `change`: `added`, `removed`, `changed`, or null for an equal row,
    - `before` and `after`: true where the version has the row,
    - `before_times` and `after_times`: how many rows of the version have the key.
    """
    key: tuple[StructField, ...]
    """The columns of the key."""
    values: tuple[StructField, ...]
    """All other columns of both versions."""
    tolerance: float
    """The largest relative difference of equal floating-point values."""

    def metrics(self, declared: Mapping[str, Aggregation]) -> tuple[Metric, ...]:
        """Return the metrics that `publish.metrics` declares. Without any, all columns of numbers are summed."""
        # Names in a definition have lower case.
        numbers = {
            field.name.lower(): index
            for index, field in enumerate(self.values)
            if isinstance(field.dataType, NumericType)
        }
        if not declared:
            return tuple(Metric(self.values[index].name, Totals.SUM, index) for index in numbers.values())
        totals = {name: Totals(aggregation) for name, aggregation in declared.items() if aggregation != "none"}
        return tuple(Metric(name, total, numbers.get(name)) for name, total in totals.items())

    def is_exact(self, index: int) -> bool:
        """Whether this value is an integer or a decimal."""
        return isinstance(self.values[index].dataType, IntegralType | DecimalType)

    def differs(self, index: int) -> Column:
        """Whether this value differs between the versions of a row; never null."""
        data_type = self.values[index].dataType
        return ~equal(sf.col(f"before_{index}"), sf.col(f"after_{index}"), data_type, self.tolerance)

    def differing(self) -> PairedVersions:
        """Return the rows that were added, removed or changed."""
        return replace(self, frame=self.frame.where(sf.col("change").isNotNull()))


def pair_versions(before: DataFrame, after: DataFrame, *, key: Sequence[str], tolerance: float) -> PairedVersions:
    """Join two versions by `key`. A column that one version lacks is null there.

    Floating-point values, also inside of arrays, maps and structs, are equal if they differ by at most `tolerance` of
    the larger one; NaN equals NaN. All other values are compared exactly. Raises `DataError` for a key column that
    neither version has.
    """
    # Spark matches names without regard to case. A column's type only ever becomes wider, so that the type in `after`
    # holds the values of both versions.
    fields = {field.name.lower(): field for field in after.schema}
    fields |= {field.name.lower(): field for field in before.schema if field.name.lower() not in fields}
    missing = [name for name in key if name.lower() not in fields]
    if missing:
        raise DataError(f"publish.key names {', '.join(missing)}, which neither version has")
    keys = tuple(fields.pop(name.lower()) for name in key)
    values = tuple(fields.values())
    sides = [_side(frame, name, keys, values) for frame, name in ((before, "before"), (after, "after"))]
    joined = sides[0].join(sides[1], on=[f"key_{index}" for index in range(len(keys))], how="full")
    paired = PairedVersions(frame=joined, key=keys, values=values, tolerance=tolerance)
    change = (
        sf.when(sf.col("before").isNull(), ADDED)
        .when(sf.col("after").isNull(), REMOVED)
        .when(reduce(or_, map(paired.differs, range(len(values))), sf.lit(False)), CHANGED)
    )
    return replace(paired, frame=joined.withColumn("change", change))


def _side(frame: DataFrame, side: str, keys: Sequence[StructField], values: Sequence[StructField]) -> DataFrame:
    """Return one version with the column names of `PairedVersions.frame`; `side` is `before` or `after`."""
    existing = {name.lower() for name in frame.columns}

    def column(field: StructField) -> Column:
        value = sf.col(quoted(field.name)) if field.name.lower() in existing else sf.lit(None)
        return value.cast(field.dataType)

    names = [f"key_{index}" for index in range(len(keys))]
    selected = frame.select(
        *(column(field).alias(name) for field, name in zip(keys, names, strict=True)),
        *(column(field).alias(f"{side}_{index}") for index, field in enumerate(values)),
        sf.lit(True).alias(side),
    )
    # The join shuffles and sorts by the key in any case, so this count costs no shuffle of its own.
    return selected.withColumn(f"{side}_times", sf.count(sf.lit(1)).over(Window.partitionBy(*names)))


def movers(differing: PairedVersions, metrics: Sequence[Metric], *, limit: int, max_length: int) -> DataFrame:
    """Return the rows that changed the total of each metric the most, in any order.

    At most `limit` rows for each metric; strings have at most `max_length` characters. `metric` is the index of its
    value, and `rank` is 1 for the row that changed it the most; `before` and `after` are numbers, or null where a
    version has none. A row that was added or removed changes a sum by its whole value. By how much it changes a mean is
    not known, so it is left out there. For a minimum or a maximum, the first row is the one with the smallest or
    largest value of both versions.

    At least one of the metrics must be the metric of a value.
    """
    keys = [sf.col(f"key_{index}") for index in range(len(differing.key))]
    movements = sf.array(
        *(_movement(differing, metric.total, metric.index) for metric in metrics if metric.index is not None)
    )
    moved = differing.frame.select(*keys, sf.inline(movements))
    order = Window.partitionBy("metric").orderBy(sf.col("size").desc(), *keys)
    ranked = moved.where("size IS NOT NULL").withColumn("rank", sf.row_number().over(order))
    readable_key = _readable_key(differing, max_length)
    return ranked.where(sf.col("rank") <= limit).select("metric", "rank", "before", "after", *readable_key)


def examples(differing: PairedVersions, *, limit: int, max_length: int) -> DataFrame:
    """Return the first `limit` rows that differ, ordered by key, with the columns of `PairedVersions.frame`.

    `differs_N` says whether the value with index N differs. Every cell is a boolean, a number, or a string of at most
    `max_length` characters. The executors cut strings, so that the driver's memory is bounded for any content.
    """
    cells = [
        readable(sf.col(f"{side}_{index}"), field.dataType, max_length).alias(f"{side}_{index}")
        for index, field in enumerate(differing.values)
        for side in ("before", "after")
    ]
    order = [sf.col(f"key_{index}").alias(f"order_{index}") for index in range(len(differing.key))]
    differs = {f"differs_{index}": differing.differs(index) for index in range(len(differing.values))}
    # Computed before the `select`: there, Spark would resolve a name inside of a map or array to the cut cell of the
    # same name.
    rows = differing.frame.withColumns(differs) if differs else differing.frame
    rows = rows.select("change", *_readable_key(differing, max_length), *cells, *differs, *order)
    names = [f"order_{index}" for index in range(len(order))]
    return rows.orderBy(*names).limit(limit).drop(*names)


def differing_rows(differing: PairedVersions) -> DataFrame:
    """Return the rows that differ with readable column names: the key, `change`, `X_before` and `X_after`.

    A name that occurs twice gets underscores at its end.
    """
    columns = [(f"key_{index}", field.name) for index, field in enumerate(differing.key)]
    columns += [("change", "change")]
    columns += [
        (f"{side}_{index}", f"{field.name}_{side}")
        for index, field in enumerate(differing.values)
        for side in ("before", "after")
    ]
    renamed: dict[str, Column] = {}
    for column, name in columns:
        unique = name
        while unique.lower() in {other.lower() for other in renamed}:
            unique += "_"
        renamed[unique] = sf.col(column).alias(unique)
    return differing.frame.select(*renamed.values())


def _movement(differing: PairedVersions, total: Totals, index: int) -> Column:
    """Return by how much a row has changed the total of one value, as a struct; `size` is null if it has not."""
    data_type = differing.values[index].dataType
    old, new = sf.col(f"before_{index}"), sf.col(f"after_{index}")
    before, after = finite(old), finite(new)
    if total is Totals.MIN:
        size = -sf.least(before, after)
    elif total is Totals.MAX:
        size = sf.greatest(before, after)
    else:
        is_exact = differing.is_exact(index)
        numbers = [as_decimal(column, data_type) for column in (new, old)] if is_exact else [after, before]
        if total is Totals.SUM:
            numbers = [sf.coalesce(number, sf.lit(0).cast(data_type)) for number in numbers]
        size = sf.nullif(sf.abs(sf.try_subtract(*numbers)).cast("double"), sf.lit(0.0))
    return sf.struct(
        sf.lit(index).alias("metric"),
        before.alias("before"),
        after.alias("after"),
        sf.when(differing.differs(index), size).alias("size"),
    )


def _readable_key(paired: PairedVersions, max_length: int) -> list[Column]:
    """Return the columns of the key with cells as `examples` describes them."""
    return [
        readable(sf.col(f"key_{index}"), field.dataType, max_length).alias(f"key_{index}")
        for index, field in enumerate(paired.key)
    ]
