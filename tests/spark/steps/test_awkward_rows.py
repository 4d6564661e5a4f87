"""Transform steps with rows that are easy to get wrong, compared with plain Python.

Steps that look at several rows are compared with pandas, numpy and DuckDB in files of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame

from tests.spark.frames import frame_of
from tests.spark.steps.applied import applied

pytestmark = pytest.mark.usefixtures("interpreted")

NAN, INF = math.nan, math.inf
NAME = "nä.me `x`"
SCHEMA = f"`{NAME.replace('`', '``')}` string, v double, d decimal(9, 2), n bigint"
SQL_NAME = "`nä.me ``x```"

Row = dict[str, Any]


def rows_of(*values: tuple[str | None, float | None, str | None]) -> list[Row]:
    return [
        {NAME: name, "v": v, "d": None if d is None else Decimal(d).quantize(Decimal("0.01")), "n": number}
        for number, (name, v, d) in enumerate(values)
    ]


INPUTS = {
    "empty": [],
    "one row": rows_of(("a", 1.5, "1.10")),
    "all null": rows_of((None, None, None), (None, None, None)),
    "NaN, infinities and large decimals": rows_of(
        ("a", NAN, "1"),
        ("b", INF, "2"),
        ("b", -INF, None),
        ("c", 1.0, "3.33"),
        ("c", 2.0, "4"),
        ("a", 0.1, "9999999.99"),
        ("b", 0.2, "-9999999.99"),
        ("a", 0.3, "0.01"),
        (None, -0.0, "0"),
    ),
    "unicode and skew": rows_of(
        ("航空✈'`", 1.0, "1"),
        ("Zoë", 2.0, "2"),
        ("Zoe\u0308", 4.0, "2"),
        ("航空✈'`", 3.0, "3"),
        ("one", -1.0, "-1"),
        *(("big", i / 7, f"{i}.25") for i in range(300)),
    ),
}
REFERENCE = [("a", "Alpha"), ("航空✈'`", "Aero"), ("big", "Big"), ("Zoë", None)]
LABELS = dict(REFERENCE)


def is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def grouped(rows: Iterable[Row]) -> dict[str | None, list[Row]]:
    groups: dict[str | None, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[NAME], []).append(row)
    return groups


def total(values: Iterable[Decimal | None]) -> Decimal | None:
    present = [value for value in values if value is not None]
    return sum(present, Decimal(0)) if present else None


def selected(row: Row) -> Row:
    return {"n": str(row["n"]), "w": row["v"], NAME: row[NAME], "d": row["d"]}


class Use(NamedTuple):
    step: str
    parameters: dict[str, Any]
    expected: Callable[[list[Row]], list[Row]]
    needs_reference: bool = False


USES = [
    Use(
        "clean_nan", {"strategy": "drop"}, lambda rows: [row for row in rows if not any(map(is_missing, row.values()))]
    ),
    Use(
        "select",
        {"columns": ["n", "v", NAME, "d"], "rename": {"v": "w"}, "cast": {"n": "string"}},
        lambda rows: [selected(row) for row in rows],
    ),
    Use(
        "delete_columns",
        {"columns": [NAME]},
        lambda rows: [{k: v for k, v in row.items() if k != NAME} for row in rows],
    ),
    Use(
        "filter",
        {"where": f"v > 1 OR {SQL_NAME} = 'Zoë'"},  # Spark orders NaN above all numbers
        lambda rows: [row for row in rows if row[NAME] == "Zoë" or (row["v"] is not None and not row["v"] <= 1)],
    ),
    Use(
        "data_quality",
        {"rules": [{"rule": "range", "column": "v", "min": -0.5, "max": 1e9, "severity": "reject"}]},
        lambda rows: [row for row in rows if row["v"] is None or -0.5 <= row["v"] <= 1e9],
    ),
    Use(
        "lookup",
        {"column": NAME, "reference_column": "key", "values": ["label"], "missing": "null"},
        lambda rows: [{"label": LABELS.get(row[NAME]), **{k: v for k, v in row.items() if k != NAME}} for row in rows],
        needs_reference=True,
    ),
    Use(
        "sql",
        {"query": f"SELECT {SQL_NAME} AS name, count(*) AS c, sum(d) AS s FROM rows GROUP BY 1"},
        lambda rows: [
            {
                "name": name,
                "c": len(group),
                "s": total(row["d"] for row in group),
            }
            for name, group in grouped(rows).items()
        ],
    ),
]


def comparable(rows: Iterable[Row]) -> list[str]:
    """Rows in an order that does not depend on Spark, with NaN equal to NaN."""
    return sorted(repr(sorted(row.items())) for row in rows)


def computed(use: Use, rows: DataFrame) -> list[str]:
    frames = {"rows": rows.repartition(2)}
    if use.needs_reference:
        frames["reference"] = frame_of(rows.sparkSession, REFERENCE, "key string, label string")
    return comparable(applied(use.step, frames, **use.parameters).rows)


each_use = pytest.mark.parametrize("use", USES, ids=[f"{use.step}-{index}" for index, use in enumerate(USES)])


@pytest.mark.parametrize("name", INPUTS)
@each_use
def test_rows_are_those_of_plain_python(spark, use: Use, name: str):
    rows = INPUTS[name]
    expected = use.expected([dict(row) for row in rows])
    assert computed(use, frame_of(spark, [tuple(row.values()) for row in rows], SCHEMA)) == comparable(expected)


@pytest.mark.usefixtures("generated")
@each_use
def test_an_input_may_be_empty_only_at_run_time(spark, use: Use):
    frame = frame_of(spark, [("a", 1.5, Decimal("1.10"), 0)], SCHEMA)
    assert computed(use, frame.where("n > 0")) == comparable(use.expected([]))
