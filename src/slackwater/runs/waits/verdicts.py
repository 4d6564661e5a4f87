"""The verdicts about what days read and have published: a verdict travels to everything that has read its period.

Nothing is stored about that. The input manifest of a version names the objects and the versions that it has read, so
what has failed is a function of verdicts, records and manifests. It ends where nobody has read the period.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

from slackwater.pipeline.definition import Pipeline
from slackwater.runs.inputs.manifest import InputManifest, InputObject, run_manifest
from slackwater.runs.inputs.table_inputs import read_periods
from slackwater.runs.period import Period
from slackwater.runs.record import VERSION_TAG
from slackwater.runs.table import RunTable
from slackwater.state.verdicts import Subject, Verdict, VerdictTable, deciding, in_order
from slackwater.storage import ObjectStore

_READERS = 16
_Version = tuple[str, str, int]
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
    _found: dict[_Version, frozenset[str]] = field(default_factory=dict)
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

    def of_input(self, pipeline: Pipeline, name: str, day: Period, *, hourly: Collection[str]) -> tuple[Verdict, ...]:
        """Return the verdicts by which that has failed which a run of the day would read of an input, in order.

        Of a table of another pipeline, those that have travelled to its published versions; none of an Iceberg table.
        `hourly` are the hourly pipelines.
        """
        if name in pipeline.published_tables:
            item = pipeline.published_tables[name]
            dates = read_periods(item, day, pipeline, hourly=hourly)
            return in_order(verdict for date in dates for verdict in self.of_published(item.table, date))
        if name not in pipeline.sources:
            return ()
        return self.of_hours(name, (f"{partition.date}T{partition.hour}" for partition in day.partitions()))

    def of_published(self, pipeline: str, date: str) -> tuple[Verdict, ...]:
        """Return the verdicts by which the published version of a day has failed, or what it has read, in order."""
        if not self.may_have_failed:
            return ()
        published = self.table.day(pipeline, date).published
        found = self._found_in((pipeline, date, published.run.attempt), frozenset()) if published else ()
        return in_order(self._by_id[each] for each in found)

    def of_manifest(self, manifest: InputManifest) -> dict[str, tuple[Verdict, ...]]:
        """Return by input the verdicts by which the objects and the published days of a manifest have failed.

        Inputs without any are missing.
        """
        found = {name: in_order(items) for name, items in self._search(manifest, frozenset())}
        return {name: items for name, items in found.items() if items}

    def _found_in(self, version: _Version, searched: frozenset[_Version]) -> frozenset[str]:
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

    def _search(self, manifest: InputManifest, searched: frozenset[_Version]) -> Iterator[tuple[str, list[Verdict]]]:
        for name, objects in manifest.by_source().items():
            versions = {self._version_of(item) for item in objects if _is_published_day(item)}
            read = {each for version in versions for each in self._found_in(version, searched)}
            hours = {f"{item.date}T{item.hour}" for item in objects if item.tag is None}
            yield name, [*(self._by_id[each] for each in read), *(self.of_hours(name, hours) if hours else ())]

    def _version_of(self, item: InputObject) -> _Version:
        """Return the version of a day that a run has read.

        Rows identify it: if the version that is published now has the same, no run would read anything new. So it is
        that one.
        """
        pipeline, _, date = (item.file or "").rpartition(" ")
        published = self.table.day(pipeline, date).published
        if published and item.etag == (published.publication.content or published.run.tag):
            return pipeline, date, published.run.attempt
        match = VERSION_TAG.fullmatch(item.tag or "")
        return pipeline, date, int(match[2]) if match else 0

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
            found = deciding(self.verdicts.verdicts(subject, "0000", "9999"))
            self._failures[subject] = [item for item in found if item.is_failure]
        return self._failures[subject]


def _is_published_day(item: InputObject) -> bool:
    # An Iceberg table has no hour, and an object no tag.
    return item.tag is not None and item.hour != ""
