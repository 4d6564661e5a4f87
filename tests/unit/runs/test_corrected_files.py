"""A corrected file keeps its order: of events with the same id, what counts does not depend on earlier runs."""

from __future__ import annotations

from datetime import date

import pytest

from slackwater.runs.inputs.difference import Change, difference
from slackwater.runs.inputs.listing import InputListing
from slackwater.runs.period import day_of
from tests.fakes_check import PIPELINE, World
from tests.fakes_receiver import a_source
from tests.pulling import FIRST, SECOND, Setup, csv_of, row

pytestmark = pytest.mark.unit

DAY = day_of(date(2013, 3, 11), "UTC")


class Pulled:
    """Pulls of a source with ids, and what a run of the day reads."""

    def __init__(self):
        self.setup = Setup({}, a_source(source="flights", event_id="id"))
        world = World()
        sources = {**world.project.sources, "flights": self.setup.source}
        self.inputs = InputListing(
            project=world.project.model_copy(update={"sources": sources}),
            store=self.setup.store,
            files=self.setup.cache,
            table=world.table,
            foreign=world.foreign,
            raw_bucket="raw",
            now=self.setup.clock,
        )

    def pull(self, path, *rows):
        self.setup.partner.files[path] = csv_of(*rows)
        self.setup.clock.pass_by(minutes=1)
        assert self.setup.pull()[path] in {"stored", "duplicate"}

    def counted(self, known=None):
        """Return the rows that count by file, and when the first content of each changed file was received."""
        objects = self.inputs.manifest(PIPELINE, DAY, known=known).objects
        return {item.file: (item.rows, item.first_received_at) for item in objects if item.rows}


@pytest.mark.parametrize("more", [[], [row("b")]], ids=["an equal file", "a file with another row"])
def test_a_correction_counts_after_another_file_has_repeated_the_row(more):
    pulled = Pulled()
    pulled.pull(FIRST, row("a"))
    first_received_at = pulled.setup.clock()
    known = pulled.inputs.manifest(PIPELINE, DAY)
    pulled.pull(SECOND, row("a"), *more)
    pulled.pull(FIRST, row("a"), row("c"))
    expected = {FIRST: (2, first_received_at)} | ({SECOND: (1, None)} if more else {})
    assert pulled.counted() == expected
    assert pulled.counted(known) == expected


def test_a_corrected_file_whose_rows_another_file_repeats_has_not_vanished():
    pulled = Pulled()
    pulled.pull(FIRST, row("a"), row("b"))
    pulled.pull(SECOND, row("a"), row("b"), row("c"))
    before = pulled.inputs.manifest(PIPELINE, DAY)
    pulled.pull(FIRST, row("b"), row("a"))
    now = pulled.inputs.manifest(PIPELINE, DAY, known=before)
    (flights,) = difference(before, now, sources=["flights"])
    assert [(item.file, item.change, item.before.rows, item.now.rows) for item in flights.changes] == [
        (FIRST, Change.CHANGED, 2, 2)
    ]


def test_an_id_counts_in_the_file_that_was_received_first_after_its_correction_has_added_it():
    """The published run has read the id in the later file."""
    pulled = Pulled()
    pulled.pull(FIRST, row("a"))
    first_received_at = pulled.setup.clock()
    pulled.pull(SECOND, row("b"), row("c"))
    known = pulled.inputs.manifest(PIPELINE, DAY)
    pulled.pull(FIRST, row("a"), row("b"))
    expected = {FIRST: (2, first_received_at), SECOND: (1, None)}
    assert pulled.counted() == expected
    assert pulled.counted(known) == expected


def test_a_file_that_was_received_later_does_not_count_after_its_correction():
    pulled = Pulled()
    pulled.pull(FIRST, row("a"))
    pulled.pull(SECOND, row("a"), row("b"))
    known = pulled.inputs.manifest(PIPELINE, DAY)
    pulled.pull(SECOND, row("a"), row("b"), row("c"))
    assert pulled.counted() == pulled.counted(known)
    assert {file: rows for file, (rows, _) in pulled.counted().items()} == {FIRST: 1, SECOND: 2}
