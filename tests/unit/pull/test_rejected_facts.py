"""The rejected rows of files, by hour: each content of a file counts once, as long as readers see it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from slackwater.project.project import Project
from slackwater.receiver.pull import rejected_rows
from slackwater.runs.inputs.source_counts import CountsReader
from slackwater.state.completeness import PeriodCounts
from slackwater.state.facts import content_of, file_origin
from tests.fakes_receiver import a_source
from tests.pulling import FIRST, SECOND, Setup, csv_of, row

pytestmark = pytest.mark.unit

AT = "2013-03-11T12:34:00Z"
HOUR = datetime(2013, 3, 11, 12, tzinfo=UTC)
COUNTED = a_source(counts={"window": "1h"})


def bad(name: str, at: str = AT) -> str:
    return row(name, at).replace(",1,", ",many,", 1)


def period(setup: Setup) -> PeriodCounts:
    project = Project(sources={"things": setup.source}, pipelines={})
    reader = CountsReader(project=project, state=setup.state, files=setup.cache)
    [only] = reader.periods(setup.source, [HOUR], {}, reads_unknown=True)
    return only


def test_rejected_rows_are_counted_in_the_hours_of_their_timestamps():
    content = csv_of(row("a", AT), bad("b"), bad("c", "2013-03-11T13:00:00Z"), bad("d", "never"))
    setup = Setup({FIRST: content}, COUNTED)
    setup.pull()
    assert period(setup).rejected == 1
    assert sum(item.unplaced for item in setup.state.rejected.values()) == 1


def test_a_replaced_file_counts_what_it_has_now():
    setup = Setup({FIRST: csv_of(row("a", AT), bad("b"), bad("c"))}, COUNTED)
    setup.pull()
    assert period(setup).rejected == 2
    setup.partner.files[FIRST] = csv_of(row("a", AT), bad("b"), row("c", AT))
    setup.pull()
    assert period(setup).rejected == 1
    # A second file with the same content has no rows of its own.
    setup.partner.files[SECOND] = setup.partner.files[FIRST]
    setup.pull()
    assert period(setup).rejected == 1


def test_rows_that_are_not_read_have_no_hour(monkeypatch):
    monkeypatch.setattr(rejected_rows, "WHOLE_FILE_ROWS", 10)
    setup = Setup({FIRST: csv_of(*(bad(str(number)) for number in range(25)))}, COUNTED)
    setup.pull()
    assert period(setup).rejected + sum(item.unplaced for item in setup.state.rejected.values()) == 25


def test_origins_of_files_and_batches_are_told_apart():
    assert content_of(file_origin("a" * 32, "b" * 12)) == ("a" * 32, "b" * 12)
    assert content_of("a" * 32) is None
