"""Names of objects with attempt and rows, and the names and records of earlier releases, which stay valid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slackwater.receiver.pull.fetch import LEASE
from slackwater.receiver.pull.file_cache import Content, FileEntry, FileState
from slackwater.receiver.pull.plan import FileDecision
from slackwater.runs.inputs.consistent_listing import consistent_listing
from slackwater.storage import StoredObject
from tests.before_named_rows import as_before, attempt_before
from tests.fakes_receiver import RECEIVED, MemoryFileCache, a_source
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


def stored_by_an_earlier_release(*, has_rows):
    setup = Setup({FIRST: BODY}, UTC)
    setup.pull()
    as_before(setup.store, setup.cache, file=FIRST, has_rows=has_rows)
    (content,) = setup.cache.saved_contents.values()
    assert all(name.startswith(f"{content.id}-{content.current.digest}") for name in names(setup))
    assert len(names(setup)) == 2
    return setup


def test_the_names_of_the_objects_of_a_file_have_their_rows():
    setup = Setup({FIRST: BODY}, UTC)
    setup.pull()
    assert [name.split("-")[2] for name in names(setup)] == ["1", "2"]
    assert {len(name.split("-")[0]) for name in names(setup)} == {32}
    assert read(setup) == HOURS


@pytest.mark.parametrize("has_rows", [False, True])
def test_a_file_with_a_content_that_an_earlier_release_has_stored_writes_nothing(has_rows):
    setup = stored_by_an_earlier_release(has_rows=has_rows)
    before, (content,) = dict(setup.store.objects), setup.cache.saved_contents.values()
    assert setup.pull() == {}
    setup.partner.files = {FIRST: BODY, SECOND: BODY}
    assert setup.pull() == {SECOND: "duplicate"}
    (after,) = setup.cache.saved_contents.values()
    assert (after.current, after.changed_at, after.files) == (content.current, content.changed_at, 2)
    assert {
        uri: value for uri, value in setup.store.objects.items() if "/landing/" not in uri
    }.items() <= before.items()
    setup.clock.pass_by(days=4)
    setup.remove_stale()
    assert read(setup) == HOURS


@pytest.mark.parametrize("has_rows", [False, True])
@pytest.mark.parametrize("change", ["content", "definition"])
def test_objects_that_an_earlier_release_has_stored_are_deleted_when_no_file_needs_them(change, has_rows):
    setup = stored_by_an_earlier_release(has_rows=has_rows)
    if change == "content":
        setup.partner.files = {FIRST: csv_of(row("d", "2013-03-11T12:00:00"))}
    else:
        setup.source = TOKYO
    assert setup.pull() == {FIRST: "stored"}
    expected = [("d", "12")] if change == "content" else [("a", "03"), ("b", "04"), ("c", "04")]
    assert read(setup) == expected
    setup.clock.pass_by(days=4)
    setup.remove_stale()
    assert read(setup) == expected
    assert len(names(setup)) == len({hour for _, hour in expected})


@pytest.mark.parametrize("source", [UTC, TOKYO])
@pytest.mark.parametrize("fails", [False, True])
def test_an_attempt_of_the_release_before_that_ended_at_any_write_is_repaired(fails, source, tmp_path):
    writes, number = 1, 9
    while writes <= number:
        setup = Setup({FIRST: BODY}, UTC)
        number = attempt_before(setup, FIRST, tmp_path, writes=writes, fails=fails)
        written = {*setup.store.uris("/raw/source=")}
        assert (read(setup) == HOURS) == (writes > number - 2)
        setup.source = source
        setup.clock.pass_by(seconds=LEASE.total_seconds())
        setup.pull()
        assert [name for name, _ in read(setup)] == ["a", "b", "c"]
        setup.clock.pass_by(days=4)
        setup.remove_stale()
        assert [name for name, _ in read(setup)] == ["a", "b", "c"]
        assert len(names(setup)) == 2, "no object is left over"
        is_kept = source is UTC and writes > number - 2
        assert (written == {*setup.store.uris("/raw/source=")}) == is_kept
        assert list(setup.plan().items) == []
        writes += 1
    assert writes > 8


def test_partitions_that_the_release_before_has_changed_and_not_reported_are_reported(tmp_path):
    """It kept the lease after its commit, without the partitions."""
    setup = Setup({FIRST: BODY}, UTC)
    assert attempt_before(setup, FIRST, tmp_path, writes=7, fails=False) == 8
    assert read(setup) == HOURS
    setup.clock.pass_by(seconds=LEASE.total_seconds())
    (item,) = setup.plan().items
    fetched = setup.fetch(item)
    assert (fetched.state, [hour for _, hour in fetched.partitions]) == ("unchanged", ["12", "13"])
    assert setup.partner.fetched == []


@pytest.mark.parametrize("leftover", [{"superseded": ["0" * 32]}, {"writing": "0" * 32}])
@pytest.mark.parametrize("state", [FileState.STORED, FileState.GIVEN_UP])
def test_a_file_that_an_earlier_release_had_to_clean_up_leaves_the_index_of_due_files(state, leftover):
    setup = Setup({FIRST: BODY}, UTC)
    setup.pull()
    record = setup.entry(FIRST).model_dump(mode="json") | {"state": state, "due": RECEIVED.isoformat(), **leftover}
    setup.cache.saved_entries["things", FIRST] = FileEntry.model_validate_json(json.dumps(record))
    assert [item.decision for item in setup.plan().items] == [FileDecision.REPAIR]
    assert setup.pull() == {FIRST: "unchanged"}
    assert setup.partner.fetched == [FIRST]
    assert (setup.entry(FIRST).state, setup.entry(FIRST).is_unfinished) == (state, False)


def test_a_release_before_attempts_cannot_read_a_new_record():
    """It would not find the version, and ignore the rows: the type of `current` refuses that."""
    setup = Setup({FIRST: BODY}, UTC)
    setup.pull()
    (content,) = setup.cache.saved_contents.values()
    assert isinstance(json.loads(content.model_dump_json(exclude_defaults=True))["current"], dict)


def test_a_record_whose_version_is_missing_is_refused_while_a_file_needs_it():
    record = {"source": "things", "id": "0" * 32, "received_at": RECEIVED, "current": "1" * 12, "versions": []}
    assert Content.model_validate({**record, "files": 0}).current is None
    with pytest.raises(ValueError, match="current"):
        Content.model_validate({**record, "files": 1})


def test_the_record_of_a_content_that_the_version_before_has_written_names_its_objects():
    records = [json.loads(item["record"]["S"]) for item in json.loads(STORED.read_text())["FileTable"]]
    (content,) = (Content.model_validate(record) for record in records if "versions" in record)
    assert content.committed
    uri = (
        "s3://raw/raw/source=previous_flights/date=1999-01-01/hour=13/"
        "81b1dbb79e8af0c5588e36744313089d-291dccfd4785.parquet"
    )
    cache = MemoryFileCache()
    cache.save(content.model_copy(update={"revision": 0, "source": "things"}))
    listed = [StoredObject(uri, 1, "e", RECEIVED), StoredObject(uri.replace("291d", "0000"), 1, "e", RECEIVED)]
    assert consistent_listing(UTC, lambda: listed, files=cache).objects == listed[:1]
