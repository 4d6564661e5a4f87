"""The events of OpenLineage about a run and its stages, made of what is stored about the run when it has ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from slackwater.arrow.dataset import load_manifest
from slackwater.arrow.messages import decode_schema
from slackwater.arrow.reference import ArrowManifest
from slackwater.errors import ObjectMissing
from slackwater.lineage.columns import column_origins
from slackwater.lineage.datasets import (
    PRODUCER,
    Json,
    Name,
    assertions,
    dataset,
    facet,
    glue_table,
    input_dataset,
    input_name,
    loaded_datasets,
    period_partition,
    s3_object,
    subset,
)
from slackwater.lineage.sql_origins import Computed
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import Stage, layers, stages
from slackwater.project.project import Project
from slackwater.runs.inputs.manifest import InputObject, run_manifest
from slackwater.runs.outputs import run_steps, stages_of
from slackwater.runs.period import partition_values, period_of
from slackwater.runs.record import LOST_RUN, STOPPED, RunRecord, RunState, StageRecord
from slackwater.storage import ObjectStore

_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_ADDED_TYPES = {"date": "date32[day]", "hour": "int32"}
"""Of the columns that publishing adds."""
_SUBTYPES = {
    Computed.IDENTITY: "IDENTITY",
    Computed.TRANSFORMATION: "TRANSFORMATION",
    Computed.AGGREGATION: "AGGREGATION",
}


@dataclass(frozen=True)
class RunEvents:
    """The events of one attempt of a run. All methods raise `CloudError`, and `ObjectInvalid` for a wrong manifest."""

    record: RunRecord
    project: Project
    """The deployed one. Facets that need the definition of the run are left out if the deployed one is another."""
    store: ObjectStore
    namespace: str
    """Of the jobs."""
    database: str
    """Glue's database of the published tables."""
    files: str
    """URI prefix of the files that load steps write."""

    def started(self) -> list[Json]:
        """Return the event that the run has started: what it reads, and the table that it is about to write."""
        return [self._event("START", self.record.started_at, inputs=self._inputs(), outputs=[dataset(self._table)])]

    def ended(self) -> list[Json]:
        """Return the events of the stages that the run has computed, and the event that it has ended."""
        record, inputs = self.record, self._inputs(with_checks=True)
        at = record.ended_at or record.started_at
        events = [event for stage in self._stages for event in self._stage_events(*stage)]
        if record.state is RunState.PUBLISHED:
            return [*events, self._event("COMPLETE", at, inputs=inputs, outputs=[self._published(), *self._loaded()])]
        error = record.error or ""
        kind = "ABORT" if error == LOST_RUN or error.startswith(f"{STOPPED}: ") else "FAIL"
        if stage := self._unfinished_stage():
            read = [self._input(name, with_checks=False) for name in stage.reads_sources if name in self._read]
            read += [dataset(self._frame(name)) for name in stage.reads_stages]
            output = dataset(self._frame(stage.name))
            events.append(self._event(kind, at, stage=stage.name, inputs=read, outputs=[output]))
        return [*events, self._event(kind, at, inputs=inputs, outputs=[dataset(self._table)])]

    def _unfinished_stage(self) -> Stage | None:
        """Return the stage that was running when the run ended; None if that is not certain."""
        if self._definition is None or self.record.rollback:
            return None
        finished = {item.stage for item in stages_of(self.record, store=self.store)}
        left = ([stage for stage in layer if stage.name not in finished] for layer in layers(stages(self._definition)))
        # The stages of a layer run in parallel, and a later layer has not begun.
        running = next((layer for layer in left if layer), [])
        return running[0] if len(running) == 1 else None

    @cached_property
    def _definition(self) -> Pipeline | None:
        """The definition of the run, if it is the deployed one."""
        name = self.record.run.pipeline
        if name not in self.project.pipelines or self.project.written_digest(name) != self.record.definition:
            return None
        return self.project.pipelines[name]

    @cached_property
    def _read(self) -> Mapping[str, tuple[InputObject, ...]]:
        """What the run has read, by input; nothing if the manifest is gone."""
        manifest = run_manifest(self.store, self.record.run)
        return manifest.by_source() if manifest else {}

    @cached_property
    def _stages(self) -> list[tuple[StageRecord, ArrowManifest]]:
        """The stages that this attempt has computed, with their manifests: it may have kept others."""
        own = [item for item in stages_of(self.record, store=self.store) if self._is_own(item)]
        found = ((item, self._manifest(item)) for item in own)
        return [(item, manifest) for item, manifest in found if manifest]

    def _is_own(self, stage: StageRecord) -> bool:
        return stage.reference.manifest.startswith(self.record.run.prefix)

    def _manifest(self, stage: StageRecord) -> ArrowManifest | None:
        try:
            return load_manifest(stage.reference.manifest, store=self.store)
        except ObjectMissing:
            return None

    @property
    def _table(self) -> Name:
        """The published table, which a run that has not published is about to write."""
        run = self.record.run
        if self.record.publication:
            return glue_table(self.record.publication.table, self.record.execution)
        return glue_table(f"{self.database}.{run.pipeline}", self.record.execution)

    def _inputs(self, *, with_checks: bool = False) -> list[Json]:
        return [self._input(name, with_checks=with_checks) for name in sorted(self._read)]

    def _input(self, name: str, *, with_checks: bool) -> Json:
        # A table may have the name of a source that the pipeline does not read.
        is_source = self._definition is not None and name in self._definition.sources
        source = self.project.sources.get(name) if is_source else None
        schema = {column: str(kind) for column, kind in source.columns.items()} if source else {}
        found = input_dataset(self._read[name], self.record.execution, schema)
        if with_checks and (checked := self._assertions.get(name)):
            found["inputFacets"]["dataQualityAssertions"] = facet(
                "DataQualityAssertionsDatasetFacet", assertions=checked
            )
        return found

    @cached_property
    def _assertions(self) -> dict[str, list[Json]]:
        """By frame: what the `data_quality` steps of this attempt have found in it."""
        found: dict[str, list[Json]] = {}
        for _, manifest in self._stages:
            for step in manifest.steps:
                checked = next(iter(step.rows_in), "")
                found.setdefault(checked, []).extend(assertions(step))
        return {name: results for name, results in found.items() if results}

    def _published(self) -> Json:
        run, publication = self.record.run, self.record.publication
        facets = {"version": facet("DatasetVersionDatasetFacet", datasetVersion=run.tag)}
        if self._last_schema:
            facets["schema"] = facet("SchemaDatasetFacet", fields=self._last_schema)
        if fields := self._column_lineage():
            facets["columnLineage"] = facet("ColumnLineageDatasetFacet", fields=fields)
        statistics = facet("OutputStatisticsOutputDatasetFacet", rowCount=publication.rows if publication else 0)
        written = subset("output", [period_partition(run.date, run.tag)])
        return dataset(self._table, facets=facets, outputFacets={"outputStatistics": statistics, "subset": written})

    @cached_property
    def _last_schema(self) -> list[Json]:
        """The columns of the published rows; empty if they are not known."""
        last = stages_of(self.record, store=self.store)[-1:]
        manifest = self._manifest(last[0]) if last else None
        added = [{"name": name, "type": _ADDED_TYPES[name]} for name in partition_values(self.record.run.date)]
        return [*_fields(manifest), *added] if manifest else []

    def _column_lineage(self) -> Json:
        definition = self._definition
        found = column_origins(self.project, definition) if definition else {}
        names = {name: input_name(items, self.record.execution) for name, items in self._read.items()}
        return {
            column: {"inputFields": [_input_field(names[name], field, computed) for (name, field), computed in read]}
            for column, origins in found.items()
            if (read := sorted(item for item in origins.items() if item[0][0] in names))
            # An input without data that day has no name: then the origins would not be complete.
            and len(read) == len(origins)
        }

    def _loaded(self) -> Iterator[Json]:
        for outcome in run_steps(self.record, store=self.store).steps:
            if outcome.stage is None:
                yield from loaded_datasets(outcome.record, self.files)

    def _stage_events(self, stage: StageRecord, manifest: ArrowManifest) -> Iterator[Json]:
        began = manifest.created_at - timedelta(seconds=stage.reference.seconds)
        inputs = list(self._stage_inputs(manifest))
        name = self._frame(stage.stage)
        statistics = facet(
            "OutputStatisticsOutputDatasetFacet",
            rowCount=stage.reference.rows,
            size=stage.reference.bytes,
            fileCount=stage.reference.files,
        )
        facets = {
            "version": facet("DatasetVersionDatasetFacet", datasetVersion=stage.reference.manifest),
            "schema": facet("SchemaDatasetFacet", fields=_fields(manifest)),
        }
        yield self._event("START", began, stage=stage.stage, inputs=inputs, outputs=[dataset(name)])
        output = dataset(name, facets=facets, outputFacets={"outputStatistics": statistics})
        yield self._event("COMPLETE", manifest.created_at, stage=stage.stage, inputs=inputs, outputs=[output])

    def _stage_inputs(self, manifest: ArrowManifest) -> Iterator[Json]:
        """Yield what the steps of a stage read: inputs of the run, results of other stages, and what was checked."""
        own = {step.name for step in manifest.steps}
        read = dict.fromkeys(name for step in manifest.steps for name in step.rows_in)
        checked = {
            name for step in manifest.steps for name in [next(iter(step.rows_in), "")] if name in self._assertions
        }
        for name in read:
            if name in self._read:
                yield self._input(name, with_checks=True)
            elif name not in own or name in checked:
                facets = {}
                if name in checked:
                    results = self._assertions[name]
                    facets["dataQualityAssertions"] = facet("DataQualityAssertionsDatasetFacet", assertions=results)
                yield dataset(self._frame(name), inputFacets=facets)

    def _frame(self, name: str) -> Name:
        """Return the name of the rows of a step or a stage in the exchange bucket."""
        namespace, _ = s3_object(self.record.run.prefix)
        return namespace, f"arrow/{self.record.run.pipeline}/{name}"

    def _event(self, kind: str, at: datetime, *, stage: str = "", inputs: list[Json], outputs: list[Json]) -> Json:
        run = self.record.run
        day = period_of(run.date, self.record.reads.timezone if self.record.reads else "UTC")
        facets: dict[str, Any] = {
            "nominalTime": facet(
                "NominalTimeRunFacet", nominalStartTime=_instant(day.start), nominalEndTime=_instant(day.end)
            )
        }
        if stage:
            parent = {"run": {"runId": self._run_id("")}, "job": self._job("")}
            facets["parent"] = facet("ParentRunFacet", **parent)
        if kind in {"FAIL", "ABORT"}:
            message = self.record.error or ""
            facets["errorMessage"] = facet("ErrorMessageRunFacet", message=message, programmingLanguage="python")
        job_type = facet(
            "JobTypeJobFacet",
            processingType="BATCH",
            integration="SLACKWATER",
            jobType="STAGE" if stage else "PIPELINE",
        )
        return {
            "eventType": kind,
            "eventTime": _instant(at),
            "producer": PRODUCER,
            "schemaURL": _SCHEMA,
            "run": {"runId": self._run_id(stage), "facets": facets},
            "job": {**self._job(stage), "facets": {"jobType": job_type}},
            "inputs": inputs,
            "outputs": outputs,
        }

    def _job(self, stage: str) -> Json:
        name = self.project.present_name(self.record.run.pipeline)
        return {"namespace": self.namespace, "name": f"{name}.{stage}" if stage else name}

    def _run_id(self, stage: str) -> str:
        """Return the UUID of the attempt or of its stage: the same in a repeated event."""
        return str(uuid5(NAMESPACE_URL, f"{self.record.execution}/{self.record.run.prefix}{stage}"))


def _fields(manifest: ArrowManifest) -> list[Json]:
    return [{"name": field.name, "type": str(field.type)} for field in decode_schema(manifest.arrow_schema)]


def _input_field(name: Name, field: str, computed: Computed) -> Json:
    transformation = {"type": "DIRECT", "subtype": _SUBTYPES[computed], "masking": False}
    return {"namespace": name[0], "name": name[1], "field": field, "transformations": [transformation]}


def _instant(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")
