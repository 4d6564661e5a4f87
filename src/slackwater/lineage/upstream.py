"""What a version has read: its input manifest, then those of the versions that it names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from slackwater.errors import ObjectMissing
from slackwater.lineage.graph import (
    MOST_VERSIONS,
    HourRead,
    Loaded,
    SourceRead,
    TableRead,
    VersionLineage,
    VersionRead,
)
from slackwater.lineage.loads import written_by
from slackwater.runs.attempt_files import loads_uri
from slackwater.runs.inputs.manifest import InputManifest, InputObject, run_manifest
from slackwater.runs.record import DayRecord, Loads, Publication, PublishedRun, RunRecord, tagged_attempt
from slackwater.runs.table import RunTable
from slackwater.runs.waits.verdicts import VerdictReader
from slackwater.state.verdicts import Verdict
from slackwater.storage import ObjectStore

VersionKey = tuple[str, str, int]
"""Pipeline, day or hour, and version."""


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """Reads records and manifests of versions, each once. All methods raise `CloudError` and `ObjectInvalid`."""

    table: RunTable
    store: ObjectStore
    verdicts: VerdictReader | None
    """None if the deployed version stores no verdicts."""
    lists_objects: bool
    """Whether the exact objects of sources are in the result."""
    _days: dict[tuple[str, str], DayRecord] = field(default_factory=dict)

    def versions(self, record: RunRecord) -> tuple[list[VersionLineage], bool]:
        """Return the version of a published run and all that it has read, and whether these are all.

        Each is once in the result, after a version that has read it.
        """
        first = record.run
        wanted: list[VersionKey] = [(first.pipeline, first.date, first.attempt)]
        found, seen = list[VersionLineage](), set(wanted)
        for pipeline, date, version in wanted:  # grows meanwhile
            if len(found) == MOST_VERSIONS:
                return found, False
            run = self.table.run(pipeline, date, version)
            if run is None or run.publication is None:  # of a table's former life, before it was deployed anew
                continue
            found.append(self._version(run, run.publication))
            new = [(read.pipeline, read.date, read.version) for read in found[-1].days]
            wanted += dict.fromkeys(key for key in new if key not in seen)
            seen.update(new)
        return found, True

    def newest(self, pipeline: str, date: str) -> PublishedRun | None:
        """Return the published version of a day or an hour; it is read once."""
        key = pipeline, date
        if key not in self._days:
            self._days[key] = self.table.day(pipeline, date)
        return self._days[key].published

    def has_newest_rows(self, item: InputObject, newest: PublishedRun | None) -> bool:
        """Return whether a published day that was read has the rows of its newest version."""
        return newest is not None and item.etag == newest.rows_digest

    def _version(self, record: RunRecord, publication: Publication) -> VersionLineage:
        run = record.run
        newest = self.newest(run.pipeline, run.date)
        manifest = run_manifest(self.store, run)
        by_name = manifest.by_source() if manifest else {}
        failed = self.verdicts.of_manifest(manifest) if manifest and self.verdicts else {}
        sources, days, tables = list[SourceRead](), list[VersionRead](), list[TableRead]()
        for name, items in sorted(by_name.items()):
            if items[0].tag is None:
                sources.append(self._source(name, items, failed.get(name, ())))
            elif items[0].is_published_day:
                days += map(self._day, items)
            else:
                tables += [
                    TableRead(name=name, table=item.file or "", snapshot=item.tag or "", rows=item.rows)
                    for item in items
                ]
        return VersionLineage(
            pipeline=run.pipeline,
            date=run.date,
            version=run.attempt,
            run_id=run.run_id,
            table=publication.table,
            tag=run.tag,
            rows=publication.rows,
            published_at=record.ended_at,
            is_newest=newest is not None and newest.run.attempt == run.attempt,
            manifest=run.manifest,
            is_known=manifest is not None,
            sources=tuple(sources),
            days=tuple(days),
            tables=tuple(tables),
            loads=tuple(self._loads(record)),
            verdicts=self.verdicts.of_version(run.pipeline, run.date, run.attempt) if self.verdicts else (),
        )

    def _source(self, name: str, items: tuple[InputObject, ...], verdicts: tuple[Verdict, ...]) -> SourceRead:
        hours: dict[tuple[str, str], list[InputObject]] = {}
        for item in items:
            hours.setdefault((item.date, item.hour), []).append(item)
        return SourceRead(
            name=name,
            hours=tuple(HourRead(date=key[0], hour=key[1], **_totals(hours[key])) for key in sorted(hours)),
            inputs=items if self.lists_objects else (),
            verdicts=verdicts,
            **_totals(items),
        )

    def _day(self, item: InputObject) -> VersionRead:
        pipeline, date = item.published_day
        newest = self.newest(pipeline, date)
        return VersionRead(
            name=item.source,
            pipeline=pipeline,
            date=date,
            version=tagged_attempt(item.tag),
            rows=item.rows,
            newest=newest.run.attempt if newest else None,
            is_newest=self.has_newest_rows(item, newest),
        )

    def _loads(self, record: RunRecord) -> Iterator[Loaded]:
        try:
            loads = Loads.model_validate_json(self.store.get(loads_uri(record.run.prefix)))
        except ObjectMissing:  # it has no load steps, or they have not ended
            return
        for step in loads.steps:
            for written in written_by(step):
                yield Loaded(name=step.name, step=step.step, target=written.target, rows=written.rows)


def _totals(items: Iterable[InputObject]) -> dict[str, int]:
    listed = list(items)
    return {
        "objects": len(listed),
        "files": len({item.file for item in listed if item.file}),
        "rows": sum(item.rows for item in listed),
        "bytes": sum(item.bytes for item in listed),
    }


def read_day(manifest: InputManifest | None, pipeline: str, date: str) -> InputObject | None:
    """Return the published day of another pipeline that a manifest names, or None."""
    items = manifest.objects if manifest else ()
    return next((item for item in items if item.is_published_day and item.published_day == (pipeline, date)), None)
