"""`slackwater refs --verify`: each version is read and compared with its records."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import structs

from slackwater.arrow.dataset import store_dataset
from slackwater.arrow.files import write_files
from slackwater.arrow.messages import encode_schema
from slackwater.arrow.reference import ArrowManifest, Producer, StepRecord
from slackwater.errors import ObjectMissing
from slackwater.runs.inputs.manifest import InputObject, read_manifest, store_manifest
from slackwater.runs.record import Run
from slackwater.sources.event_schema import raw_schema
from tests.example_project import PROJECT
from tests.fakes_check import PIPELINE, PUBLICATION, World
from tests.fakes_cli import a_client, use_client

pytestmark = pytest.mark.unit

DATE, STAGE = "2013-03-10", "delays_by_carrier"
STORED = pa.table({"origin": ["EWR", "JFK", "LGA"], "delay": [1.5, float("nan"), None]})
PUBLISHED = STORED.append_column("date", pa.array([DATE] * 3)).set_column(
    0, "origin", STORED["origin"].cast(pa.large_string())
)


class Tables:
    """The warehouse: the rows of a version, or none."""

    def __init__(self) -> None:
        self.rows: dict[str, pa.Table] = {}
        self.snapshots = {7: 3}

    def version(self, pipeline: str, *, date: str, tag: str) -> pa.Table:
        if tag not in self.rows:
            raise ObjectMissing(f"the table {pipeline} has no version {tag} any more")
        return self.rows[tag]

    def rows_of_snapshot(self, name: str, snapshot: int) -> int:
        assert name == "finance.rates"
        return self.snapshots[snapshot]


def store_rows(world: World, run: Run, name: str, *, parents: tuple[str, ...], steps: tuple[str, ...]) -> str:
    """Store two Arrow files as the version of a step of the last stage; return the URI of its manifest."""
    files = list(
        write_files(
            STORED.to_batches(max_chunksize=2),
            prefix=f"{run.arrow_prefix}{name}/",
            schema=STORED.schema,
            store=world.store,
            limit=1,
        )
    )
    manifest = ArrowManifest(
        producer=Producer(pipeline=PIPELINE, date=DATE, run_id=run.run_id, attempt=run.attempt, stage=STAGE),
        created_at=world.now(),
        arrow_schema=encode_schema(STORED.schema),
        files=tuple(files),
        parents=parents,
        steps=tuple(
            StepRecord(name=step, step="filter", parameters={}, rows_in={}, rows_out=3, seconds=1) for step in steps
        ),
    )
    return store_dataset(manifest, run.stage_prefix(name), store=world.store, seconds=1).manifest


@pytest.fixture
def tables() -> Tables:
    return Tables()


@pytest.fixture
def world(monkeypatch, tables) -> World:
    """A published day, of which the rows of two steps are stored."""
    world = World()
    events = raw_schema(world.project.source("weather")).empty_table()
    events = pa.concat_tables([events, pa.table({"temp": [1.0, 2.0]})], promote_options="default")
    body = io.BytesIO()
    pq.write_table(events, body)
    uri = world.add("weather", DATE, "12", rows=2)
    world.store.put(uri, body.getvalue(), metadata={"rows": "2"})
    run = world.freeze(DATE)
    manifest = read_manifest(world.store, run.manifest)
    # The names of the test's objects do not say how many events they have.
    objects = tuple(structs.replace(item, rows=2) for item in manifest.objects)
    store_manifest(world.store, run.manifest, structs.replace(manifest, objects=objects))
    run = run.model_copy(update={"rows": 2})
    world.table.save(world.table.run(PIPELINE, DATE, 1).model_copy(update={"run": run}))
    world.store.put(f"{run.prefix}stages.json", b'{"delays_by_carrier": "1"}')
    joined = store_rows(world, run, "joined", parents=(run.manifest,), steps=("joined",))
    store_rows(world, run, STAGE, parents=(joined,), steps=("joined", STAGE))
    world.store.put(f"{run.prefix}publication.json", PUBLICATION.model_dump_json().encode())
    world.recorder.record_published(run)
    tables.rows[run.tag] = PUBLISHED
    use_client(monkeypatch, a_client(world.project, run_table=world.table, store=world.store, warehouse=tables))
    return world


@pytest.fixture
def verified(document_of):
    def verified(*, code: int = 0) -> dict[str, list[str] | None]:
        """Return the problems of each version by name; None for one that was not read."""
        document = document_of("refs", PIPELINE, "--date", DATE, "--verify", *PROJECT, code=code)
        return {item["name"]: None if item["verified"] is None else item["problems"] for item in document["versions"]}

    return verified


def uri_of(world: World, part: str) -> str:
    return next(uri for uri in sorted(world.store.objects) if part in uri)


def damage(world: World, part: str) -> str:
    """Change the last byte of a file; return its URI."""
    uri = uri_of(world, part)
    body = world.store.get(uri)
    world.store.put(uri, body[:-1] + bytes([body[-1] ^ 1]))
    return uri


def test_inputs_steps_stages_and_the_published_rows_are_as_recorded(world, verified, printed_by):
    assert verified() == {"input": [], "joined": [], "delays_by_carrier": [], "published": []}
    lines = printed_by("refs", PIPELINE, "--date", DATE, "--verify", *PROJECT).out.splitlines()
    assert lines[0].split()[-1] == "verified"
    assert [line.split()[-1] for line in lines[1:5]] == ["ok"] * 4
    assert [line.split()[1] for line in lines[1:5]] == ["input", "joined", "delays_by_carrier", "published"]


def test_a_damaged_arrow_file_is_named_and_the_exit_code_is_1(world, verified, printed_by):
    uri = damage(world, "/joined/")
    assert verified(code=1)["joined"] == [
        f"{uri} differs from its manifest: it has another checksum: run the day again"
    ]
    assert f"attempt 1, joined: {uri} differs from its manifest" in printed_by(
        "refs", PIPELINE, "--date", DATE, "--verify", *PROJECT, code=1
    ).out.replace("\n", " ")


def test_a_missing_file_is_named_and_a_version_that_retention_has_removed_is_not_read(world, verified):
    uri = uri_of(world, "/joined/")
    world.store.delete([uri])
    (problem,) = verified(code=1)["joined"]
    assert problem.startswith(f"{uri} does not exist: it was removed by retention")
    world.store.delete([uri for uri in world.store.objects if "/arrow/" in uri])
    assert verified() == {"input": [], "joined": None, "delays_by_carrier": None, "published": []}


OTHER_SCHEMA = STORED.rename_columns(["origin", "late"]).schema


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"rows":1', '"rows":2', "has 1 rows; its manifest says 2"),
        (encode_schema(STORED.schema), encode_schema(OTHER_SCHEMA), "delay double, not origin string, late double"),
    ],
)
def test_other_rows_and_another_schema_than_those_of_the_manifest_are_found(world, verified, old, new, problem):
    uri = uri_of(world, "/joined/manifest.json")
    world.store.put(uri, world.store.get(uri).replace(old.encode(), new.encode()))
    assert any(problem in item for item in verified(code=1)["joined"])


def test_an_input_that_is_replaced_or_missing_is_found(world, verified):
    uri = damage(world, "s3://raw/")
    (problem,) = verified(code=1)["input"]
    assert problem.startswith(f"{uri} has another content than the run has read")
    world.store.delete([uri])
    (problem,) = verified(code=1)["input"]
    assert problem.startswith(f"{uri} does not exist any more")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (PUBLISHED.slice(1), "has 2 rows; the record of the run says 3"),
        (PUBLISHED.drop_columns(["delay"]), "lacks the columns delay"),
        (PUBLISHED.set_column(1, "delay", pa.array(["a", "b", "c"])), "have other types than its stage has written"),
        (PUBLISHED.set_column(1, "delay", pa.array([1.5, None, None])), "2 rows of the version"),
    ],
)
def test_published_rows_that_differ_from_those_of_the_last_stage_are_found(world, verified, tables, rows, problem):
    (tag,) = tables.rows
    tables.rows[tag] = rows
    assert any(problem in item for item in verified(code=1)["published"])


def test_a_published_version_that_is_gone_is_a_problem_only_if_none_has_replaced_it(world, verified, tables):
    tables.rows.clear()
    (problem,) = verified(code=1)["published"]
    assert "has no version" in problem
    day = world.table.day(PIPELINE, DATE)
    later = day.published.run.model_copy(update={"attempt": 2})
    world.table.save(day.model_copy(update={"published": day.published.model_copy(update={"run": later})}))
    assert verified()["published"] is None


def test_days_of_other_pipelines_and_snapshots_of_other_systems_are_read(world, verified, tables):
    (record,) = world.table.runs(PIPELINE, DATE)
    common: dict[str, Any] = {"date": DATE, "etag": "e", "bytes": 0, "rows": 3, "arrived": world.now()}
    items = (
        InputObject(uri=f"warehouse.slackwater.sales/date={DATE}", source="days", hour="00", tag="t-1", **common),
        InputObject(uri="warehouse.finance.rates", source="rates", hour="", tag="7", **common),
    )
    manifest = read_manifest(world.store, record.run.manifest)
    both = structs.replace(manifest, objects=(*manifest.objects, *items))
    store_manifest(world.store, record.run.manifest, both)
    run = record.run.model_copy(update={"files": 3, "rows": both.rows})
    world.table.save(record.model_copy(update={"run": run}))
    assert verified(code=1)["input"] == ["the table sales has no version t-1 any more"]
    tables.rows["t-1"] = PUBLISHED
    assert verified()["input"] == []
    tables.snapshots[7] = 4
    assert verified(code=1)["input"] == ["warehouse.finance.rates has 4 rows at 7; the input manifest says 3"]
