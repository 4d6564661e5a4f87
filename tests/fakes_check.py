"""A pipeline whose days are run and checked, over dictionaries."""

from __future__ import annotations

from copy import copy
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from slackwater.client.holds import HoldDecisions
from slackwater.late.check.checker import Checker
from slackwater.late.decision import CheckReport, DecisionRule
from slackwater.pipeline.definition import Late, Schedule
from slackwater.runs.attempt_files import failure_uri, invalid_input_uri
from slackwater.runs.freeze import Freezer, KeptStages
from slackwater.runs.inputs.foreign_tables import ForeignTables
from slackwater.runs.inputs.listing import InputListing
from slackwater.runs.inputs.manifest import run_manifest
from slackwater.runs.inputs.source_counts import CountsReader
from slackwater.runs.invalid_input import refused_input
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.pipeline_verdicts import PipelineVerdicts
from slackwater.runs.record import Publication, Run
from slackwater.runs.table import RunTable
from slackwater.sources.late_thresholds import LateThresholds
from slackwater.state.verdicts import Subject
from slackwater.storage import ObjectStore
from tests.example_project import example_project
from tests.fakes_receiver import MemoryFileCache
from tests.fakes_runs import DictCatalog, DictRunTable, DictStore, SetExecutions
from tests.fakes_state import MemoryState, MemoryVerdicts

PIPELINE, NOW = "daily_delays", datetime(2013, 3, 13, 18, tzinfo=UTC)
PUBLICATION = Publication(table="t", snapshot_id="1", rows=3, replaced=0, seconds=1.0)

KEPT = KeptStages(age=timedelta(days=29), published=True)
"""The stages that a run keeps in a deployment with the default settings."""


class World:
    """A pipeline in New York, whose days can be run; its time changes only when a test sets it."""

    def __init__(self, table: RunTable | None = None) -> None:
        project = example_project()
        sources = {
            "flights": project.sources["flights"].model_copy(update={"late": LateThresholds(percent=1, rows=10)}),
            "weather": project.sources["weather"].model_copy(update={"late": LateThresholds(rows=0)}),
        }
        definition = project.pipelines[PIPELINE]
        definition = definition.model_copy(update={"late": Late(window_days=7), "deadline_hours": 12})
        self.project = project.model_copy(update={"sources": sources, "pipelines": {PIPELINE: definition}})
        self.store, self.files, self.state = DictStore(), MemoryFileCache(), MemoryState()
        self.verdicts = MemoryVerdicts()
        self.woken: list[tuple[Subject, list[str], datetime]] = []
        """What pipelines have given verdicts about."""
        self.table: Any = table or DictRunTable()
        self.executions, self.time = SetExecutions("run"), NOW
        self.catalog = DictCatalog()
        self.foreign = ForeignTables(self.catalog, self.store)

    def now(self) -> datetime:
        return self.time

    @property
    def inputs(self) -> InputListing:
        return InputListing(
            project=self.project,
            store=self.store,
            files=self.files,
            table=self.table,
            foreign=self.foreign,
            raw_bucket="raw",
            now=self.now,
        )

    @property
    def counts(self) -> CountsReader:
        return CountsReader(project=self.project, state=self.state, files=self.files)

    @property
    def checker(self) -> Checker:
        return Checker(
            project=self.project,
            inputs=self.inputs,
            counts=self.counts,
            table=self.table,
            executions=self.executions,
            store=self.store,
            verdicts=self.verdicts,
            exchange_bucket="exchange",
            now=self.now,
        )

    @property
    def recorder(self) -> RunRecorder:
        return RunRecorder(store=self.store, table=self.table, now=self.now, verdicts=self.pipeline_verdicts)

    @property
    def pipeline_verdicts(self) -> PipelineVerdicts:
        return PipelineVerdicts(
            store=self.store, runs=self.table, table=self.verdicts, wake=lambda *given: self.woken.append(given)
        )

    def hold_decisions(self, table: RunTable | None = None, store: ObjectStore | None = None) -> HoldDecisions:
        return HoldDecisions(
            project=self.project, table=table or self.table, store=store or self.store, inputs=self.inputs,
            executions=self.executions, checker=self.checker, principal=lambda: "arn:aws:iam::1:user/ana",
            now=self.now,
        )  # fmt: skip

    def add(self, source: str, date: str, hour: str, *, name: str = "a", rows: int = 10) -> str:
        uri = f"s3://raw/raw/source={source}/date={date}/hour={hour}/{name}.parquet"
        self.store.put(uri, b"x" * rows, metadata={"rows": str(rows)})
        return uri

    def freeze(self, date: str, **options: Any) -> Run:
        options = {"pipeline": PIPELINE, **options}
        return freezer_of(self).freeze(date=date, execution="run", correlation_id="c", **options).run

    def publish(self, date: str, **options: Any) -> Run:
        run = self.freeze(date, **options)
        self.store.put(f"{run.prefix}publication.json", PUBLICATION.model_dump_json().encode())
        self.recorder.end_published(run)
        return run

    def refuse(self, run: Run, name: str, reason: str = "row_count failed") -> None:
        """Write what a job writes whose rule of severity `invalidate` has failed."""
        manifest = run_manifest(self.store, run)
        refused = refused_input(reason, manifest.of_source(name) if manifest else ())
        self.store.put(invalid_input_uri(run.prefix), refused.model_dump_json().encode())
        self.store.put(failure_uri(run.prefix), f"InputInvalid: {reason}".encode())

    def fail(self, run: Run) -> None:
        self.recorder.record_failure(run, error="E", cause="")

    def check(self, as_of: str | None = None) -> CheckReport:
        return self.checker.check(pipeline=PIPELINE, as_of=as_of)

    def rules(self, as_of: str | None = None) -> dict[str, DecisionRule]:
        return {day.date: day.rule for day in self.check(as_of).days}


def make_hourly(world: World, **changes: Any) -> None:
    """Let the pipeline of a world run for hours."""
    daily = world.project.pipelines[PIPELINE]
    key = daily.publish.model_copy(update={"key": ("date", "hour", "origin", "carrier")})
    changes = {"period": "hour", "publish": key, "schedule": Schedule(process="5 * * * *"), "late": {}, **changes}
    hourly = type(daily).model_validate({**daily.model_dump(by_alias=True), **changes})
    world.project = world.project.model_copy(update={"pipelines": {PIPELINE: hourly}})


def freezer_of(world: World, keeps: KeptStages = KEPT) -> Freezer:
    return Freezer(
        project=world.project,
        store=world.store,
        inputs=world.inputs,
        counts=world.counts,
        table=world.table,
        executions=world.executions,
        exchange_bucket="exchange",
        keeps=keeps,
        now=world.now,
        on_run_lost=lambda pipeline: None,
    )


def five_days(table: RunTable | None = None) -> World:
    """Five published days, each with a noon of two sources."""
    if table:
        return _publish_five_days(World(table))
    world = World()
    for ours, theirs in zip(_stores(world), _stores(_five_days()), strict=True):
        # The values are immutable, so copies of the containers are enough.
        vars(ours).update({name: copy(value) for name, value in vars(theirs).items()})
    return world


@cache
def _five_days() -> World:
    return _publish_five_days(World())


def _stores(world: World) -> tuple[object, ...]:
    """Return what a run writes to."""
    return world.store, world.table, world.executions


def _publish_five_days(world: World) -> World:
    for number in range(8, 13):
        for source in ("flights", "weather"):
            world.add(source, f"2013-03-{number:02}", "17", rows=1000)
        world.publish(f"2013-03-{number:02}")
    return world
