"""Random pipelines over random rows. Each is also a program of DuckDB, which uses none of our steps.

Every operation writes the parameters of a step, and the query that means the same by what the step's page says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import stages

Columns = dict[str, str]
"""Types by the name of a column. Every frame has the string `k`."""
Row = dict[str, Any]

_TYPES = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64(), "timestamp": pa.timestamp("us")}
_MOST_ROWS = 20_000
SOURCES: dict[str, Columns] = {
    "a": {"k": "string", "g": "int64", "n": "int64", "d": "double", "time_hour": "timestamp"},
    "b": {"k": "string", "g": "int64", "w": "int64", "v": "double", "time_hour": "timestamp"},
}


@dataclass(frozen=True)
class Frame:
    """A source, or the result of a step."""

    name: str
    columns: Columns
    rows: int
    """About how many there are."""
    key: frozenset[str] | None = None
    """Columns that identify a row, if there are any."""

    def of_type(self, *types: str) -> list[str]:
        """Return the columns of these types, except `k`."""
        return [name for name, type_ in self.columns.items() if type_ in types and name != "k"]


@dataclass(frozen=True)
class Operation:
    """A step with its parameters, and the query that computes the same rows."""

    step: str
    reads: tuple[Frame, ...]
    parameters: dict[str, Any]
    query: str
    result: Frame


@dataclass(frozen=True)
class Generated:
    """A pipeline, its rows by source, and its operations in order."""

    pipeline: Pipeline
    rows: dict[str, list[Row]]
    operations: list[Operation]

    def expected(self) -> list[Row]:
        """Return the rows that the pipeline must publish, as DuckDB computes them. Timestamps have no timezone."""
        with duckdb.connect() as connection:
            for source, columns in SOURCES.items():
                # DuckDB needs an extension for timestamps with a timezone.
                schema = pa.schema([(name, _TYPES[type_]) for name, type_ in columns.items()])
                connection.register(source, pa.Table.from_pylist(self.rows[source], schema=schema))
            for operation in self.operations:
                connection.execute(f"CREATE TABLE {operation.result.name} AS {operation.query}")
            result: pa.Table = connection.table(self.operations[-1].result.name).to_arrow_table()
        assert result.column_names == list(self.operations[-1].result.columns)
        return result.to_pylist()


def generate(seed: int) -> Generated:
    """Return a pipeline of 3 to 6 steps, in one to three stages. Everything follows from the seed."""
    random = Random(seed)  # noqa: S311 - test data
    rows = {
        "a": _events(random, "a", random.choice([60, 60, 1])),
        "b": _events(random, "b", random.choice([20, 20, 0])),
    }
    frames = [Frame(name, columns, len(rows[name])) for name, columns in SOURCES.items()]
    operations: list[Operation] = []
    unread: list[Frame] = []
    size = random.randint(3, 6)
    for number in range(1, size + 1):
        # Each step that follows can read two results that no step reads, and leaves one such result.
        needed = max(0, len(unread) - (size - number))
        operation: Callable[..., Operation] = random.choice([*([] if needed == 2 else _OF_ONE), *_OF_TWO])
        reads = random.sample(unread, needed)
        while len(reads) < (2 if operation in _OF_TWO else 1):
            reads.append(random.choice([frame for frame in frames if frame not in reads]))
        random.shuffle(reads)
        done = operation(random, f"s{number}", *reads)
        operations.append(done)
        frames.append(done.result)
        unread = [frame for frame in (*unread, done.result) if frame not in reads]
    while True:
        pipeline = _pipeline(operations, exchanges=[random.random() < 0.4 for _ in operations])
        if len(stages(pipeline)) <= 3:
            return Generated(pipeline, rows, operations)


def _pipeline(operations: list[Operation], *, exchanges: list[bool]) -> Pipeline:
    steps = {
        operation.result.name: {
            "step": operation.step,
            "depends_on": [frame.name for frame in operation.reads],
            "with": operation.parameters,
            "exchange": exchange,
        }
        for operation, exchange in zip(operations, exchanges, strict=True)
    }
    read = {frame.name for operation in operations for frame in operation.reads}
    return Pipeline.model_validate(
        {
            "pipeline": "daily_delays",
            "sources": [name for name in SOURCES if name in read],
            "steps": steps,
            "publish": {"step": operations[-1].result.name, "key": ["date"]},
        }
    )


def _events(random: Random, source: str, size: int) -> list[Row]:
    """Return rows with nulls, NaN and repeated rows. Sums of their numbers are exact in any order."""
    values: dict[str, Callable[[], Any]] = {
        "string": lambda: random.choice(["a", "b", "b", "ü", "", None]),
        "int64": lambda: random.choice([random.randint(-30, 30), random.randint(0, 3), None]),
        "double": lambda: random.choice([random.randint(-40, 40) / 2, random.randint(0, 3) / 2, float("nan"), None]),
        "timestamp": lambda: datetime(2013, 3, 8, tzinfo=UTC) + timedelta(hours=random.randint(0, 23)),
    }
    rows = [{name: values[type_]() for name, type_ in SOURCES[source].items()} for _ in range(size)]
    return [random.choice(rows) if random.random() < 0.2 else row for row in rows]


def _shuffled(random: Random, names: list[str]) -> list[str]:
    return random.sample(names, len(names))


def _select(random: Random, name: str, frame: Frame) -> Operation:
    others = [column for column in frame.columns if column != "k"]
    kept = ["k", *random.sample(others, random.randint(min(1, len(others)), len(others)))]
    random.shuffle(kept)
    rename = {column: f"{name}_{column}" for column in kept if column != "k" and random.random() < 0.3}
    integers = [column for column in kept if column in frame.of_type("int64")]
    cast = {column: random.choice(["string", "double"]) for column in integers if random.random() < 0.4}
    names = {"string": "VARCHAR", "double": "DOUBLE"}
    selected = [
        f"{f'CAST({column} AS {names[cast[column]]})' if column in cast else column} AS {rename.get(column, column)}"
        for column in kept
    ]
    columns = {rename.get(column, column): cast.get(column, frame.columns[column]) for column in kept}
    return Operation(
        "select",
        (frame,),
        {"columns": kept, "rename": rename, "cast": cast},
        f"SELECT {', '.join(selected)} FROM {frame.name}",
        Frame(name, columns, frame.rows),
    )


def _filter(random: Random, name: str, frame: Frame) -> Operation:
    conditions = ["k IN ('a', 'b')", "k <> 'b'", "k IS NOT NULL"]
    for column in frame.of_type("int64"):
        conditions += [f"{column} > -5", f"{column} IS NULL OR {column} < 10", f"{column} % 3 = 1 OR k = 'ü'"]
    for column in frame.of_type("double"):
        conditions += [f"{column} <= 7.5", f"NOT ({column} > 1.5)", f"{column} > 1.5"]
    where = random.choice(conditions)
    query = f"SELECT * FROM {frame.name} WHERE {where}"
    return Operation("filter", (frame,), {"where": where}, query, Frame(name, frame.columns, frame.rows, frame.key))


def _aggregate(random: Random, name: str, frame: Frame) -> Operation:
    others = [column for column in frame.columns if column != "k"]
    groups = ["k", *random.sample(others, random.randint(0, min(1, len(others))))]
    measured = [column for column in others if column not in groups]
    measures: dict[str, Row] = {f"{name}_rows": {"function": "count"}}
    selected = [*groups, f"count(*) AS {name}_rows"]
    columns = {column: frame.columns[column] for column in groups} | {f"{name}_rows": "int64"}
    for column in random.sample(measured, min(3, len(measured))):
        type_, result = frame.columns[column], f"{name}_{column}"
        function = random.choice(_MEASURES[type_])
        measures[result] = {"function": function, "column": column}
        columns[result] = {"count": "int64", "count_distinct": "int64", "median": "double"}.get(function, type_)
        call = f"count(DISTINCT {column})" if function == "count_distinct" else f"{function}({column})"
        selected.append(f"{f'CAST({call} AS BIGINT)' if columns[result] == 'int64' else call} AS {result}")
    return Operation(
        "aggregate",
        (frame,),
        {"group_by": groups, "measures": measures},
        f"SELECT {', '.join(selected)} FROM {frame.name} GROUP BY {', '.join(groups)}",
        Frame(name, columns, frame.rows // 2, frozenset(groups)),
    )


def _deduplicate(random: Random, name: str, frame: Frame) -> Operation:
    others = [column for column in frame.columns if column != "k"]
    if not others:
        return _filter(random, name, frame)
    first, *more = random.sample(others, random.randint(1, min(2, len(others))))
    keys = ["k", *more]
    keep, direction = random.choice([("latest", "DESC"), ("earliest", "ASC")])
    order = [first, *(column for column in frame.columns if column not in (*keys, first))]
    ordered = ", ".join(f"{column} {direction} NULLS LAST" for column in order)
    window = f"row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY {ordered})"
    return Operation(
        "deduplicate",
        (frame,),
        {"keys": keys, "order_by": [first], "keep": keep},
        f"SELECT * FROM {frame.name} QUALIFY {window} = 1",
        Frame(name, frame.columns, frame.rows // 2, frozenset(keys)),
    )


def _join(random: Random, name: str, left: Frame, right: Frame) -> Operation:
    keys = ["k", *(["g"] if left.columns.get("g") == right.columns.get("g") == "int64" else [])]
    how = random.choice(["inner", "left", "right", "full", "semi", "anti"])
    repeated = left if how == "right" else right
    many = not (repeated.key and repeated.key <= set(keys))
    if many and left.rows * right.rows > _MOST_ROWS:
        how = random.choice(["semi", "anti"])
    equal = " AND ".join(f"l.{key} = r.{key}" for key in keys)
    if how in ("semi", "anti"):
        query = (
            f"SELECT * FROM {left.name} l WHERE {'NOT ' * (how == 'anti')}EXISTS (FROM {right.name} r WHERE {equal})"
        )
        result = Frame(name, left.columns, left.rows, left.key)
        return Operation("join", (left, right), {"keys": keys, "how": how}, query, result)
    take = [column for column in right.columns if column not in left.columns]
    selected = [f"coalesce(l.{key}, r.{key}) AS {key}" if key in keys else f"l.{key}" for key in left.columns]
    selected += [f"r.{column}" for column in take]
    joined = f"{left.name} l {how.upper()} JOIN {right.name} r ON {equal}"
    rows = left.rows * right.rows // 4 if many else left.rows + right.rows
    columns = left.columns | {column: right.columns[column] for column in take}
    return Operation(
        "join",
        (left, right),
        {"keys": keys, "how": how, "take": take, "many": many},
        f"SELECT {', '.join(selected)} FROM {joined}",
        Frame(name, columns, rows),
    )


def _window(random: Random, name: str, frame: Frame) -> Operation:
    integers = frame.of_type("int64")
    call = f"CAST(sum({random.choice(integers)})" if integers else "CAST(count(*)"
    query = f"SELECT *, {call} OVER (PARTITION BY k) AS BIGINT) AS {name}_w FROM {frame.name}"
    return Operation(
        "sql", (frame,), {"query": query}, query, Frame(name, {**frame.columns, f"{name}_w": "int64"}, frame.rows)
    )


def _union(random: Random, name: str, one: Frame, other: Frame) -> Operation:
    """Both inputs have the rows of `k`, and of as many columns as there are pairs of the same type."""
    pairs = [
        pair
        for type_ in _TYPES
        for pair in zip(one.of_type(type_), _shuffled(random, other.of_type(type_)), strict=False)
    ]
    first, second = (
        ", ".join(["k", *columns]) for columns in ([f"{a} AS {name}_{a}" for a, _ in pairs], [b for _, b in pairs])
    )
    query = f"SELECT {first} FROM {one.name} UNION ALL SELECT {second} FROM {other.name}"
    columns = {"k": "string", **{f"{name}_{a}": one.columns[a] for a, _ in pairs}}
    return Operation("sql", (one, other), {"query": query}, query, Frame(name, columns, one.rows + other.rows))


_MEASURES = {
    "int64": ["sum", "min", "max", "median", "count_distinct", "count"],
    "double": ["sum", "min", "max", "count_distinct", "count"],
    "string": ["min", "max", "count_distinct", "count"],
    "timestamp": ["min", "max", "count_distinct"],
}
_OF_ONE = [_select, _filter, _aggregate, _deduplicate, _window]
_OF_TWO = [_join, _join, _union]
