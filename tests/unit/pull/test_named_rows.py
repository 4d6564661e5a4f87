"""Names of objects with rows: each version of a content keeps the names with which it was announced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slackwater.receiver.pull.fetch import LEASE
from slackwater.receiver.pull.file_cache import Content
from tests.before_named_rows import as_before, stage_as_before
from tests.fakes_crashes import FAULT_TYPES, Process, WriteFault
from tests.fakes_receiver import a_source
from tests.pulling import FIRST, SECOND, Setup, csv_of, row
from tests.reading import stored_events

pytestmark = pytest.mark.unit

STORED = Path(__file__).parents[2] / "infra" / "previous" / "stored.json"
UTC, TOKYO = (a_source(timestamp={"field": "at", "timezone": name}) for name in ("UTC", "Asia/Tokyo"))
BODY = csv_of(row("a", "2013-03-11T12:00:00"), row("b", "2013-03-11T13:00:00"), row("c", "2013-03-11T13:10:00"))
HOURS = [("a", "12"), ("b", "13"), ("c", "13")]


def read(setup):
    """Ids of the events that readers see, with the hours of their partitions."""
    events = stored_events(setup.store, setup.source, files=setup.cache)
    return sorted((event["id"], event["_object"].split("/hour=")[1][:2]) for event in events)


def names(setup):
    return [uri.rpartition("/")[2].removesuffix(".parquet") for uri in setup.store.uris("/raw/source=")]


def stored_by_the_version_before():
    setup = Setup({FIRST: BODY}, UTC)
    setup.pull()
    as_before(setup.store, setup.cache, file=FIRST)
    return setup


def test_the_names_of_the_objects_of_a_file_have_their_rows():
    setup = Setup({FIRST: BODY}, UTC)
    setup.pull()
    assert [name.split("-")[2] for name in names(setup)] == ["1", "2"]
    assert {len(name.split("-")[0]) for name in names(setup)} == {32}
    assert read(setup) == HOURS


def test_a_file_with_a_content_that_the_version_before_has_stored_writes_nothing():
    setup = stored_by_the_version_before()
    before, (content,) = dict(setup.store.objects), setup.cache.saved_contents.values()
    setup.partner.files = {FIRST: BODY, SECOND: BODY}
    assert setup.pull() == {SECOND: "duplicate"}
    (after,) = setup.cache.saved_contents.values()
    assert (after.current, after.changes, after.files) == (content.current, content.changes, 2)
    assert {
        uri: value for uri, value in setup.store.objects.items() if "/landing/" not in uri
    }.items() <= before.items()
    assert read(setup) == HOURS


@pytest.mark.parametrize("change", ["content", "definition"])
def test_objects_that_the_version_before_has_stored_are_deleted_when_no_file_needs_them(change):
    setup = stored_by_the_version_before()
    if change == "content":
        setup.partner.files = {FIRST: csv_of(row("d", "2013-03-11T12:00:00"))}
    else:
        setup.source = TOKYO
    assert setup.pull() == {FIRST: "stored"}
    assert read(setup) == ([("d", "12")] if change == "content" else [("a", "03"), ("b", "04"), ("c", "04")])
    assert len(names(setup)) == len({hour for _, hour in read(setup)})


@pytest.mark.parametrize("source", [UTC, TOKYO])
@pytest.mark.parametrize("fault_type", FAULT_TYPES)
def test_an_attempt_of_the_version_before_that_ended_at_any_write_is_repaired(fault_type, source, monkeypatch):
    for write in range(1, 20):
        setup, process = Setup({FIRST: BODY}, UTC), Process(WriteFault(write, fault_type))
        with monkeypatch.context() as patch:
            stage_as_before(patch)
            setup.pull(using=process.using)
        announced = {*setup.store.uris("/raw/source=")}
        setup.source = source
        setup.clock.pass_by(seconds=LEASE.total_seconds())
        setup.pull()
        assert [name for name, _ in read(setup)] == ["a", "b", "c"]
        assert len(names(setup)) == 2, "no object is left over, and none is written with two names"
        assert source is not UTC or announced <= {*setup.store.uris("/raw/source=")}
        assert not any(content.garbage for content in setup.cache.saved_contents.values())
        if not process.is_fault_reached:
            break
    assert write > 8


def test_the_record_of_a_content_that_the_version_before_has_written_names_its_objects():
    records = [json.loads(item["record"]["S"]) for item in json.loads(STORED.read_text())["FileTable"]]
    (content,) = (Content.model_validate(record) for record in records if "versions" in record)
    assert content.committed
    assert list(content.object_uris(content.committed, "raw")) == [
        "s3://raw/raw/source=previous_flights/date=1999-01-01/hour=13/"
        "81b1dbb79e8af0c5588e36744313089d-291dccfd4785.parquet"
    ]
