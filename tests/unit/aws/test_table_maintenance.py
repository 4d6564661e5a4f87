"""The maintenance of Iceberg tables changes files and no rows, whatever commits or ends at the same time."""

from __future__ import annotations

import random
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from shutil import copytree, rmtree

import duckdb
import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import DateType, IntegerType, LongType, NestedField, StringType

from slackwater.aws import table_maintenance
from slackwater.aws.ledger_table import IcebergLedger
from slackwater.aws.table_maintenance import Maintained, TableMaintenance
from slackwater.errors import CloudError, DataError
from slackwater.storage import StoredObject
from tests.fakes_aws import DictGlue
from tests.fakes_receiver import Fuse
from tests.unit.aws.test_ledger_table import ENTRY

pytestmark = pytest.mark.unit

NAME, DAY = "db.delays", date(2026, 3, 1)
SCHEMA = Schema(NestedField(1, "date", DateType()), NestedField(2, "n", LongType()), NestedField(3, "s", StringType()))
SPEC = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "date"))
WEEK = timedelta(days=7)


class Killed(BaseException):
    """The process ends."""


class FolderIO(PyArrowFileIO):
    """`s3://bucket/key` at `folder/bucket/key`; counts the files that are written and read."""

    counts = {"written": 0, "read": 0}
    fuse = Fuse()

    def __init__(self, properties):
        super().__init__(properties)
        self.fs_by_scheme = lambda *_: SubTreeFileSystem(properties["folder"], LocalFileSystem())

    def new_output(self, location):
        burn(FolderIO.fuse, location)
        FolderIO.counts["written"] += 1
        path = Path(self.properties["folder"]) / location.removeprefix("s3://")
        path.parent.mkdir(parents=True, exist_ok=True)
        return super().new_output(location)

    def new_input(self, location):
        FolderIO.counts["read"] += 1
        return super().new_input(location)


def burn(fuse, what):
    """Use the fuse; a process whose fuse is burnt has ended, so it handles no error."""
    if fuse.left is not None:
        if fuse.left <= 0:
            raise Killed(what)
        fuse.left -= 1


class World:
    """A catalog in memory over a folder, with its object store, and versions as what was published."""

    def __init__(self, folder):
        self.folder, self.glue, self.listings = folder, DictGlue("s3://w/db"), 0
        folder.mkdir(exist_ok=True)
        io = {"py-io-impl": f"{__name__}.FolderIO", "folder": str(folder)}
        self.catalog = GlueCatalog("c", client=self.glue, **io)
        self.versions, self.days = {}, {}
        FolderIO.fuse = self.fuse = Fuse()
        update = self.glue.update_table

        def update_table(**arguments):
            burn(self.fuse, "commit")
            update(**arguments)
            burn(self.fuse, "the answer")

        self.glue.update_table = update_table

    def copy(self, folder):
        """The same table in another folder, whose commits stay there."""
        copytree(self.folder, folder)
        other = World(folder)
        other.glue.tables = deepcopy(self.glue.tables)
        other.versions, other.days = {**self.versions}, {**self.days}
        return other

    def list(self, prefix, *, start_after=""):
        self.listings += 1
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            uri = f"s3://{path.relative_to(self.folder)}"
            if uri.startswith(prefix):
                modified = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                yield StoredObject(uri, path.stat().st_size, "etag", modified)

    def delete(self, uris):
        for uri in uris:
            burn(self.fuse, uri)
            (self.folder / uri.removeprefix("s3://")).unlink()

    def create(self, spec=SPEC, **properties):
        return self.catalog.create_table(NAME, SCHEMA, partition_spec=spec, properties=properties)

    @property
    def table(self):
        return self.catalog.load_table(NAME)

    def publish(self, day, values, *, tag=None, files=1):
        """Replace a day by rows, in so many files, and tag the commit."""
        rows = [{"date": day, "n": n, "s": f"row {n}"} for n in values]
        table = self.table
        with table.transaction() as transaction:
            if self.days.get(day):
                transaction.delete(f"date = '{day}'")
            for part in range(files):
                transaction.append(pa.Table.from_pylist(rows[part::files], schema=SCHEMA.as_arrow()))
        self.days[day] = [(row["date"], row["n"], row["s"]) for row in rows]
        if tag:
            table = self.table
            table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, tag).commit()
            self.versions[tag] = sorted(row for rows in self.days.values() for row in rows)

    def maintain(self, *, days=10, orphans=True, kept=WEEK, name=NAME):
        """Maintain the table so many days from now."""
        now = datetime.now(UTC) + timedelta(days=days)
        maintenance = TableMaintenance(catalog=self.catalog, store=self, database="db", now=lambda: now)
        return maintenance.maintain(name, kept=kept, orphans=orphans)

    def rows(self, tag=None):
        """The rows of a version as DuckDB reads its Parquet files, or those of the table."""
        table = self.table
        scan = table.scan(snapshot_id=table.snapshot_by_name(tag).snapshot_id if tag else None)
        files = [str(self.folder / task.file.file_path.removeprefix("s3://")) for task in scan.plan_files()]
        return sorted(duckdb.read_parquet(files).fetchall()) if files else []

    def check(self):
        assert self.rows() == sorted(row for rows in self.days.values() for row in rows)
        tags = {name for name, ref in self.table.metadata.refs.items() if ref.snapshot_ref_type == "tag"}
        assert tags == set(self.versions)
        for tag, rows in self.versions.items():
            assert self.rows(tag) == rows
            snapshot = self.table.snapshot_by_name(tag).snapshot_id
            read = self.table.scan(snapshot_id=snapshot).to_arrow().to_pylist()
            assert sorted(tuple(row.values()) for row in read) == rows

    def files(self, name=NAME):
        return len(list(self.catalog.load_table(name).scan().plan_files()))

    def unnamed(self):
        """Files of the folder that no metadata names, by a walk of its own."""
        table = self.table
        used = {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}
        for snapshot in table.snapshots():
            used.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                used.add(manifest.manifest_path)
                used |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
        return {item.uri for item in self.list("s3://w/")} - used


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(table_maintenance, "_MANY_FILES", 5)
    monkeypatch.setattr(table_maintenance, "_MANY_SNAPSHOTS", 3)
    return World(tmp_path / "world")


def test_small_files_of_a_day_become_one_and_every_version_stays(world):
    world.create()
    world.publish(DAY, range(12), tag="v1", files=6)
    world.publish(date(2026, 3, 2), range(4), tag="v2", files=4)
    assert world.maintain(days=0) == Maintained(6, 0, 0)
    world.check()
    assert world.files() == 5
    assert world.table.current_snapshot().summary["slackwater.maintenance"] == "rewrite"
    assert "slackwater.date" not in world.table.current_snapshot().summary.additional_properties
    assert world.maintain(days=0) == Maintained(0, 0, 0)


def test_a_reader_that_began_before_the_maintenance_keeps_its_snapshot(world):
    """It was the current one until then, however old it is."""
    world.create()
    for _ in range(4):
        world.publish(DAY, range(12), files=6)
    reader = world.table
    before = {snapshot.snapshot_id for snapshot in reader.snapshots()}
    done = world.maintain(days=0, kept=timedelta())
    assert (done.files, done.snapshots) == (6, len(before) - 1)
    assert world.table.snapshot_by_id(reader.current_snapshot().snapshot_id)
    assert reader.scan().to_arrow().num_rows == 12


def test_a_partition_without_rows_and_columns_that_were_added_later(world):
    world.create()
    world.publish(DAY, [], tag="empty")
    assert world.maintain().files == 0
    world.publish(DAY, range(5), files=5)
    with world.table.update_schema() as update:
        update.add_column("more", IntegerType())
    assert world.maintain(days=0).files == 5
    assert sorted(row["n"] for row in world.table.scan().to_arrow().to_pylist()) == [0, 1, 2, 3, 4]
    assert {row["more"] for row in world.table.scan().to_arrow().to_pylist()} == {None}


def test_only_snapshots_without_a_name_are_removed_and_then_the_files_that_only_they_had(world):
    world.create()
    for number in range(6):
        world.publish(DAY, [number], tag="v3" if number == 3 else None)
    before = len(world.table.snapshots())
    assert world.maintain(days=0, orphans=False) == Maintained()
    done = world.maintain(orphans=False)
    assert (done.snapshots, len(world.table.snapshots())) == (before - 2, 2)
    world.check()
    assert world.maintain().orphans > 0
    world.check()
    assert world.unnamed() == set()
    assert world.maintain() == Maintained()


def test_a_table_below_the_thresholds_is_neither_written_nor_read(world):
    world.create()
    world.publish(DAY, range(4), tag="v1", files=2)
    FolderIO.counts = {"written": 0, "read": 0}
    assert world.maintain(days=0, orphans=False) == Maintained()
    # Its metadata, when it is opened and again before snapshots are counted.
    assert FolderIO.counts == {"written": 0, "read": 2}
    assert world.listings == 0


def test_files_of_three_days_may_belong_to_a_commit_in_flight(world):
    world.create()
    world.publish(DAY, [1], tag="v1")
    new = world.folder / "w/db/delays/data/being-written.parquet"
    new.write_bytes(b"x")
    assert world.maintain(days=2.99).orphans == 0
    assert new.exists()
    assert world.maintain(days=3.01).orphans == 1
    world.check()


def test_files_of_a_table_whose_name_begins_alike_stay(world):
    world.create()
    world.publish(DAY, [1], tag="v1")
    other = world.folder / "w/db/delays_2/data/a.parquet"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"x")
    world.maintain()
    assert other.exists()


def test_nothing_is_deleted_where_files_are_not_those_that_the_metadata_names(world):
    world.create()
    world.publish(DAY, [1], tag="v1")
    stored = {item.uri for item in world.list("")}
    world.list = lambda prefix: [
        StoredObject(uri.replace("s3://w/", "s3a://w/"), 1, "e", datetime(2026, 1, 1, tzinfo=UTC)) for uri in stored
    ]
    with pytest.raises(DataError, match=r"the table db\.delays names s3://w/.*, which is not below s3://w/db"):
        world.maintain()


def test_no_file_is_deleted_of_a_table_whose_owner_forbids_it(world):
    world.create(**{"gc.enabled": "false"})
    for number in range(6):
        world.publish(DAY, range(6), files=6 if number == 5 else 1)
    before = {item.uri for item in world.list("")}
    assert world.maintain() == Maintained(6, 0, 0)
    assert before <= {item.uri for item in world.list("")}
    world.check()


def test_a_missing_table_and_one_with_other_partitions_need_nothing(world):
    assert world.maintain() == Maintained()
    world.create(PartitionSpec(PartitionField(2, 1000, VoidTransform(), "n_void")))
    for number in range(6):
        world.table.append(pa.Table.from_pylist([{"date": DAY, "n": number, "s": ""}], schema=SCHEMA.as_arrow()))
    assert world.maintain(days=0).files == 0


@pytest.mark.parametrize("day", [DAY, date(2026, 3, 2)], ids=["same day", "another day"])
def test_a_publication_at_the_same_time_wins_and_the_next_maintenance_continues(world, monkeypatch, day):
    world.create(**{"commit.retry.num-retries": "0"})
    world.publish(DAY, range(6), tag="v1", files=6)
    joined = table_maintenance._joined

    def publish_first(*arguments):
        file = joined(*arguments)
        world.publish(day, range(20, 27), tag="v2", files=7)
        return file

    monkeypatch.setattr(table_maintenance, "_joined", publish_first)
    assert world.maintain(days=0).files == 0
    monkeypatch.undo()
    world.check()
    monkeypatch.setattr(table_maintenance, "_MANY_FILES", 5)
    assert world.maintain(days=0).files == (7 if day == DAY else 13)
    world.check()


def test_a_writer_that_has_read_before_a_rewrite_sees_a_conflict(world):
    world.create(**{"commit.retry.num-retries": "0"})
    world.publish(DAY, range(6), tag="v1", files=6)
    stale = world.table
    assert world.maintain(days=0).files == 6
    with pytest.raises(CommitFailedException):
        stale.append(pa.Table.from_pylist([{"date": DAY, "n": 9, "s": ""}], schema=SCHEMA.as_arrow()))
    world.check()


def test_a_process_that_ends_before_any_write_leaves_every_version_and_the_next_one_completes_it(world, tmp_path):
    world.create()
    for number in range(3):
        world.publish(DAY, range(number, number + 8), tag="v1" if number == 1 else None, files=1 + 4 * (number == 2))
    writes, is_done = 0, False
    while not is_done:
        copy = world.copy(tmp_path / f"copy-{writes}")
        copy.fuse.left = writes
        with suppress(Killed):
            copy.maintain()
            is_done = True
        copy.fuse.left = None
        copy.check()
        copy.maintain()
        # What was written by the process that has ended is old by now, as all files are in ten days.
        copy.maintain()
        copy.check()
        assert copy.unnamed() == set()
        assert copy.files() == 1
        rmtree(copy.folder)
        writes += 1
    assert writes > 20


@pytest.mark.parametrize("seed", range(2))
def test_random_publications_and_maintenances_that_end_anywhere(world, seed):
    draw = random.Random(seed)  # noqa: S311 - not for secrets
    world.create()
    for step in range(10):
        day = DAY + timedelta(days=draw.randrange(3))
        values = range(step * 100, step * 100 + draw.randrange(12))
        world.publish(day, values, tag=f"v{step}" if draw.random() < 0.5 else None, files=draw.choice([1, 1, 7]))
        if draw.random() < 0.5:
            world.fuse.left = draw.choice([None, draw.randrange(40)])
            with suppress(Killed):
                world.maintain(days=draw.choice([0, 2, 10]), orphans=draw.random() < 0.7)
            world.fuse.left = None
            world.check()
    for _ in range(3):
        world.maintain()
    world.check()
    assert world.unnamed() == set()


def test_a_writer_of_the_ledger_that_lost_to_the_maintenance_reads_again(world):
    ledger = IcebergLedger(catalog=world.catalog, database="db")
    for number in range(7):
        version = ledger.read("p", {"2013-03-10"}).version
        assert ledger.write([ENTRY._replace(etag=str(number))], replaced=[], version=version)
    state = ledger.read("p", {"2013-03-10"})
    assert world.maintain(name="db.ledger", kept=timedelta(days=1)).files == 7
    assert world.files("db.ledger") == 1
    assert not ledger.write([ENTRY], replaced=[], version=state.version)
    again = ledger.read("p", {"2013-03-10"})
    assert sorted(again.entries) == sorted(state.entries)
    assert ledger.write([], replaced=[ENTRY._replace(cost_usd=1.0)], version=again.version)
    assert {row.cost_usd for row in ledger.read("p", {"2013-03-10"}).entries} == {1.0}


class TestAll:
    """All tables of a deployment, with what is done of each recorded."""

    def maintain_all(self, pipelines, *, at, limit=timedelta(minutes=10), failing=(), error=OSError):
        done, now = [], [at]

        class Recording(TableMaintenance):
            def maintain(self, name, *, kept, orphans):
                done.append((name, kept.days, orphans))
                now[0] += timedelta(minutes=4)
                if name in failing:
                    raise error
                return Maintained()

        every = Recording(catalog=None, store=None, database="db", now=lambda: now[0])
        return every.maintain_all(pipelines, limit=limit), done

    @pytest.mark.parametrize(
        ("error", "text"),
        [
            (CloudError("no access"), "no access"),
            (OSError("no such file"), "OSError('no such file')"),
            (ValueError("Unknown format version: 4"), "ValueError('Unknown format version: 4')"),
        ],
    )
    def test_the_ledger_comes_first_and_a_failure_stops_no_other_table(self, error, text):
        at = datetime(2026, 3, 1, tzinfo=UTC)
        result, done = self.maintain_all(
            ["a", "b"], at=at, limit=timedelta(hours=1), failing=["db.ledger"], error=error
        )
        assert done[0][:2] == ("db.ledger", 1)
        assert sorted(name for name, *_ in done[1:]) == ["db.a", "db.b"]
        assert {kept for _, kept, _ in done[1:]} == {7}
        assert (set(result.tables), result.failures) == ({"a", "b"}, [f"ledger: {text}"])

    def test_each_table_is_searched_for_orphans_on_one_day_of_the_week_and_every_table_has_its_turn(self):
        names, begun, searched = [f"t{number}" for number in range(6)], set(), []
        for day in range(28):
            result, _ = self.maintain_all(names, at=datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=day))
            # Ten minutes are enough for three tables of four minutes.
            assert len(result.tables) == 3
            begun |= set(result.tables)
            everything = self.maintain_all(
                names, at=datetime(2026, 3, 1, tzinfo=UTC) + timedelta(days=day), limit=timedelta(hours=9)
            )[1]
            searched += [name for name, _, orphans in everything if orphans]
        assert begun == {*names, "ledger"}
        assert {searched.count(f"db.{name}") for name in (*names, "ledger")} == {4}
