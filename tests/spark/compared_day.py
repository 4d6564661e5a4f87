"""A day on a real Iceberg table with two published versions, and their comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import count
from typing import Any

from slackwater.arrow.dataset import load_manifest
from slackwater.arrow.exchange import read_frame
from slackwater.late.changes.pairs import VersionPair, pair_uri
from slackwater.late.comparison import (
    Comparison,
    PublishedVersion,
)
from slackwater.project.project import load_project
from slackwater.runs.record import version_tag
from slackwater.spark.commit import current_snapshot, find_commit, overwrite_day
from slackwater.spark.compare.comparison import (
    ComparisonJob,
    compare_versions,
)
from slackwater.spark.publish import with_partition
from slackwater.spark.table import create_tag, prepare_table
from tests.spark.frames import frame_of
from tests.spark.nyc import PROJECT_URI
from tests.two_stages import PROJECT

DAY = date(2013, 3, 8)
OTHER_DAY = date(2013, 3, 9)
NOON = datetime(2013, 3, 9, 12, tzinfo=UTC)
SCHEMA = "origin string, carrier string, flights bigint, delay double"
ROWS = [("EWR", "UA", 3, 1.5), ("JFK", "B6", 2, None), ("LGA", "DL", 5, -2.0)]
PREFIX = f"s3://exchange/comparisons/daily_delays/{DAY}/1-2/"
JOB = ComparisonJob(pipeline="daily_delays", date=str(DAY), prefix=PREFIX, job="j", correlation_id="c")
_numbers = count()


@dataclass
class Day:
    """A table with versions of a day, as publishing leaves them, and the comparison of the first two."""

    spark: Any
    store: Any
    stores: Any
    table: str
    key: tuple[str, ...] = ("date", "origin", "carrier")
    metrics: dict[str, str] = field(default_factory=dict)
    hour: str | None = None
    versions: list[PublishedVersion] = field(default_factory=list)

    def publish(self, rows: Any, schema: str = SCHEMA) -> PublishedVersion:
        attempt = len(self.versions) + 1
        frame = with_partition(frame_of(self.spark, rows, schema), str(DAY))
        identity = {
            "slackwater.pipeline": "daily_delays", "slackwater.date": str(DAY), "slackwater.run-id": "r" * 32,
            "slackwater.attempt": str(attempt),
        }  # fmt: skip
        prepare_table(self.spark, self.table, frame, ["date"])
        inspected = current_snapshot(self.spark, self.table)
        overwrite_day(frame, self.table, str(DAY), identity, inspected=inspected)
        commit = find_commit(self.spark, self.table, identity)
        name = version_tag(date=str(DAY), run_id="r" * 32, attempt=attempt)
        create_tag(self.spark, self.table, name, commit.snapshot_id)
        version = PublishedVersion(
            attempt=attempt, run_id="r" * 32, tag=name, snapshot_id=commit.snapshot_id, published_at=NOON,
            frozen_at=NOON, manifest=f"s3://exchange/manifests/{attempt}.json",
        )  # fmt: skip
        self.versions.append(version)
        return version

    def compare(self) -> Comparison:
        self.name_versions(*self.versions[-2:])
        return self.run(JOB)

    def name_versions(self, before: PublishedVersion, after: PublishedVersion) -> None:
        """Write the project and pair.json, which a comparison job reads. Only the pair declares `metrics`."""
        project = load_project(PROJECT)
        pipeline = project.pipelines["daily_delays"]
        update = {"key": self.key, "hour": self.hour, "metrics": {"no_column": "max"}}
        publish = pipeline.publish.model_copy(update=update)
        keyed = pipeline.model_copy(update={"publish": publish})
        project = project.model_copy(update={"pipelines": {"daily_delays": keyed}})
        self.store.put(PROJECT_URI, project.model_dump_json(by_alias=True).encode())
        pair = VersionPair(
            pipeline="daily_delays", date=str(DAY), before=before, after=after, metrics=self.metrics
        )  # fmt: skip
        self.store.put(pair_uri(PREFIX), pair.model_dump_json().encode())

    def run(self, job: ComparisonJob) -> Comparison:
        return compare_versions(self.spark, job, project=PROJECT_URI, catalog_table=self.table, stores=self.stores)

    def of(self, before: Any, after: Any, schema: str = SCHEMA, later: str = "") -> Comparison:
        self.publish(before, schema)
        self.publish(after, later or schema)
        return self.compare()

    def stored_rows(self, comparison: Comparison) -> list[dict[str, Any]]:
        """All rows that differ, from the Arrow files, in order of key."""
        manifest = load_manifest(comparison.all_rows.manifest, store=self.store)
        rows = [row.asDict() for row in read_frame(self.spark, manifest, stores=self.stores).collect()]
        return sorted(rows, key=lambda row: [str(row[name]) for name in comparison.key])


def a_day(spark, store, stores) -> Day:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS memory.days")
    return Day(spark, store, stores, f"memory.days.compared_{next(_numbers)}")


def counts(comparison: Comparison) -> tuple[int, ...]:
    rows = comparison.rows
    return rows.before, rows.after, rows.added, rows.removed, rows.changed


def metric(comparison: Comparison, name: str):
    (match,) = [metric for metric in comparison.metrics if metric.metric == name]
    return match
