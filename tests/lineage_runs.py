"""Runs whose lineage is sent, over dictionaries, and the published schemas of OpenLineage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

from slackwater.arrow.messages import encode_schema
from slackwater.arrow.reference import StepRecord
from slackwater.lineage.run_events import RunEvents
from slackwater.runs.attempt_files import publication_uri
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.record import Run, RunRecord
from tests.example_project import example_project
from tests.fakes_check import PIPELINE, PUBLICATION, World, freezer_of
from tests.fakes_runs import SetExecutions, store_stage

FOLDER = Path(__file__).parent / "unit" / "lineage" / "openlineage"
SCHEMAS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}
REGISTRY: Registry[Any] = Registry().with_resources(
    (schema["$id"], Resource.from_contents(schema)) for schema in SCHEMAS.values()
)
OF = "2013-03-08"
EXECUTION = "arn:aws:states:eu-west-1:123456789012:execution:acme-pipeline-{}:x"
GLUE = "arn:aws:glue:eu-west-1:123456789012"
LAST = pa.schema([("origin", pa.string()), ("carrier", pa.string()), ("flights", pa.int64())])
RESULTS = [
    {"rule": "range", "columns": ["distance"], "severity": "fail", "checked": 10, "failed": 0, "examples": []},
    {"rule": "allowed", "columns": ["origin"], "severity": "warn", "checked": 10, "failed": 2, "examples": ["X"]},
    {"rule": "unique", "columns": ["carrier", "flight"], "severity": "reject", "checked": 9, "failed": 0},
]


def a_step(name: str, step: str, rows_in: dict[str, int | None], **more: Any) -> StepRecord:
    return StepRecord(name=name, step=step, parameters={}, rows_in=rows_in, rows_out=3, seconds=None, **more)


class Runs(World):
    """The pipelines of the example, whose runs have the ARNs of real executions. `store_stages` is what a job does."""

    def __init__(self) -> None:
        super().__init__()
        self.project = example_project()
        self.executions = SetExecutions()
        for source in ("flights", "weather"):
            for hour in ("12", "13"):
                self.add(source, OF, hour)

    def start(self, pipeline: str = PIPELINE, **options: Any) -> Run:
        started = {"pipeline": pipeline, "date": OF, "correlation_id": "c", **options}
        run = freezer_of(self).freeze(execution=EXECUTION.format(pipeline), **started).run
        assert run
        return run

    def store_stages(self, run: Run, *steps: StepRecord) -> None:
        uri = store_stage(self.store, run, steps[-1].name, rows=3, files=1, steps=steps)
        manifest = json.loads(self.store.get(uri))
        self.store.put(uri, json.dumps({**manifest, "arrow_schema": encode_schema(LAST)}).encode())

    def publish_run(self, run: Run, **publication: Any) -> RunRecord:
        table = f"warehouse.acme_warehouse.{run.pipeline}"
        published = PUBLICATION.model_copy(update={"table": table, "content": "p", **publication})
        self.store.put(publication_uri(run.prefix), published.model_dump_json().encode())
        RunRecorder(store=self.store, table=self.table, now=self.now).record_published(run)
        return self.record_of(run)

    def record_of(self, run: Run) -> RunRecord:
        record = self.table.run(run.pipeline, run.date, run.attempt)
        assert record
        return record

    def events(self, record: RunRecord) -> RunEvents:
        return RunEvents(
            record,
            project=self.project,
            store=self.store,
            namespace="acme",
            database="acme_warehouse",
            files="s3://warehouse/files/",
        )


def validated(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return events that fit the schema, all of whose facets fit the schema that they name. They pass as JSON."""
    events = json.loads(json.dumps(events))
    for event in events:
        check(event, event["schemaURL"])
        check(event, SCHEMAS["OpenLineage"]["$id"])
        facets = list(facets_of(event))
        assert len(facets) >= 2
        for each in facets:
            check(each, each["_schemaURL"])
    return events


def check(value: Any, url: str) -> None:
    Draft202012Validator({"$ref": url}, registry=REGISTRY, format_checker=FormatChecker()).validate(value)


def facets_of(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "_schemaURL" in value:
            yield value
        for each in value.values():
            yield from facets_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from facets_of(each)
