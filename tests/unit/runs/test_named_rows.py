"""The number of events in the names of raw objects: a listing of inputs reads no metadata of such objects."""

from __future__ import annotations

from datetime import date

import pytest

from slackwater.runs.inputs.manifest import InputManifest
from slackwater.runs.period import day_of
from slackwater.sources.partitions import Partition, named_rows, object_name, object_uri
from tests import pulling, pushing
from tests.before_named_rows import as_before
from tests.fakes_receiver import RECEIVED, a_source
from tests.fakes_runs import listing_of

pytestmark = pytest.mark.unit

BATCH, VERSION = "0" * 32, "0123456789ab"


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        (object_name(BATCH, 10_000), 10_000),
        (object_name(f"{BATCH}-{VERSION}", 7), 7),
        (BATCH, None),
        (f"{BATCH}-{VERSION}", None),
        (f"{BATCH}-{'1' * 12}", None),  # The digits of a version may all be decimal.
        (f"{BATCH}-{'1' * 12}-5", 5),
        (f"{BATCH}-x", None),
        ("a-5", None),
    ],
)
def test_an_object_has_its_rows_in_its_name_unless_it_was_written_before(name, rows):
    assert named_rows(object_uri("raw", "things", Partition("2013-03-11", "12"), name)) == rows


class Received:
    """A receiver that has stored pushed batches and pulled files, and the listing of their day."""

    def __init__(self, batches: int, *, source=None) -> None:
        self.source = source or a_source()
        self.pushed, self.pulled = pushing.Setup(self.source), pulling.Setup(source=self.source)
        self.store = self.pulled.store = self.pushed.store
        self.asked: list[str] = []
        metadata = self.store.metadata
        self.store.metadata = lambda uri: (self.asked.append(uri), metadata(uri))[1]
        self.rows = 0
        for number in range(batches):
            self.push(number)

    def push(self, number: int) -> None:
        """Push a batch of events, in two hours."""
        events = [
            pushing.event(f"2013-03-11T{12 + index % 2}:{number % 60:02}:00Z", id=f"{number}-{index}")
            for index in range(2 + number % 3)
        ]
        assert self.pushed.push(events).accepted == len(events)
        self.rows += len(events)

    def pull(self, path: str, *names: str) -> None:
        self.pulled.partner.files = {path: pulling.csv_of(*map(pulling.row, names))}
        assert self.pulled.pull() == {path: "stored"}
        self.rows += len(names)

    def freeze(self, known: InputManifest | None = None) -> InputManifest:
        inputs = listing_of(self.source, store=self.store, files=self.pulled.cache, now=lambda: RECEIVED)
        self.asked.clear()
        return inputs.manifest("all", day_of(date(2013, 3, 11), "UTC"), known=known)


def test_a_freeze_of_new_objects_reads_no_metadata():
    received = Received(40)
    received.pull(pulling.FIRST, "a", "b")
    received.pull(pulling.SECOND, "c")
    manifest = received.freeze()
    assert (received.asked, manifest.rows, len(manifest.objects)) == ([], received.rows, 82)
    files = {item.file: item.rows for item in manifest.objects if item.file}
    assert files == {pulling.FIRST: 2, pulling.SECOND: 1}


def test_a_freeze_of_old_and_new_names_reads_the_metadata_of_the_old_ones_only():
    received = Received(3)
    received.pull(pulling.FIRST, "a", "b")
    as_before(received.store, received.pulled.cache, file=pulling.FIRST)
    former = received.store.uris("/raw/source=")
    received.push(4)
    received.pull(pulling.SECOND, "c")
    manifest = received.freeze()
    assert (sorted(received.asked), manifest.rows) == (sorted(former), received.rows)
    assert {item.file for item in manifest.objects} == {None, pulling.FIRST, pulling.SECOND}
    received.push(5)
    assert received.freeze(manifest).rows == received.rows
    assert received.asked == []


def test_duplicates_are_counted_by_their_ids_whatever_the_names():
    received = Received(0, source=a_source(event_id="id"))
    received.push(1)
    as_before(received.store)
    received.pushed.push([pushing.event("2013-03-11T12:01:00Z", id=name) for name in ("1-0", "new", "new")])
    rows = {
        item.uri.rpartition("/")[2].count("-"): item.rows for item in received.freeze().objects if item.hour == "12"
    }
    assert sum(rows.values()) == len({"1-0", "1-2", "new"})
