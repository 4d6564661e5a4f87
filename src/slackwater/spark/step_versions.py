"""Compute the steps of a stage one after the other, and store the rows of each: pipelines with `versions: all`."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame

from slackwater.arrow.dataset import load_manifest, stage_manifest, store_dataset
from slackwater.arrow.exchange import StoreFactory, read_frame, write_frame
from slackwater.arrow.reference import ArrowManifest, Producer, StepRecord
from slackwater.errors import DefinitionError
from slackwater.pipeline.definition import Pipeline, StepUse
from slackwater.pipeline.graph import Stage, stages, visible_versions
from slackwater.runs.record import Run
from slackwater.runs.step_versions import attempt_prefix, store_lookups
from slackwater.spark.job import log
from slackwater.spark.run_steps import AppliedSteps, apply_steps
from slackwater.steps.registry import parameters_of, step_of
from slackwater.steps.step import LazyFrames, StepContext, Transform


class VersionRows(NamedTuple):
    """The rows of an input or of a step."""

    frame: DataFrame
    rows: int | None
    """None where only Spark can count them."""
    bytes: int
    """Of the objects or the Arrow files."""
    uri: str
    """Of the manifest that lists them: for an input, the input manifest of the run."""


def producer_of(run: Run, stage: str) -> Producer:
    """Return the producer of what a stage of the run writes."""
    return Producer(
        pipeline=run.pipeline,
        date=run.date,
        run_id=run.run_id,
        attempt=run.attempt,
        stage=stage,
        correlation_id=run.correlation_id,
    )


class StoredSteps:
    """The steps of one stage, each of which reads the stored rows of those before it."""

    def __init__(
        self,
        run: Run,
        pipeline: Pipeline,
        stage: Stage,
        inputs: Mapping[str, VersionRows],
        context: StepContext,
        *,
        stores: StoreFactory,
    ) -> None:
        """`inputs` are the sources and stages that the stage reads. `context.read_source` reads the run's inputs."""
        self._run, self._pipeline, self._stage, self._context = run, pipeline, stage, context
        self._stores, self._store = stores, stores()
        self._rows = dict(inputs)
        self._stage_of = {step: each for each in stages(pipeline) for step in each.steps}
        self._looked_up: set[str] = set()
        self._records: list[StepRecord] = []

    def run(self) -> ArrowManifest:
        """Compute all steps. Store the version of each but the last one, and return the manifest of the last one.

        A version is stored after the checks of its step. Of a step that keeps all rows, only the checks are computed.
        Raises what the steps raise, and `DefinitionError` for a result that Arrow files cannot hold.
        """
        *before, last = self._stage.steps
        for name in before:
            self._store_step(name)
        manifest = self._compute(last)
        # What the identity of the stage covers: its own steps and inputs, and the stages that it is computed from.
        covered = {*self._stage.steps, *self._stage.reads_sources}
        covered |= {name for name, stage in self._stage_of.items() if stage.name in self._stage.ancestors}
        if outside := tuple(sorted(self._looked_up - covered)):
            store_lookups(self._run.stage_prefix(last), outside, store=self._store)
        return manifest.model_copy(update={"steps": tuple(self._records)})

    def _store_step(self, name: str) -> None:
        """Compute a step before the last one. Later steps read its rows as they are stored, if it changes any."""
        use = self._pipeline.steps[name]
        if _keeps_rows(use):
            self._check(name)
            return
        began = time.monotonic()
        manifest = self._compute(name)
        prefix, seconds = self._run.stage_prefix(name), time.monotonic() - began
        reference = store_dataset(manifest, prefix, store=self._store, seconds=seconds)
        frame = read_frame(self._context.spark, manifest, stores=self._stores)
        self._rows[name] = VersionRows(frame, manifest.rows, manifest.bytes, reference.manifest)

    def _check(self, name: str) -> None:
        """Compute the checks of a step whose rows are those of its first input."""
        began, (first, *_) = time.monotonic(), self._pipeline.steps[name].depends_on
        applied = self._applied(name, parents={})
        applied.compute(name)
        kept = self._rows[first]
        sizes = {**self._sizes(name), name: kept.bytes}
        (record,) = applied.records({}, rows={}, sizes=sizes, seconds=time.monotonic() - began)
        self._finish(record, applied)
        self._rows[name] = kept._replace(rows=record.rows_out)

    def _compute(self, name: str) -> ArrowManifest:
        """Compute a step and write its rows; return the manifest, which is not stored yet."""
        began, use = time.monotonic(), self._pipeline.steps[name]
        reads = [self._rows[read] for read in use.depends_on]
        # An ordered set, to which the lookups of the step add.
        parents = dict.fromkeys(rows.uri for rows in reads)
        applied = self._applied(name, parents=parents)
        try:
            written = write_frame(
                applied[name],
                f"{self._run.arrow_prefix}{name}/",
                producer=producer_of(self._run, self._stage.name),
                stores=self._stores,
                input_bytes=sum(rows.bytes for rows in reads),
            )
        except DefinitionError as error:
            raise DefinitionError(f"pipeline {self._pipeline.pipeline}: steps.{name}: {error}") from error
        seconds = time.monotonic() - began
        (record,) = applied.records(
            written.observed,
            rows={name: written.manifest.rows},
            sizes={**self._sizes(name), name: written.manifest.bytes},
            seconds=seconds,
        )
        self._finish(record, applied)
        return written.manifest.model_copy(update={"steps": (record,), "parents": tuple(parents)})

    def _applied(self, name: str, *, parents: dict[str, None]) -> AppliedSteps:
        """Return the step, applied to its inputs. What it looks up is added to `parents`."""

        def read_version(version: str) -> DataFrame:
            self._looked_up.add(version)
            frame, uri = self._find(version)
            parents[uri] = None
            return frame

        def read_source(source: str) -> DataFrame:
            parents[self._run.manifest] = None
            return self._context.read_source(source)

        versions = LazyFrames(visible_versions(self._pipeline, self._stage, name), read_version)
        reads = {read: self._rows[read] for read in self._pipeline.steps[name].depends_on}
        applied = apply_steps(
            self._pipeline,
            [name],
            {read: rows.frame for read, rows in reads.items()},
            dataclasses.replace(self._context, read_source=read_source, earlier_versions=versions),
            known_rows={read: rows.rows for read, rows in reads.items() if rows.rows is not None},
        )
        applied.compute_ahead()
        return applied

    def _sizes(self, name: str) -> dict[str, int | None]:
        return {read: self._rows[read].bytes for read in self._pipeline.steps[name].depends_on}

    def _finish(self, record: StepRecord, applied: AppliedSteps) -> None:
        applied.release()
        self._records.append(record)
        log("step finished", **record.model_dump())

    def _find(self, name: str) -> tuple[DataFrame, str]:
        """Return the rows of an earlier version, and the URI of its manifest."""
        if name in self._rows:
            return self._rows[name].frame, self._rows[name].uri
        if name in self._pipeline.inputs:
            return self._context.read_source(name), self._run.manifest
        use, stage = self._pipeline.steps[name], self._stage_of[name].name
        uri = stage_manifest(self._run.stage_prefix(stage), store=self._store)
        if name != stage:
            if _keeps_rows(use):
                return self._find(use.depends_on[0])
            # A stage that was kept has the versions of its steps in an earlier attempt.
            uri = stage_manifest(f"{attempt_prefix(uri)}{name}/", store=self._store)
        return read_frame(self._context.spark, load_manifest(uri, store=self._store), stores=self._stores), uri


def _keeps_rows(use: StepUse) -> bool:
    step = step_of(use.step, use)
    return isinstance(step, Transform) and step.keeps_rows(parameters_of(use.step, use))
