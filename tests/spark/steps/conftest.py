"""What tests of steps use: a context with the project's files in a folder."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import pytest
from pyspark.sql import SparkSession

from slackwater.runs.period import day_of
from slackwater.runs.record import Run
from slackwater.steps.files import ProjectFiles
from slackwater.steps.step import StepContext
from tests.fakes_runs import LONGEST_RUN
from tests.fakes_spark import FolderStore
from tests.postgres import SECRETS

PREFIX = "s3://bucket/files/"
DAY = date(2013, 3, 10)


def run_of(attempt: int, day: date | str = DAY) -> Run:
    """Return the run of an attempt of a day, or of an hour by its name."""
    return LONGEST_RUN.model_copy(update={"attempt": attempt, "date": str(day), "pipeline": "p"})


@pytest.fixture
def files(store: FolderStore, stores: Callable[[], FolderStore]) -> ProjectFiles:
    return ProjectFiles(PREFIX, stores)


@pytest.fixture
def context(spark: SparkSession, files: ProjectFiles) -> StepContext:
    return StepContext(spark=spark, files=files, day=day_of(DAY, "UTC"), run=run_of(1), secrets=SECRETS)
