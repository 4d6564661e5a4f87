"""The lineage of a version, as a client reads it."""

from __future__ import annotations

from dataclasses import dataclass

from slackwater.errors import InputError
from slackwater.lineage.downstream import Downstream
from slackwater.lineage.graph import Lineage
from slackwater.lineage.upstream import Upstream
from slackwater.project.project import Project
from slackwater.runs.record import RunRecord, RunState
from slackwater.runs.table import RunTable
from slackwater.runs.waits.verdicts import VerdictReader
from slackwater.state.verdicts import VerdictTable
from slackwater.storage import ObjectStore


@dataclass(frozen=True, kw_only=True)
class LineageReader:
    """Reads the lineage of versions from records and manifests."""

    project: Project
    """The deployed one."""
    table: RunTable
    store: ObjectStore
    verdicts: VerdictTable | None
    """None if the deployed version stores no verdicts."""

    def read(
        self, pipeline: str, date: str, *, version: int | None, up: bool, down: bool, lists_objects: bool
    ) -> Lineage:
        """Return the lineage of a version, by default of the published one. Raises `InputError` if there is none."""
        record = self._record(pipeline, date, version)
        verdicts = None
        if self.verdicts:
            verdicts = VerdictReader(table=self.table, store=self.store, verdicts=self.verdicts)
        upstream = Upstream(table=self.table, store=self.store, verdicts=verdicts, lists_objects=lists_objects)
        downstream = Downstream(project=self.project, upstream=upstream)
        above, has_all_above = upstream.versions(record) if up else ([], True)
        below, has_all_below = downstream.readers(pipeline, date, version=version) if down else ([], True)
        return Lineage(
            pipeline=pipeline,
            date=date,
            version=record.run.attempt,
            up=tuple(above),
            down=tuple(below),
            is_complete=has_all_above and has_all_below,
        )

    def _record(self, pipeline: str, date: str, version: int | None) -> RunRecord:
        published = self.table.day(pipeline, date).published
        if version is None:
            if published is None:
                raise InputError(
                    f"date: {pipeline} has published nothing for {date} (slackwater run {pipeline} --date {date})"
                )
            version = published.run.attempt
        record = self.table.run(pipeline, date, version)
        if record is None or record.state is not RunState.PUBLISHED:
            records = self.table.runs(pipeline, date)
            numbers = [str(each.run.attempt) for each in records if each.state is RunState.PUBLISHED]
            raise InputError(
                f"version: {pipeline} has no published version {version} of {date} "
                f"(published: {', '.join(numbers) or 'none'})"
            )
        return record
