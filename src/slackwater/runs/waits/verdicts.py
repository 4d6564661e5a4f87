"""The verdicts about what days read and have published: a verdict travels to everything that has read its period.

Nothing is stored about that. The input manifest of a version names the objects and the versions that it has read, so
what has failed is a function of verdicts, records and manifests. It ends where nobody has read the period.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

from slackwater.pipeline.definition import Pipeline
from slackwater.runs.inputs.manifest import InputManifest, InputObject, run_manifest
from slackwater.runs.inputs.table_inputs import read_periods
from slackwater.runs.period import Period
from slackwater.runs.record import tagged_attempt
from slackwater.runs.table import RunTable
from slackwater.runs.waits.mutual_waits import waiting_for
from slackwater.state.verdicts import Subject, Verdict, VerdictTable, failures, in_order
from slackwater.storage import ObjectStore

_READERS = 16
DayVersion = tuple[str, str, int]
"""Pipeline, day and published attempt."""


@dataclass(frozen=True, kw_only=True)
class VerdictReader:
    """Finds by which verdicts published versions, and what runs would read, have failed.

    It reads nothing twice: make another one to see what has changed. All methods raise `CloudError`, and
    `ObjectInvalid` for a manifest that is not readable. Of a version whose manifest is gone, only verdicts about itself
    are known.
    """

    table: RunTable
    store: ObjectStore
    verdicts: VerdictTable
    _failures: dict[Subject, list[Verdict]] = field(default_factory=dict)
    _found: dict[DayVersion, frozenset[str]] = field(default_factory=dict)
    _by_id: dict[str, Verdict] = field(default_factory=dict)

    def prefetch(self, subjects: Iterable[Subject]) -> None:
        """Read the verdicts about many sources and pipelines at the same time."""
        with ThreadPoolExecutor(_READERS) as pool:
            list(pool.map(self._failures_of, subjects))  # `list` raises the first error

    def of_hours(self, source: str, hours: Iterable[str]) -> tuple[Verdict, ...]:
        """Return the verdicts by which UTC hours of a source have failed, such as 2026-01-01T15, in order."""
        wanted = set(hours)
        return tuple(item for item in self._failures_of(Subject("source", source)) if item.period in wanted)

    def of_range(self, source: str, first: str, last: str) -> tuple[Verdict, ...]:
        """Return the verdicts by which the UTC hours of a source from `first` to `last` have failed, in order."""
        return tuple(item for item in self._failures_of(Subject("source", source)) if first <= item.period <= last)

    def of_input(
        self, pipeline: Pipeline, name: str, day: Period, *, pipelines: Mapping[str, Pipeline]
    ) -> tuple[Verdict, ...]:
        """Return the verdicts by which that has failed which a run of the day would read of an input, in order.

        Of a table of another pipeline, those that have travelled to its published versions; none of an Iceberg table.
        Left out are those of pipelines that may wait for this one, by the definitions of a project's `pipelines`: they
        would wait for each other. So are its own, which only its run can clear.
        """
        found: Iterable[Verdict] = ()
        if name in pipeline.published_tables:
            item = pipeline.published_tables[name]
            dates = read_periods(item, day, pipeline, pipelines=pipelines)
            found = (verdict for date in dates for verdict in self.of_published(item.table, date))
        elif name in pipeline.sources:
            found = self.of_hours(name, (f"{partition.date}T{partition.hour}" for partition in day.partitions()))
        verdicts = in_order(found)
        waiting = waiting_for(pipeline.pipeline, pipelines) if verdicts else ()
        return tuple(item for item in verdicts if item.pipeline not in waiting)

    def of_published(self, pipeline: str, date: str) -> tuple[Verdict, ...]:
        """Return the verdicts by which the published version of a day has failed, or what it has read, in order."""
        if not self.may_have_failed:
            return ()
        published = self.table.day(pipeline, date).published
        return self.of_version(pipeline, date, published.run.attempt) if published else ()

    def of_version(self, pipeline: str, date: str, attempt: int) -> tuple[Verdict, ...]:
        """Return the verdicts by which a published version has failed, or what it has read, in order."""
        if not self.may_have_failed:
            return ()
        found = self._found_in((pipeline, date, attempt), frozenset())
        return in_order(self._by_id[each] for each in found)

    def of_manifest(self, manifest: InputManifest, *, waiting: Collection[str] = ()) -> dict[str, tuple[Verdict, ...]]:
        """Return by input the verdicts by which the objects and the published days of a manifest have failed.

        Inputs without any are missing. The pipeline's own verdicts are left out, and those of the pipelines `waiting`.
        """
        not_obeyed = {manifest.pipeline, *waiting}
        found = {
            name: in_order(item for item in items if item.pipeline not in not_obeyed)
            for name, items in self._search(manifest, frozenset())
        }
        return {name: items for name, items in found.items() if items}

    def _found_in(self, version: DayVersion, searched: frozenset[DayVersion]) -> frozenset[str]:
        """Return the ids of the verdicts about a version, and about what it has read.

        `searched` are the versions that have read this one.
        """
        if version in self._found:
            return self._found[version]
        if version in searched:  # versions have read earlier ones, unless records are wrong
            return frozenset()
        pipeline, date, attempt = version
        of_day = self._failures_of(Subject("pipeline", pipeline))
        found = [item for item in of_day if (item.period, item.version) == (date, attempt)]
        record = self.table.run(pipeline, date, attempt)
        if record and (manifest := run_manifest(self.store, record.run)):
            found += [item for _, items in self._search(manifest, searched | {version}) for item in items]
        by_id = {item.id: item for item in found}
        self._by_id.update(by_id)
        self._found[version] = frozenset(by_id)
        return self._found[version]

    def _search(self, manifest: InputManifest, searched: frozenset[DayVersion]) -> Iterator[tuple[str, list[Verdict]]]:
        for name, objects in manifest.by_source().items():
            versions = {version_read(item, self.table) for item in objects if item.is_published_day}
            read = {each for version in versions for each in self._found_in(version, searched)}
            hours = {f"{item.date}T{item.hour}" for item in objects if item.tag is None}
            yield name, [*(self._by_id[each] for each in read), *(self.of_hours(name, hours) if hours else ())]

    @cached_property
    def may_have_failed(self) -> bool:
        """Whether any data has failed: most days need no manifest.

        The definitions do not decide: those of earlier versions may have read what has failed.
        """
        self.prefetch(self._subjects)
        return any(map(self._failures_of, self._subjects))

    @cached_property
    def _subjects(self) -> frozenset[Subject]:
        """Those that have verdicts: most sources and pipelines have none."""
        return frozenset(self.verdicts.subjects())

    def _failures_of(self, subject: Subject) -> list[Verdict]:
        """Return all verdicts by which hours of a source, or versions of a pipeline, have failed: there are few."""
        if subject not in self._subjects:
            return []
        if subject not in self._failures:
            self._failures[subject] = failures(self.verdicts.verdicts(subject, "0000", "9999"))
        return self._failures[subject]


def version_read(item: InputObject, table: RunTable) -> DayVersion:
    """Return the version of a published day that a run has read. Raises `CloudError`.

    Rows identify it: if the version that is published now has the same, no run would read anything new. So it is that
    one.
    """
    pipeline, date = item.published_day
    published = table.day(pipeline, date).published
    if published and item.etag == published.rows_digest:
        return pipeline, date, published.run.attempt
    return pipeline, date, tagged_attempt(item.tag)
