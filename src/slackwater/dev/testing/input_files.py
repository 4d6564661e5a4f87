"""Write the rows of a test to files, which the loop of `slackwater dev` reads like those of its option `--input`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from slackwater.dev.testing.definition import PipelineTest, Row
from slackwater.pipeline.definition import Pipeline
from slackwater.problems import Problem, Problems
from slackwater.runs.period import is_hour
from slackwater.sources.event_schema import TIMESTAMP

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})")


def input_files(test: PipelineTest, pipeline: Pipeline, *, folder: Path, scratch: Path) -> dict[str, list[Path]]:
    """Return the file of each input: the one that the test names, relative to `folder`, or a new one in `scratch`.

    In the file of a source, each line is a row. Raises `Problems` for rows of a table that make no column.
    """
    files = {}
    for name, rows in test.inputs.items():
        if isinstance(rows, str):
            files[name] = [folder / rows]
        elif name in pipeline.sources:
            files[name] = [scratch / f"{name}.ndjson"]
            files[name][0].write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        else:
            files[name] = [scratch / f"{name}.parquet"]
            parquet.write_table(_table(rows, name), files[name][0])
    return files


def _table(rows: Sequence[Row], name: str) -> pa.Table:
    """Return rows with the types of their values; columns of ISO dates and instants have these types."""
    columns = {}
    for column in dict.fromkeys(key for row in rows for key in row):
        try:
            columns[column] = _array([row.get(column) for row in rows])
        except (pa.ArrowException, ValueError) as error:
            message = f"the values of {column} have no common type: {str(error).partition(chr(10))[0]}"
            raise Problems(Problem(path=("inputs", name), message=message, at_key=True)) from error
    return pa.table(columns)


def _array(values: Sequence[Any]) -> pa.Array:
    texts = [value for value in values if value is not None]
    if _all_match(_DATE, texts):
        return pa.array([value and date.fromisoformat(value) for value in values], pa.date32())
    if _all_match(_INSTANT, texts):
        return pa.array([value and datetime.fromisoformat(value) for value in values], TIMESTAMP)
    return pa.array(values)


def _all_match(pattern: re.Pattern[str], values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(value, str) and pattern.fullmatch(value) for value in values)


def periods_that_are_not_read(
    test: PipelineTest, read: Mapping[str, Sequence[str]], tables: Mapping[str, pa.Table]
) -> Iterable[Problem]:
    """Yield the problem of each published table with rows that a run would not read: of other periods, or of none.

    `read` are the days or hours of each that a run reads, in order.
    """
    for name, periods in read.items():
        table = tables[name]
        path = ("inputs", name)
        if not table.num_rows:
            continue
        columns = ["date", "hour"] if is_hour(periods[0]) else ["date"]
        if missing := [column for column in columns if column not in table.column_names]:
            message = f"no column `{missing[0]}`, which the rows of a published table have"
            yield Problem(path=path, message=message, at_key=True)
            continue
        for index, row in enumerate(table.select(columns).to_pylist()):
            period = "T".join(f"{value:02d}" if isinstance(value, int) else str(value) for value in row.values())
            if period not in periods:
                span = f"{periods[0]} to {periods[-1]}" if len(periods) > 1 else periods[0]
                message = f"a row of {period}: the pipeline reads {span} of this table"
                is_row = not isinstance(test.inputs[name], str)
                yield Problem(path=(*path, index, "date") if is_row else path, message=message, at_key=not is_row)
                break
