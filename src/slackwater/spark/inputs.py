"""Read the inputs of the input manifest as DataFrames.

`FrozenInputs` reads raw objects (`slackwater.spark.read_events`), published days (`read_published`) and tables of other
systems (`read_iceberg`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession

from slackwater.errors import DefinitionError, InputError, ObjectMissing
from slackwater.project.project import Project
from slackwater.runs.inputs.manifest import InputManifest, InputObject
from slackwater.runs.packing.event_files import EventFile, event_files
from slackwater.runs.period import Period, is_hour, period_of
from slackwater.sources.partitions import Partition
from slackwater.spark.read_events import no_longer_exists, read_source
from slackwater.spark.table import quoted_table, rows_of_version
from slackwater.storage import ObjectStore


@dataclass(frozen=True)
class FrozenInputs:
    """The inputs of a run: what its input manifest lists."""

    spark: SparkSession
    project: Project
    manifest: InputManifest
    store: ObjectStore
    _found: dict[str, list[EventFile]] = field(default_factory=dict)
    """The files of sources, which are looked for once."""

    def read(self, name: str) -> DataFrame:
        """Return the rows of a source or a table of the pipeline.

        Raises what `read_source`, `read_published` and `read_iceberg` raise, for a table with its name, and
        `DefinitionError` for a source that the pipeline does not list.
        """
        pipeline, objects = self.project.pipeline(self.manifest.pipeline), self.manifest.of_source(name)
        if name in pipeline.tables:
            try:
                if name in pipeline.foreign_tables:
                    (snapshot,) = objects
                    return read_iceberg(self.spark, snapshot)
                return read_published(self.spark, objects)
            except (InputError, ObjectMissing) as error:
                raise type(error)(f"tables.{name}: {error}") from error
        if name not in pipeline.sources:
            raise DefinitionError(f"source: {name} is not one of the pipeline's sources: add it to `sources`")
        return read_source(
            self.spark,
            self.project.source(name),
            self._files(name),
            day=None if self._is_whole(name) else self._day,
            store=self.store,
            first_received={item.uri: item.first_received_at for item in objects if item.first_received_at},
        )

    def size(self, names: Iterable[str]) -> int:
        """Return the bytes that are read of these inputs."""
        sources = self.project.pipeline(self.manifest.pipeline).sources
        return sum(
            file.size if isinstance(file, EventFile) else file.bytes
            for name in names
            for file in (self._files(name) if name in sources else self.manifest.of_source(name))
        )

    def known_rows(self, name: str) -> int | None:
        """Return how many rows `read` returns; None where only Spark can count them."""
        is_source = name in self.project.pipeline(self.manifest.pipeline).sources
        # Events with ids are counted: Spark leaves out duplicates, and computes them once if several steps read them.
        if is_source and not self.project.source(name).id_column and self._is_whole(name):
            return sum(item.rows for item in self.manifest.of_source(name))
        return None

    def _files(self, source: str) -> list[EventFile]:
        if source not in self._found:
            sizes = {item.uri: item.bytes for item in self.manifest.of_source(source)}
            self._found[source] = event_files(self.store, sizes)
        return self._found[source]

    @property
    def _day(self) -> Period:
        return period_of(self.manifest.date, self.project.pipeline(self.manifest.pipeline).timezone)

    def _is_whole(self, source: str) -> bool:
        """Return whether all events of the source's objects are of the day."""
        hours = {(item.date, item.hour) for item in self.manifest.of_source(source)}
        return all(self._day.contains(Partition(*hour)) for hour in hours)


def read_published(spark: SparkSession, objects: Sequence[InputObject]) -> DataFrame:
    """Return the rows of published days, each from the version that its tag names.

    A column that a version lacks is null in its rows. Raises `ObjectMissing` if a version no longer exists, and
    `InputError` without a day, because the columns are unknown then.
    """
    if not objects:
        raise InputError("none of the days that this table needs is published, so its columns are unknown")
    frames = []
    for item in objects:
        table = quoted_table(item.uri.rpartition("/date=")[0])
        try:
            frames.append(rows_of_version(spark, table, item.tag or "", item.date))
        except (AnalysisException, IllegalArgumentException) as error:
            missing = no_longer_exists(f"{table} VERSION AS OF '{item.tag}'")
            if is_hour(item.date):
                pipeline, _, hour = (item.file or "").rpartition(" ")
                command = f"slackwater run {pipeline} --date {hour} --force"
                raise ObjectMissing(f"{missing} (versions of hours end): run the hour again ({command})") from error
            raise missing from error
    # Pairs of pairs: Spark analyses each union with all that is below it, and a week has 168 hours.
    while len(frames) > 1:
        frames = [reduce(_union, frames[first : first + 2]) for first in range(0, len(frames), 2)]
    return frames[0]


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionByName(other, allowMissingColumns=True)


def read_iceberg(spark: SparkSession, item: InputObject) -> DataFrame:
    """Return the rows of an Iceberg table of another system, at the snapshot that was frozen.

    Raises `ObjectMissing` if the snapshot or the table no longer exists.
    """
    try:
        return spark.read.option("versionAsOf", item.tag).table(quoted_table(item.uri))
    except (AnalysisException, IllegalArgumentException) as error:
        raise ObjectMissing(
            f"the snapshot {item.tag} of {item.file} is in the input manifest of this run, but no longer exists: run "
            "the day again, which reads the current snapshot, and let the table keep snapshots for longer than a run "
            "takes (Iceberg's history.expire.max-snapshot-age-ms)"
        ) from error
