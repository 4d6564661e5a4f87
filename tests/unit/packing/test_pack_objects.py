"""Which hours the function packs: by default, for open periods, and for a period of an event."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest

from lambdas import pack_objects
from slackwater.errors import UnknownName
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.packing.pack_hours import HourPacker
from tests.unit.packing.test_pack_hours import HOUR, NOON, World

pytestmark = pytest.mark.unit


@pytest.fixture
def world(monkeypatch):
    """Three small objects in an hour that has ended long ago, in the one before, and in the present one."""
    world = World()
    world.clock.time = NOON + timedelta(minutes=30)
    for hours in (5, 1, 0):
        world.push_small(3, NOON - hours * HOUR)
    definition = {
        "pipeline": "today",
        "sources": ["things"],
        "steps": {"end": {"step": "sql", "depends_on": ["things"]}},
        "publish": {"step": "end", "key": ["date"]},
        "live": {"every": "5m"},
    }
    world.definition = definition
    update = {"store": world.store, "files": world.cache, "update_table": lambda *_: None}
    packer = HourPacker(**update, raw_bucket="raw", now=world.clock)
    monkeypatch.setattr(pack_objects, "hour_packer", lambda _: packer)
    monkeypatch.setattr(pack_objects, "utc_now", world.clock)
    monkeypatch.setattr(pack_objects, "function_resources", lambda: SimpleNamespace(project=project(world)))
    return world


def project(world) -> Project:
    pipeline = Pipeline.model_validate(world.definition)
    other = world.source.model_copy(update={"source": "others", "pack": None})
    return Project(sources={"things": world.source, "others": other}, pipelines={"today": pipeline})


def packed_hours(world):
    return sorted({item.uri.split("hour=")[1][:2] for item in world.listing() if item.packed})


def test_a_schedule_packs_the_hours_that_have_ended(world):
    # What EventBridge sends.
    answer = pack_objects.handler({"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}, None)
    assert answer == {"things": {"packed": 3, "deleted": 0, "failed": {}}}
    assert packed_hours(world) == ["07"]


def test_packed_hours_of_a_source_whose_pack_was_removed_are_still_looked_at(world):
    pack_objects.handler({}, None)
    world.source = world.source.model_copy(update={"pack": None})
    answers = []
    for _ in range(4 * 24):
        world.clock.pass_by(hours=1)
        answers.append(pack_objects.handler({}, None))
    assert packed_hours(world) == ["07"]
    assert [each for each in answers if each] == [{"things": {"packed": 0, "deleted": 3, "failed": {}}}]


def test_open_hours_are_packed_for_pipelines_that_publish_them(world):
    assert pack_objects.handler({"is_open": True}, None)["things"]["packed"] == 6
    assert packed_hours(world) == ["11", "12"]
    world.definition = {**world.definition, "live": None}
    assert pack_objects.handler({"is_open": True}, None) == {}


def test_the_hours_of_a_period_are_packed(world):
    period = {"source": "things", "start": "2013-03-11T11:00:00Z", "end": "2013-03-11T12:00:00Z"}
    for packed in (3, 0):
        assert pack_objects.handler({"period": period}, None)["things"]["packed"] == packed
    assert packed_hours(world) == ["11"]
    assert pack_objects.handler({"period": {**period, "source": "others"}}, None) == {}
    with pytest.raises(UnknownName, match="unknown"):
        pack_objects.handler({"period": {**period, "source": "unknown"}}, None)
