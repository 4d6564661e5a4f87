"""Ten days of hours and their days, in which plain Python computes the rows of each run from its input manifest.

tests/spark has the month, whose rows Spark computes.
"""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pyarrow.parquet as pq
import pytest

from slackwater.runs.attempt_files import publication_uri
from slackwater.runs.period import partition_values, period_of
from slackwater.runs.record import Publication, Run
from tests.month_of_hours import KINDS, MonthWorld, check_days, check_hours

pytestmark = pytest.mark.unit


class PythonDays(MonthWorld):
    """Days whose tables are dictionaries: the rows of each day or hour, by pipeline and name."""

    first, days = datetime(2013, 3, 30, tzinfo=UTC), 10

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[tuple[str, str], list[tuple[Any, ...]]] = {}

    def publish(self, run: Run) -> None:
        period = period_of(run.date, self.project.pipeline(run.pipeline).timezone)
        objects = self.manifest(run.manifest).of_source("clicks")
        read = [pq.read_table(io.BytesIO(self.store.get(item.uri))).to_pylist() for item in objects]
        events = {event["id"]: event for each in read for event in each if period.start <= event["at"] < period.end}
        partition = [str(value) if name == "date" else value for name, value in partition_values(run.date).items()]
        rows = []
        for kind in KINDS:
            values = [event["value"] for event in events.values() if event["kind"] == kind]
            rows += [(*partition, kind, len(values), sum(values))] if values else []
        self.tables[run.pipeline, run.date] = rows
        publication = Publication(
            table=run.pipeline, snapshot_id=str(run.attempt), rows=len(rows), replaced=0, seconds=1, content=repr(rows)
        )
        self.store.put(publication_uri(run.prefix), publication.model_dump_json().encode())

    def published(self, pipeline: str) -> list[tuple[Any, ...]]:
        return sorted(row for (name, _), rows in self.tables.items() if name == pipeline for row in rows)


@pytest.fixture(scope="module")
def days() -> PythonDays:
    return PythonDays().play()


def test_each_hour_has_the_rows_that_duckdb_computes(days):
    check_hours(days)


@pytest.mark.parametrize("name", ["berlin", "auckland"])
def test_the_hours_of_each_local_day_add_up_to_the_daily_pipeline(days, name):
    check_days(days, name)
