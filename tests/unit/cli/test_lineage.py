"""`slackwater lineage`: the trees that people see, and the document of a pipe."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import pytest

from slackwater.state.verdicts import Subject, new_verdict
from tests.example_project import PROJECT
from tests.fakes_check import NOW
from tests.fakes_cli import Terminal, a_client, use_client
from tests.unit.lineage.test_graph import Chain

pytestmark = pytest.mark.unit

AT = "2013-03-13 18:00 UTC"
OF, NEXT = "2013-03-08", "2013-03-09"


@pytest.fixture
def chain():
    chain = Chain()
    for source in ("flights", "weather"):
        for of in (OF, NEXT):
            chain.add(source, of, "12")
    for name in "abc":
        for of in (OF, NEXT):
            chain.publish_day(name, of, "p")
    return chain


@pytest.fixture
def lineage(monkeypatch, chain, printed_by):
    """Run the command on a terminal; return what it prints."""
    client = a_client(
        chain.project,
        deployment=SimpleNamespace(state_table="state"),
        run_table=chain.table,
        store=chain.store,
        verdict_table=chain.verdicts,
    )
    use_client(monkeypatch, client)
    monkeypatch.setattr("slackwater.cli.command.Session.project", chain.project)

    def lineage(*arguments, code=0):
        monkeypatch.setattr(sys, "stdout", Terminal())
        printed = printed_by("lineage", *arguments, *PROJECT, code=code)
        # Without colours.
        lineage.err = printed.err
        return printed.err if code else re.sub(r"\x1b\[[0-9;]*m", "", sys.stdout.getvalue())

    return lineage


def test_a_tree_shows_what_a_version_was_made_from_and_who_has_read_it(lineage):
    assert lineage("b", "--date", NEXT) == (
        f"""\
b 2013-03-09, version 1: 3 rows, published {AT}
├─ weather: 10 events in 1 object
│  └─ 2013-03-09 12:00 UTC: 10 events in 1 object
├─ a 2013-03-08, version 1: 3 rows, published {AT}
│  ├─ flights: 10 events in 1 object
│  └─ weather: 10 events in 1 object
└─ a 2013-03-09, version 1: 3 rows, published {AT}
   ├─ flights: 10 events in 1 object
   └─ weather: 10 events in 1 object

read by: b 2013-03-09, version 1
└─ c 2013-03-09, version 1: has read version 1, the newest
"""
    )


@pytest.fixture
def changed(chain):
    """A day with a second version that nobody has read, and an hour that has failed."""
    chain.add("weather", OF, "13")
    chain.publish_day("a", OF, "q")
    verdict = new_verdict(
        Subject("source", "weather"), f"{NEXT}T12", "fail", version=None, reason="Kelvin", principal="ana", at=NOW
    )
    chain.verdicts.put_verdicts([verdict])


@pytest.mark.usefixtures("changed")
def test_files_are_every_object_and_what_has_failed_is_marked(lineage):
    assert lineage("c", "--date", NEXT, "--up", "--files") == (
        f"""\
c 2013-03-09, version 1: 3 rows, published {AT}
├─ weather 2013-03-09 12:00 UTC: fail, by ana since {AT}: Kelvin
├─ a 2013-03-08, version 1, version 2 is newest: 3 rows, published {AT}
│  ├─ flights: 10 events in 1 object
│  │  └─ 2013-03-08 12:00 UTC: 10 events in 1 object
│  │     └─ s3://raw/raw/source=flights/date=2013-03-08/hour=12/a.parquet: 10 events
│  └─ weather: 10 events in 1 object
│     └─ 2013-03-08 12:00 UTC: 10 events in 1 object
│        └─ s3://raw/raw/source=weather/date=2013-03-08/hour=12/a.parquet: 10 events
└─ b 2013-03-09, version 1: 3 rows, published {AT}
   ├─ weather: 10 events in 1 object
   │  └─ 2013-03-09 12:00 UTC: 10 events in 1 object, failed
   │     └─ s3://raw/raw/source=weather/date=2013-03-09/hour=12/a.parquet: 10 events
   ├─ a 2013-03-08, version 1, version 2 is newest (see above)
   └─ a 2013-03-09, version 1: 3 rows, published {AT}
      ├─ flights: 10 events in 1 object
      │  └─ 2013-03-09 12:00 UTC: 10 events in 1 object
      │     └─ s3://raw/raw/source=flights/date=2013-03-09/hour=12/a.parquet: 10 events
      └─ weather: 10 events in 1 object
         └─ 2013-03-09 12:00 UTC: 10 events in 1 object, failed
            └─ s3://raw/raw/source=weather/date=2013-03-09/hour=12/a.parquet: 10 events
"""
    )


@pytest.mark.usefixtures("changed")
def test_readers_say_which_version_they_have_read(lineage):
    assert lineage("a", "--date", OF, "--down") == (
        f"""\
read by: a 2013-03-08, version 2
├─ b 2013-03-08, version 1: has read version 1, version 2 is newest
│  └─ c 2013-03-08, version 1: has read version 1, the newest
├─ b 2013-03-09, version 1: has read version 1, version 2 is newest
│  ├─ weather 2013-03-09 12:00 UTC: fail, by ana since {AT}: Kelvin
│  └─ c 2013-03-09, version 1: has read version 1, the newest
│     └─ weather 2013-03-09 12:00 UTC: fail, by ana since {AT}: Kelvin
└─ c 2013-03-09, version 1: has read version 1, version 2 is newest
   └─ weather 2013-03-09 12:00 UTC: fail, by ana since {AT}: Kelvin
"""
    )
    assert lineage("a", "--date", OF, "--down", "--version", "2") == (
        "read by: a 2013-03-08, version 2\n└─ no published version\n"
    )
    assert lineage("a", "--date", OF, "--up", "--version", "1").startswith(
        "a 2013-03-08, version 1, replaced since: 3 rows"
    )


def test_the_same_rows_in_a_newer_version_are_the_newest(lineage, chain):
    chain.publish_day("a", NEXT, "p")
    assert "b 2013-03-09, version 1: has read version 1, with the rows of the newest\n" in lineage(
        "a", "--date", NEXT, "--down"
    )


def test_a_limit_is_said(lineage, monkeypatch):
    monkeypatch.setattr("slackwater.lineage.upstream.MOST_VERSIONS", 2)
    lineage("c", "--date", NEXT, "--up")
    assert "more than 2 versions" in lineage.err


@pytest.mark.usefixtures("lineage")
def test_a_pipe_gets_every_object(document_of):
    document = document_of("lineage", "a", "--date", OF, *PROJECT)
    [version] = document["up"]
    [item] = [item for source in version["sources"] if source["name"] == "weather" for item in source["inputs"]]
    assert item["uri"] == f"s3://raw/raw/source=weather/date={OF}/hour=12/a.parquet"
    assert [(each["pipeline"], each["date"], each["read"]["is_newest"]) for each in document["down"]] == [
        ("b", OF, True), ("b", NEXT, True), ("c", NEXT, True), ("c", OF, True), ("c", NEXT, True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--date", OF, "--version", "3"], "version: a has no published version 3 of 2013-03-08 (published: 1)"),
        (["a", "--date", "2013-03-01"], "a has published nothing for 2013-03-01 (slackwater run a --date 2013-03-01)"),
        (["a", "--date", OF, "--up", "--down"], "--up, --down: give one of them"),
        (["a", "--date", f"{OF}T05"], "date: 2013-03-08T05 is not a date such as 2013-03-10: a has `period: day`"),
        (["x", "--date", OF], "no pipeline 'x'"),
    ],
)
def test_what_cannot_be_right_is_refused(lineage, arguments, message):
    assert message in lineage(*arguments, code=2)
