"""`slackwater refs --verify`: each version is read and compared with its records."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
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
from slackwater.runs.packing.index import ENDING, INDEX, PackedObject, format_index, read_index
from slackwater.runs.packing.write_packed import PackedWriter
from slackwater.runs.record import Run
from slackwater.sources.event_schema import raw_schema
from slackwater.sources.partitions import named_rows
from slackwater.storage import StoredObject
from tests.example_project import PROJECT
from tests.fakes_check import PIPELINE, PUBLICATION, World
from tests.fakes_cli import a_client, use_client

pytestmark = pytest.mark.unit

DATE, STAGE = "2013-03-10", "delays_by_carrier"
HOUR = f"s3://raw/raw/source=weather/date={DATE}/hour=12/"
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


def weather(world: World, rows: int) -> bytes:
    """Return an object with so many events."""
    events = raw_schema(world.project.source("weather")).empty_table()
    events = pa.concat_tables([events, pa.table({"temp": [1.0] * rows})], promote_options="default")
    body = io.BytesIO()
    pq.write_table(events, body)
    return body.getvalue()


def change_inputs(world: World, change: Callable[[tuple[InputObject, ...]], list[InputObject]]) -> None:
    """Replace the inputs that the manifest of the run lists, and its totals in the record of the run."""
    (record,) = world.table.runs(PIPELINE, DATE)
    before = read_manifest(world.store, record.run.manifest)
    objects = sorted(change(before.objects), key=lambda item: item.uri)
    manifest = structs.replace(before, objects=tuple(objects))
    store_manifest(world.store, record.run.manifest, manifest)
    totals = {"files": len(objects), "rows": manifest.rows, "bytes": manifest.bytes}
    world.table.save(record.model_copy(update={"run": record.run.model_copy(update=totals)}))


def add_members(world: World, *rows: int) -> list[StoredObject]:
    """Add small objects with so many events each to the inputs, pack them, and delete them; return them."""
    for number, count in enumerate(rows):
        world.store.put(f"{HOUR}{number:032x}-{count}.parquet", weather(world, count))
    members = [item for item in world.store.list(HOUR) if named_rows(item.uri)]
    common: dict[str, Any] = {"source": "weather", "date": DATE, "hour": "12"}
    new = [
        InputObject(uri=item.uri, etag=item.etag, bytes=item.size, rows=count, arrived=item.modified, **common)
        for item, count in zip(members, rows, strict=True)
    ]
    change_inputs(world, lambda objects: [*objects, *new])
    write_index(world, *PackedWriter(store=world.store, now=world.now).write(HOUR, members))
    world.store.delete([item.uri for item in members])
    return members


def write_index(world: World, *packed: PackedObject) -> None:
    world.store.put(f"{HOUR}{INDEX}", format_index(packed))


def pack_other_rows(world: World, body: bytes, *, members: list[StoredObject] | None = None) -> str:
    """Replace the packed object of the hour as if it had been written with this content; return its URI."""
    (packed,) = read_index(world.store, HOUR)
    world.store.put(packed.uri, body)
    head = world.store.head(packed.uri)
    assert head
    write_index(world, packed._replace(size=head.size, etag=head.etag, members=members or packed.members))
    return packed.uri


@pytest.fixture
def tables() -> Tables:
    return Tables()


@pytest.fixture
def world(monkeypatch, tables) -> World:
    """A published day, of which the rows of two steps are stored."""
    world = World()
    uri = world.add("weather", DATE, "12", rows=2)
    world.store.put(uri, weather(world, 2), metadata={"rows": "2"})
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
    common: dict[str, Any] = {"date": DATE, "etag": "e", "bytes": 0, "rows": 3, "arrived": world.now()}
    items = (
        InputObject(uri=f"warehouse.slackwater.sales/date={DATE}", source="days", hour="00", tag="t-1", **common),
        InputObject(uri="warehouse.finance.rates", source="rates", hour="", tag="7", **common),
    )
    change_inputs(world, lambda objects: [*objects, *items])
    assert verified(code=1)["input"] == ["the table sales has no version t-1 any more"]
    tables.rows["t-1"] = PUBLISHED
    assert verified()["input"] == []
    tables.snapshots[7] = 4
    assert verified(code=1)["input"] == ["warehouse.finance.rates has 4 rows at 7; the input manifest says 3"]


def test_members_are_read_in_their_packed_object(world, verified):
    members = add_members(world, 1, 3, 2)
    assert verified()["input"] == []
    # A batch that is sent again writes the object anew: the packed object has the rows that count.
    world.store.put(members[0].uri, b"sent again")
    assert verified()["input"] == []


def test_large_packed_objects_are_read_in_parts(world, verified, monkeypatch):
    monkeypatch.setattr("slackwater.runs.packing.write_packed._ROW_GROUP", 2)
    add_members(world, 1, 3, 2)
    monkeypatch.setattr("slackwater.runs.packing.event_reader.MAX_BYTES", 1)
    assert verified()["input"] == []


def test_requests_are_those_of_the_packed_objects_and_not_of_their_members(world, verified, monkeypatch):
    monkeypatch.setattr("slackwater.runs.packing.write_packed.MAX_BYTES", 1)
    monkeypatch.setattr("slackwater.runs.packing.write_packed._READ_OBJECTS", 3)
    add_members(world, *[1] * 6)
    asked = Counter[tuple[str, str]]()

    def count(name: str) -> None:
        ask = getattr(world.store, name)

        def counted(uri: str, *arguments: Any, **options: Any) -> Any:
            if uri.startswith(HOUR):
                asked[name, uri.removeprefix(HOUR)] += 1
            return ask(uri, *arguments, **options)

        monkeypatch.setattr(world.store, name, counted)

    for name in ("get", "get_range", "head", "list"):
        count(name)
    assert verified()["input"] == []
    packed = [uri.removeprefix(HOUR) for uri in world.store.objects if uri.endswith(ENDING)]
    assert len(packed) == 2
    of_packed = [(name, uri) for uri in packed for name in ("get", "head")]
    assert asked == Counter([("get", INDEX), *of_packed, ("list", "a.parquet"), ("get", "a.parquet")])


@pytest.mark.parametrize("change", [{"etag": "other"}, {"size": 7}])
def test_a_member_that_is_another_one_in_the_index_is_found_even_if_its_object_exists(world, verified, change):
    add_members(world, 1, 3)
    (packed,) = read_index(world.store, HOUR)
    first, second = packed.members
    world.store.put(second.uri, weather(world, 3))
    write_index(world, packed._replace(members=[first, second._replace(**change)]))
    (problem,) = verified(code=1)["input"]
    other = second._replace(**change)
    assert problem == (
        f"{second.uri} has another content than the run has read: ETag {other.etag}, {other.size} bytes, "
        f"as {INDEX} says"
    )


RESTORE_OBJECT = "restore its first version (the bucket is versioned)"
RESTORE_INDEX = f"restore the former version of {INDEX} (the bucket is versioned)"


def test_a_packed_object_that_is_missing_or_changed_is_one_problem(world, verified):
    add_members(world, 1, 3, 2)
    uri = damage(world, ENDING)
    (problem,) = verified(code=1)["input"]
    assert problem == f"{uri}, with the rows of 3 objects, is not as it was written: {RESTORE_OBJECT}"
    world.store.delete([uri])
    (problem,) = verified(code=1)["input"]
    assert problem == f"{uri}, with the rows of 3 objects, does not exist any more: {RESTORE_OBJECT}"


def test_a_packed_object_that_is_no_parquet_is_one_problem(world, verified):
    add_members(world, 1, 3, 2)
    body = world.store.get(uri_of(world, ENDING))
    for damaged in (b"no Parquet", body[:4] + b"\xff" * 200 + body[204:]):
        uri = pack_other_rows(world, damaged)
        (problem,) = verified(code=1)["input"]
        assert problem.startswith(f"{uri}, with the rows of 3 objects, is no Parquet file (")
        assert problem.endswith(f"): remove it from {INDEX}, and restore these objects (the bucket is versioned)")


def test_an_index_that_is_not_readable_is_one_problem(world, verified):
    (first, *_) = add_members(world, 1, 3, 2)
    world.store.put(f"{HOUR}{INDEX}", b"{")
    later = first.uri.replace("hour=12", "hour=13")
    change_inputs(world, lambda objects: [*objects, structs.replace(objects[0], uri=later, hour="13")])
    problem, other = verified(code=1)["input"]
    assert other.startswith(f"{later} does not exist any more")
    assert problem.startswith(f"{HOUR}{INDEX} is not readable as the index of packed objects")
    assert "restore its former version (the bucket is versioned)" in problem


@pytest.mark.parametrize("order", [slice(None, None, -1), slice(1, None), slice(0, 1)])
def test_an_index_with_other_members_than_the_packed_object_is_one_problem(world, verified, order):
    add_members(world, 1, 3)
    (packed,) = read_index(world.store, HOUR)
    uri = pack_other_rows(world, world.store.get(packed.uri), members=list(packed.members)[order])
    problem, *others = verified(code=1)["input"]
    assert problem == f"{uri} does not have the rows of the members that {INDEX} says: {RESTORE_INDEX}"
    # An object that is in no index is looked for.
    assert all("does not exist any more" in other for other in others)


def test_a_packed_object_without_the_names_of_its_members_is_one_problem(world, verified):
    add_members(world, 1, 3)
    uri = pack_other_rows(world, weather(world, 4))
    (problem,) = verified(code=1)["input"]
    assert problem == f"{uri} does not have the rows of the members that {INDEX} says: {RESTORE_INDEX}"


def test_a_column_of_another_type_is_named_once_for_a_packed_object(world, verified):
    add_members(world, 1, 3)
    uri = uri_of(world, ENDING)
    table = pq.read_table(io.BytesIO(world.store.get(uri)))
    table = table.set_column(table.column_names.index("temp"), "temp", pa.array(["warm"] * 4))
    body = io.BytesIO()
    pq.write_table(table.drop_columns(["wind_gust"]), body)  # a column that was defined later
    pack_other_rows(world, body.getvalue())
    assert verified(code=1)["input"] == [f"{uri}: the column temp is of type string, not double"]


@pytest.mark.parametrize("name", ["members", "a.parquet"])
@pytest.mark.parametrize(("has_ids", "change"), [(False, 1), (False, -1), (True, 1), (True, -1)])
def test_rows_are_those_of_the_manifest_but_duplicates_do_not_count(world, verified, name, has_ids, change):
    members = add_members(world, 3, 3)
    if has_ids:
        source = world.project.sources["weather"]
        world.project.sources["weather"] = source.model_copy(update={"event_id": "origin"})
    uri, rows = (members[1].uri, 3) if name == "members" else (f"{HOUR}{name}", 2)

    def changed(item: InputObject) -> InputObject:
        return structs.replace(item, rows=rows + change) if item.uri == uri else item

    change_inputs(world, lambda objects: [*map(changed, objects)])
    are_duplicates = has_ids and change < 0
    problems = [] if are_duplicates else [f"{uri} has {rows} rows; the input manifest says {rows + change}"]
    assert verified(code=len(problems))["input"] == problems
