"""A month of hours and their days, computed and published by Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from slackwater.runs.record import Run
from slackwater.spark.stage import StageJob, run_stage_job
from tests.month_of_hours import ZONES, MonthWorld, check_days, check_hours

pytestmark = [pytest.mark.long, pytest.mark.timeout(7200)]

PROJECT = "s3://assets/project.json"


class SparkMonth(MonthWorld):
    """A month whose jobs run in the session of the tests."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self.spark = spark
        self.store.put(PROJECT, self.project.model_dump_json(by_alias=True).encode())

    def publish(self, run: Run) -> None:
        job = StageJob(run=run, stage="by_kind", project=PROJECT, catalog_table=f"memory.month.{run.pipeline}")
        run_stage_job(self.spark, job, stores=lambda: self.store)

    def published(self, pipeline: str) -> list[tuple[Any, ...]]:
        rows = self.spark.table(f"memory.month.{pipeline}").collect()
        return sorted((str(date), *others) for date, *others in rows)


@pytest.fixture(scope="module")
def month(spark, interpreted) -> SparkMonth:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS memory.month")
    return SparkMonth(spark).play()


def test_each_hour_has_the_rows_that_duckdb_computes(month):
    check_hours(month)


@pytest.mark.parametrize("name", ZONES)
def test_the_hours_of_each_local_day_add_up_to_the_daily_pipeline(month, name):
    check_days(month, name)
