"""The totals of two versions of a day: Spark computes those of each hour in one pass, the driver combines them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    DataType,
    DecimalType,
    IntegralType,
    StructField,
    TimestampNTZType,
    TimestampType,
)

from slackwater.errors import DataError
from slackwater.late.changes.hour_totals import QUARTER, HourOfDay, PartialTotal, combined, quarters_of_day
from slackwater.late.changes.pairs import VersionPair
from slackwater.late.comparison import HourTotals, MetricChange, RowCounts, Totals
from slackwater.runs.period import Period
from slackwater.spark.compare.paired import ADDED, CHANGED, REMOVED, Metric, PairedVersions
from slackwater.steps.values import as_decimal, finite

SIDES = ("before", "after")
# Spark's decimals have at most 38 digits: ten billion values of at most so many digits have a sum that fits.
_SUMMABLE_DIGITS = 28


@dataclass(frozen=True)
class HourColumn:
    """The hour of each row as an index in `hours`; null for rows without an hour of the day."""

    hours: tuple[HourOfDay, ...]
    """The hours of the day in order."""
    before: Column
    after: Column | None = None
    """None for a column of the key: it is the same in both versions."""


def hour_column(paired: PairedVersions, name: str | None, *, day: Period, timezone: str) -> HourColumn | None:
    """Return the hours of the column `publish.hour`, or, if `name` is None, of a column of the key that has hours.

    Timestamps have hours, and so do integers if they are declared or named `hour`: these are local hours. None without
    such a column.
    """
    keys = [(field, [f"key_{index}"]) for index, field in enumerate(paired.key)]
    values = [(field, [f"before_{index}", f"after_{index}"]) for index, field in enumerate(paired.values)]
    for field, columns in [*keys, *values] if name else keys:
        if _has_hours(field, name):
            return _hours([sf.col(column) for column in columns], field.dataType, day, timezone)
    return None


def _has_hours(field: StructField, name: str | None) -> bool:
    if name and field.name.lower() != name:
        return False
    if isinstance(field.dataType, TimestampType | TimestampNTZType):
        return True
    return isinstance(field.dataType, IntegralType) and field.name.lower() == (name or "hour")


def _hours(columns: Sequence[Column], data_type: DataType, day: Period, timezone: str) -> HourColumn:
    """Return the hours of columns of a type that has hours."""
    if isinstance(data_type, TimestampType):
        quarters = quarters_of_day(day, timezone)
        hours = tuple(dict.fromkeys(quarters))
        indexes = sf.array(*(sf.lit(hours.index(hour)) for hour in quarters))
        start, length = sf.lit(int(day.start.timestamp())), sf.lit(int(QUARTER.total_seconds()))
        seconds = (sf.unix_seconds(column) - start for column in columns)
        # An index before or after the array gives null, also one that is too large for an integer.
        return HourColumn(hours, *(sf.get(indexes, sf.floor(second / length).try_cast("int")) for second in seconds))
    hours = tuple(HourOfDay(hour, None) for hour in range(24))
    if isinstance(data_type, IntegralType):
        return HourColumn(hours, *(sf.when(column.between(0, 23), column.cast("int")) for column in columns))
    is_of_day = (column.cast("date") == sf.lit(day.date) for column in columns)
    return HourColumn(hours, *(sf.when(of, sf.hour(column)) for of, column in zip(is_of_day, columns, strict=True)))


def grouped_totals(paired: PairedVersions, metrics: Sequence[Metric], hour: HourColumn | None) -> DataFrame:
    """Return the totals of the rows with the same hours in both versions, or of all rows, computed in one pass.

    `before`, `after`, `added`, `removed` and `changed` count rows. `before_times` and `after_times` are the largest
    numbers of rows with one key. `before_N` and `after_N` are structs with the fields of `PartialTotal`, of the metric
    whose value has the index N; an exact total is a string. `hour_before` and `hour_after` are those of `hour`.
    """
    totals = [sf.count(side).alias(side) for side in SIDES]
    totals += [sf.count_if(sf.col("change") == change).alias(change) for change in (ADDED, REMOVED, CHANGED)]
    totals += [sf.max(side).alias(side) for side in ("before_times", "after_times")]
    for metric in metrics:
        if metric.index is not None:
            data_type = paired.values[metric.index].dataType
            names = (f"{side}_{metric.index}" for side in SIDES)
            totals += [_partial_total(metric.total, sf.col(name), data_type).alias(name) for name in names]
    if hour is None:
        return paired.frame.agg(*totals)
    if hour.after is None:
        by_hour = paired.frame.groupBy(hour.before.alias("hour_before")).agg(*totals)
        return by_hour.withColumn("hour_after", sf.col("hour_before"))
    return paired.frame.groupBy(hour.before.alias("hour_before"), hour.after.alias("hour_after")).agg(*totals)


def _partial_total(total: Totals, column: Column, data_type: DataType) -> Column:
    is_exact = isinstance(data_type, IntegralType | DecimalType)
    number = column if is_exact else finite(column)
    if total in (Totals.MIN, Totals.MAX):
        result = (sf.min(number) if total is Totals.MIN else sf.max(number)).cast("double")
    elif not is_exact:
        result = sf.sum(number)
    else:
        result = sf.try_sum(as_decimal(number, data_type)).cast("string")
        if isinstance(data_type, DecimalType) and data_type.precision > _SUMMABLE_DIGITS:
            # A sum with more digits than a decimal has is rounded; without this, the day would seem to have no value.
            result = sf.coalesce(result, sf.sum(number.cast("double")).cast("string"))
    return sf.struct(result.alias("total"), sf.count(number).alias("values"))


def day_totals(
    paired: PairedVersions, metrics: Sequence[Metric], hour: HourColumn | None, pair: VersionPair
) -> tuple[RowCounts, tuple[MetricChange, ...]]:
    """Return how many rows differ, and the change of each metric over the day and by hour, with one Spark action.

    The changes have no movers yet. A metric of which neither version has numbers is there without totals, so that
    readers see its name. Raises `DataError` if a version has several rows with one key.
    """
    groups = grouped_totals(paired, metrics, hour).collect()
    for side, version in zip(SIDES, (pair.before, pair.after), strict=True):
        # The largest number is null for a version without rows.
        if any((group[f"{side}_times"] or 0) > 1 for group in groups):
            raise DataError(
                f"attempt {version.attempt} has keys ({', '.join(field.name for field in paired.key)}) that occur more "
                "than once: it was published with another publish.key, and this key does not identify its rows"
            )
    rows = RowCounts(**{name: sum(group[name] for group in groups) for name in RowCounts.model_fields})
    changes = []
    for metric in metrics:
        before, after = (_combined_total(metric, side, groups) for side in SIDES)
        change = MetricChange(
            metric=metric.name,
            total=metric.total,
            exact=metric.index is not None and paired.is_exact(metric.index),
            before=before,
            after=after,
            hours=tuple(_hour_totals(metric, groups, hour, pair.date)),
        )
        changes.append(change)
    return rows, tuple(changes)


def _hour_totals(metric: Metric, groups: Sequence[Row], column: HourColumn | None, day: str) -> Iterator[HourTotals]:
    """Yield the totals of a metric by hour, and last those of rows without an hour.

    Nothing if the table has no column of hours.
    """
    if column is None or metric.index is None:
        return
    for index, hour in [*enumerate(column.hours), (None, None)]:
        # A row has an hour only in a version that has the row.
        of_hour = {
            side: [group for group in groups if group[side] and group[f"hour_{side}"] == index] for side in SIDES
        }
        if hour or any(of_hour.values()):
            before, after = (_combined_total(metric, side, of_hour[side]) for side in SIDES)
            yield HourTotals(hour=hour.start(day) if hour else None, before=before, after=after)


def _combined_total(metric: Metric, side: str, groups: Sequence[Row]) -> float | None:
    """Return the total of a metric over rows of `grouped_totals`, in one version."""
    parts = []
    for group in groups if metric.index is not None else ():
        total, values = group[f"{side}_{metric.index}"]
        if values:
            parts.append(PartialTotal(Fraction(total) if isinstance(total, str) else total, values))
    return combined(metric.total, parts)
