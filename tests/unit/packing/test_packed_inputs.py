"""Input manifests of packed hours: an hour that is as the earlier manifest has it is not read again."""

from __future__ import annotations

import random
from datetime import date, timedelta

import pytest
from msgspec import structs

from slackwater.errors import ObjectInvalid
from slackwater.runs.inputs.manifest import PackedHour, read_manifest, store_manifest
from slackwater.runs.packing import index
from slackwater.runs.packing.index import ENDING, INDEX
from slackwater.runs.period import day_of
from tests.fakes_runs import listing_of
from tests.pulling import csv_of, row
from tests.unit.packing.test_pack_hours import HOUR, NOON, World

pytestmark = pytest.mark.unit

DAY = day_of(date(2013, 3, 11), "UTC")


class Inputs:
    """The inputs of a day that reads a source with packed hours."""

    def __init__(self, monkeypatch, world):
        self.world, self.read = world, []
        """The hours whose indexes were read in the last listing."""
        read = index.read_index

        def read_index(store, folder):
            self.read.append(folder[-3:-1])
            return read(store, folder)

        monkeypatch.setattr(index, "read_index", read_index)

    def manifest(self, known=None):
        world = self.world
        inputs = listing_of(world.source, store=world.store, files=world.cache, now=world.clock)
        self.read.clear()
        return inputs.manifest("all", DAY, known=known)

    def delete_members(self):
        self.world.clock.pass_by(days=3, seconds=1)
        assert self.world.pack().deleted


@pytest.fixture(params=[{}, {"event_id": "id"}], ids=["without ids", "with ids"])
def inputs(monkeypatch, request):
    """Two hours with small objects. The first event comes again with another one, and alone."""
    world = World(**request.param)
    world.push_small(4)
    world.push(("1112-0-0", NOON), ("other", NOON))
    world.push(("1112-0-0", NOON + timedelta(minutes=1)))
    world.push_small(3, NOON + HOUR)
    return Inputs(monkeypatch, world)


def test_the_index_of_an_unchanged_hour_is_read_once(inputs):
    before = inputs.manifest()
    inputs.world.pack()
    packed = inputs.manifest(before)
    assert (packed.objects, packed.digest) == (before.objects, before.digest)
    assert sorted(inputs.read) == ["12", "13"]
    assert [folder[-3:-1] for folder in packed.packed] == ["12", "13"]
    inputs.delete_members()
    again = inputs.manifest(packed)
    assert (again.objects, again.packed, inputs.read) == (before.objects, packed.packed, [])
    assert again.lists_as(packed)
    assert inputs.manifest().lists_as(packed)


def test_indexes_are_read_while_the_objects_of_their_members_exist(inputs):
    inputs.world.pack()
    packed = inputs.manifest()
    assert inputs.manifest(packed).objects == packed.objects
    assert sorted(inputs.read) == ["12", "13"]


def test_a_late_event_in_a_packed_hour_is_an_input_and_its_hour_is_no_packed_one_until_it_is_a_member(inputs):
    world = inputs.world
    world.pack()
    inputs.delete_members()
    before = inputs.manifest()
    world.push(("late", NOON))
    late = inputs.manifest(before)
    (added,) = {item.uri for item in late.objects} - {item.uri for item in before.objects}
    assert (added in world.stored(), late.rows, inputs.read) == (True, before.rows + 1, ["12"])
    assert [folder[-3:-1] for folder in late.packed] == ["13"]
    assert inputs.manifest(late).objects == late.objects
    world.push_small(3)
    several = inputs.manifest(late)
    world.pack()
    inputs.delete_members()
    packed = inputs.manifest(several)
    assert packed.objects == several.objects
    assert inputs.read == ["12"]
    assert inputs.manifest(packed).lists_as(packed)
    assert inputs.read == []


def test_a_batch_that_is_sent_again_after_its_object_was_deleted_is_the_member(inputs):
    inputs.world.pack()
    inputs.delete_members()
    before = inputs.manifest()
    inputs.world.send(inputs.world.batches[0])
    assert inputs.manifest(before).objects == before.objects
    assert inputs.read == ["12"]


def test_an_hour_whose_index_is_gone_has_lost_its_inputs(inputs):
    inputs.world.pack()
    inputs.delete_members()
    before = inputs.manifest()
    (noon, _) = inputs.world.stored(INDEX)
    inputs.world.store.delete([noon])
    assert {item.hour for item in inputs.manifest(before).objects} == {"13"}


def test_an_hour_with_pulled_files_is_read_each_time(inputs):
    """Its inputs change with the file cache, while the index stays."""
    world = inputs.world
    world.partner.files = {"things-2013-03-11.csv": csv_of(row("pulled", NOON.isoformat()))}
    world.pull(date(2013, 3, 11))
    world.clock.pass_by(days=9)
    assert world.pack().packed
    inputs.delete_members()
    before = inputs.manifest()
    assert [folder[-3:-1] for folder in before.packed] == ["13"]
    world.partner.files = {"things-2013-03-11.csv": csv_of(row("changed", NOON.isoformat()))}
    world.pull(date(2013, 3, 11))
    now = inputs.manifest(before)
    assert now.digest != before.digest
    assert now.digest == inputs.manifest().digest


def test_the_bytes_that_a_run_reads_are_those_of_packed_objects(inputs):
    world = inputs.world
    before = inputs.manifest()
    assert before.read_bytes == before.bytes
    world.pack()
    packed = inputs.manifest()
    sizes = {uri: world.store.head(uri).size for uri in world.stored(ENDING)}
    assert (packed.read_bytes, packed.bytes) == (sum(sizes.values()), before.bytes)
    world.push(("late", NOON))
    late = inputs.manifest(packed)
    # The hour with the late event counts with the objects of its members.
    one = next(size for uri, size in sizes.items() if "hour=13" in uri)
    assert late.read_bytes == one + sum(item.bytes for item in late.objects if item.hour == "12")

    assert structs.replace(packed, objects=()).read_bytes == 0


def test_a_manifest_keeps_its_packed_hours(inputs):
    inputs.world.pack()
    manifest = inputs.manifest()
    store_manifest(inputs.world.store, "s3://exchange/m.json", manifest)
    assert read_manifest(inputs.world.store, "s3://exchange/m.json") == manifest
    # One that an earlier release has written has none.
    store_manifest(inputs.world.store, "s3://exchange/m.json", structs.replace(manifest, packed={}))
    body = inputs.world.store.get("s3://exchange/m.json").replace(b',"packed":{}', b"")
    assert b"packed" not in body.replace(ENDING.encode(), b"")
    inputs.world.store.put("s3://exchange/m.json", body)
    assert read_manifest(inputs.world.store, "s3://exchange/m.json").packed == {}


@pytest.mark.parametrize("hour", [{"index": 1, "bytes": 2}, {"index": "e", "bytes": -1}, {"index": "e"}])
def test_a_wrong_packed_hour_is_an_error(inputs, hour):
    store = inputs.world.store
    store_manifest(store, "s3://exchange/m.json", structs.replace(inputs.manifest(), packed={"f/": PackedHour("e", 2)}))
    wrong = store.get("s3://exchange/m.json").replace(b'{"index":"e","bytes":2}', str(hour).replace("'", '"').encode())
    store.put("s3://exchange/m.json", wrong)
    with pytest.raises(ObjectInvalid, match=r"is not readable as an input manifest .*packed"):
        read_manifest(store, "s3://exchange/m.json")


@pytest.mark.parametrize("event_id", [None, "id"])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_known_never_changes_the_inputs(monkeypatch, seed, event_id):
    """Pushes, retries, pulls, changed and removed files, and packing, each followed by two manifests."""
    chosen = random.Random(seed)  # noqa: S311 - reproducible examples
    world = World(**({"event_id": event_id} if event_id else {}))
    inputs, known = Inputs(monkeypatch, world), None
    for step in range(40):
        hour = NOON + chosen.randrange(3) * HOUR
        match chosen.randrange(8):
            case 0:
                world.push(*((f"{step}-{n}", hour + n % 2 * HOUR) for n in range(chosen.randint(1, 4))))
            case 1 | 2:
                world.push_small(3, hour)
            case 3 if world.batches:
                world.send(chosen.choice(world.batches))
            case 4:
                rows = (row(f"{step}-{n}", hour.isoformat()) for n in range(chosen.randint(1, 3)))
                files = {} if chosen.random() < 0.3 else {"things-2013-03-11.csv": csv_of(*rows)}
                world.partner.files = files
                world.pull(chosen.choice([date(2013, 3, 12), world.clock().date()]))
            case 5:
                world.clock.pass_by(hours=chosen.randrange(60))
            case _:
                world.pack(is_open=chosen.random() < 0.3)
        now, alone = inputs.manifest(known), inputs.manifest()
        # An object that was known is an input also when none of its events counts any more.
        counting = [[item for item in each.objects if item.rows] for each in (now, alone)]
        assert counting[0] == counting[1]
        assert now.packed == alone.packed
        known = now
    for _ in range(3):
        world.clock.pass_by(days=4)
        world.pack()
        world.remove_stale()
    known = inputs.manifest(known)
    assert known.packed
    assert inputs.manifest(known).lists_as(known)
    assert not {folder[-3:-1] for folder in known.packed} & {*inputs.read}
