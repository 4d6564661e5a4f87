"""Samples from a deployed system: which objects and versions are read, and what they become."""

from __future__ import annotations

from datetime import date, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from slackwater.dev import deployed as module
from slackwater.dev.deployed import Deployed
from slackwater.dev.samples import Samples
from slackwater.errors import InputError, NotDeployed
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.period import day_of
from slackwater.runs.record import DayRecord, Publication, PublishedRun
from tests.fakes_receiver import RECEIVED, MemoryFileCache, MemoryStore, a_source, store_file
from tests.fakes_runs import LONGEST_RUN, DictRunTable
from tests.pushing import Setup, event

pytestmark = pytest.mark.unit

DAY = day_of(date(2013, 3, 10), "America/New_York")
PIPELINE = Pipeline.model_validate(
    {
        "pipeline": "weekly",
        "sources": ["things"],
        "tables": {
            "days": {"table": "daily", "days": [-2, 0], "missing": "empty"},
            "rates": {"iceberg": "finance.rates", "location": "s3://finance/rates"},
        },
        "steps": {"all": {"step": "sql", "depends_on": ["things"], "with": {"query": "SELECT * FROM things"}}},
        "publish": {"step": "all", "key": ["date"]},
    }
)
PIPELINES = {
    "weekly": PIPELINE,
    "daily": PIPELINE.model_copy(update={"pipeline": "daily", "tables": {}}),
}


class CountingStore(MemoryStore):
    """Notes what is listed and read."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[str] = []
        self.read: list[str] = []

    def list(self, prefix, *, start_after=""):
        self.listed.append(start_after)
        return super().list(prefix, start_after=start_after)

    def get(self, uri):
        self.read.append(uri)
        return super().get(uri)

    def get_range(self, uri, start, length):
        self.read.append(uri)
        return super().get_range(uri, start, length)


class Tables:
    """A warehouse with two rows in each version."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def version(self, pipeline, *, date, tag, limit):
        self.asked.append((pipeline, date, limit))
        return pa.table({"day": [date] * min(2, limit)})

    def first_rows(self, name, *, limit):
        return pa.table({"name": [name] * limit})


class World:
    """A deployed system over fakes."""

    def __init__(self, **changes: Any) -> None:
        self.setup = Setup(a_source(**changes))
        self.store = CountingStore()
        self.resources = SimpleNamespace(
            store=self.store,
            file_cache=MemoryFileCache(),
            run_table=DictRunTable(),
            warehouse=Tables(),
            connection=SimpleNamespace(cloud="AWS", deployment=SimpleNamespace(raw_bucket="raw")),
        )

    def push(self, *events):
        self.setup.push(list(events))
        self.store.objects |= self.setup.store.objects
        self.setup.clock.pass_by(hours=1)

    def publish(self, day):
        run = LONGEST_RUN.model_copy(update={"pipeline": "daily", "date": day})
        publication = Publication(table="w.d.daily", snapshot_id="1", rows=2, replaced=0, seconds=1)
        published = PublishedRun(run=run, publication=publication, at=RECEIVED)
        self.resources.run_table.save(DayRecord(pipeline="daily", date=day, published=published))

    def sample(self, name="things", *, rows=1000, source=None):
        project = Project(sources={"things": source or self.setup.source}, pipelines=PIPELINES)
        return Deployed(self.resources, rows=rows).sample(name, project, PIPELINE, DAY)


def hours_of_day(world, count=3):
    for number in range(count):
        at = DAY.start + timedelta(hours=number)
        world.push(*(event(at.isoformat(), id=f"{number}-{row}", count=number) for row in range(4)))


def test_the_latest_hours_are_read_until_there_are_enough_rows():
    world = World()
    hours_of_day(world)
    world.push(event("2013-03-10T04:59:59Z", id="before"), event("2013-03-11T04:00:00Z", id="after"))
    taken = world.sample(rows=6)
    assert taken.table["count"].to_pylist() == [1, 1, 2, 2, 2, 2]
    assert taken.table.schema == pa.schema(
        [
            ("id", pa.string()),
            ("count", pa.int64()),
            ("size", pa.float64()),
            ("good", pa.bool_()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
    assert taken.origin == "2 objects in AWS"
    assert len(world.store.read) == 2
    # From midnight in New York on.
    assert {uri.rpartition("date=")[2] for uri in world.store.listed} == {"2013-03-10/hour=05"}
    assert sorted(world.sample().table["count"].to_pylist()) == [0] * 4 + [1] * 4 + [2] * 4


def test_of_a_large_object_only_parts_are_read(monkeypatch):
    world = World()
    hours_of_day(world, 1)
    expected = world.sample().table
    monkeypatch.setattr(module, "_WHOLE_OBJECT", 0)
    monkeypatch.setattr(world.store, "get", None)
    assert world.sample().table == expected
    assert world.sample(rows=2).table == expected.slice(0, 2)


def test_the_first_received_event_of_an_id_counts():
    world = World(event_id="id")
    at, later = "2013-03-10T06:10:00Z", "2013-03-10T06:50:00Z"
    world.push(event(at, id="a", count=1))
    world.push(event(later, id="a", count=2), event(at, id="b", count=3))
    world.push(event("2013-03-10T07:00:00Z", id="a", count=4))
    assert sorted(world.sample().table["count"].to_pylist()) == [1, 3, 4]


def test_an_object_that_a_pull_has_not_committed_is_not_read():
    world = World()
    hours_of_day(world, 1)
    (uri,) = store_file(MemoryFileCache(), "things", "x.csv", "a", [next(DAY.partitions())])
    world.store.put(uri, b"no Parquet")
    assert world.sample().table.num_rows == 4


def test_a_changed_definition_changes_the_columns_of_the_same_events():
    world = World()
    hours_of_day(world, 1)
    fields = world.setup.source.model_dump(mode="json", by_alias=True)["fields"]
    added = world.sample(source=a_source(fields={**fields, "new": "string"})).table
    assert added["new"].to_pylist() == [None] * 4
    with pytest.raises(InputError, match="count is string in the definition, and int64 in the stored events"):
        world.sample(source=a_source(fields={**fields, "count": "string"}))


def test_published_days_are_read_from_the_last_one_until_there_are_enough_rows():
    world = World()
    for day in ("2013-03-08", "2013-03-10"):  # the 9th is missing
        world.publish(day)
    taken = world.sample("days", rows=3)
    assert taken.table["day"].to_pylist() == ["2013-03-08", "2013-03-10", "2013-03-10"]
    assert world.resources.warehouse.asked == [("daily", "2013-03-10", 3), ("daily", "2013-03-08", 1)]
    assert taken.origin == "2 published days of daily"


def test_a_table_of_another_system_is_read_as_it_is_now():
    assert World().sample("rates", rows=2).table["name"].to_pylist() == ["finance.rates"] * 2


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("things", "no event of 2013-03-10 is stored in AWS"),
        ("days", "daily has published none of the days"),
        (None, "there is no stack slackwater-storage"),
    ],
)
def test_an_input_without_rows_is_named_with_both_remedies(name, reason):
    world, taken_from = World(), name or "things"

    def connect(_project):
        if name is None:
            raise NotDeployed("there is no stack slackwater-storage")
        return Deployed(world.resources, rows=10)

    project = Project(sources={"things": world.setup.source}, pipelines=PIPELINES)
    with pytest.raises(InputError) as error:
        Samples({}, rows=10, connect=connect).of(taken_from, project, PIPELINE, DAY)
    expected = (
        f"{taken_from}: no rows to try the pipeline on: name a file with --input {taken_from}=FILE, or deploy the "
        f"project and store the day there: {reason}"
    )
    assert str(error.value) == expected


def test_a_sample_is_taken_once_until_what_decides_its_rows_changes(tmp_path):
    connected = []
    world = World()
    hours_of_day(world, 1)

    def connect(_project):
        connected.append(1)
        return Deployed(world.resources, rows=10)

    samples = Samples({}, rows=10, connect=connect)

    def take(**changes):
        source = a_source(**changes)
        return samples.of("things", Project(sources={"things": source}, pipelines={}), PIPELINE, DAY)

    first = take()
    reads = len(world.store.read)
    assert take(description="other", silent_hours=1) is first
    assert take(null_values=["-"]) is not first
    assert (len(world.store.read), connected) == (reads, [1])
