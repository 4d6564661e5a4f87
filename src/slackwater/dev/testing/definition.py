"""A test of a pipeline, as a user writes it in `tests/NAME.yaml`: rows of its inputs, and the rows to expect.

As a program, this module prints the JSON Schema, as docs/contracts/test.schema.json holds it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Discriminator, Field, JsonValue, Tag, model_validator

from slackwater.model import Model, Name, PeriodName
from slackwater.problems import Problem, Problems

Row = dict[str, JsonValue]
"""The values of a row by column."""
RowsOrFile = Annotated[
    Annotated[list[Row], Tag("rows")] | Annotated[str, Tag("file")],
    Discriminator(lambda value: "file" if isinstance(value, str) else "rows"),
]
"""Errors are those of rows, unless the value is a string."""


class PipelineTest(Model):
    """A test: the rows of a pipeline's inputs, and the rows that its steps make of them."""

    pipeline: Name
    """The pipeline that runs."""
    date: PeriodName
    """The day that it runs for, in its timezone; of an hourly pipeline, the hour: `2026-01-01T15`."""
    inputs: dict[Name, RowsOrFile]
    """By the name of each source and table of the pipeline: its rows, or a file with them, relative to the test. Rows
    of a source are JSON events of the partner, before the source's definition is applied."""
    rejected: dict[Name, Annotated[int, Field(gt=0)]] = {}
    """By source: how many rows its definition rejects. By default a rejected row fails the test."""
    expect: Annotated[dict[Name, list[Row]], Field(min_length=1)]
    """By step: all its rows, in any order. Only the columns that the rows name are compared, and all rows of a step
    name the same ones. An empty list expects no rows."""

    @model_validator(mode="after")
    def _check_columns(self) -> PipelineTest:
        if problems := list(self._column_problems()):
            raise Problems(*problems)
        return self

    def _column_problems(self) -> Iterator[Problem]:
        for step, rows in self.expect.items():
            for index, row in enumerate(rows):
                path = ("expect", step, index)
                if not row:
                    yield Problem(path=path, message="a row names at least one column")
                elif row.keys() != rows[0].keys():
                    names = ", ".join(sorted(row.keys() ^ rows[0].keys()))
                    message = f"all rows of a step name the same columns: only this row or the first one has {names}"
                    yield Problem(path=path, message=message)


def fixture_schema() -> dict[str, Any]:
    """Return the JSON Schema of a test."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **PipelineTest.model_json_schema()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fixture_schema(), indent=2) + "\n")
