"""Files with counts: read by a pull when they are new or changed, whatever is wrong with others."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from slackwater.errors import PartnerError
from slackwater.receiver.pull.count_files import read_count_files
from slackwater.receiver.pull.plan import lookback_dates, plan_pull
from slackwater.sources.counts import ALL
from slackwater.sources.definition import Source
from tests.fakes_receiver import Crash, Fuse, MemoryConnector, MemoryFileCache, a_source
from tests.fakes_state import MemoryState

pytestmark = pytest.mark.unit

NOW = datetime(2013, 3, 12, 9, 30, tzinfo=UTC)
HOUR = datetime(2013, 3, 11, 12, tzinfo=UTC)
NAME = "2013-03-11/counts.json"


def counted(**counts: object) -> Source:
    return a_source(counts={"window": "1h", "files": "{date}/counts*.json", **counts})


def a_report(sent: int, as_of: str = "2013-03-12T01:00Z", **more: object) -> bytes:
    document = {"as_of": as_of, "through": "2013-03-12T00:00Z", "counts": {"2013-03-11T12:00Z": sent}}
    return json.dumps({**document, **more}).encode()


class World:
    def __init__(self, files: dict[str, bytes], source: Source | None = None) -> None:
        self.source, self.partner, self.state = source or counted(), MemoryConnector(files), MemoryState()

    def read(self):
        dates = list(lookback_dates(self.source, None, NOW))
        return read_count_files(
            self.source, dates, partner=self.partner, state=self.state, put_report=self.state.put_report, now=NOW
        )

    def sent(self) -> list[tuple[str, int]]:
        reports = self.state.facts("things", [HOUR])[HOUR].reports
        return [(report.principal, report.counts[0][ALL]) for report in sorted(reports, key=lambda item: item.as_of)]


def test_new_and_changed_files_are_read_once():
    world = World({NAME: a_report(5), "things-2013-03-11.csv": b"x"})
    assert world.read() == (1, ())
    assert world.read() == (0, ())
    world.partner.files[NAME] = a_report(7, as_of="2013-03-12T02:00Z")
    assert world.read() == (1, ())
    assert world.sent() == [(f"file:{NAME}", 5), (f"file:{NAME}", 7)]
    assert world.partner.fetched == [NAME, NAME]


def test_files_of_other_dates_are_not_read():
    world = World({"2013-03-01/counts.json": a_report(5), "2013-03-11/other.json": b""})
    assert world.read() == (0, ())


def test_a_file_that_is_refused_is_named_and_stops_no_other():
    world = World({"2013-03-10/counts.json": b"{", NAME: a_report(5), "2013-03-11/counts-b.json": a_report(-1)})
    world.partner.broken.add("2013-03-12/counts.json")
    world.partner.files["2013-03-12/counts.json"] = b""
    result = world.read()
    assert result.read == 1
    assert [reason.partition(": ")[0] for reason in result.refused] == [
        "2013-03-10/counts.json",
        "2013-03-11/counts-b.json",
        "2013-03-12/counts.json",
    ]
    assert "is not a number of events" in result.refused[1]
    assert world.read().refused == result.refused, "they are tried again"


def test_a_listing_that_fails_stops_no_pull(monkeypatch):
    world = World({NAME: a_report(5)})

    def fail(*_):
        raise PartnerError("answered 500")

    monkeypatch.setattr(world.partner, "list", fail)
    assert world.read() == (0, ("the files with counts could not be listed: answered 500",))


@pytest.mark.parametrize("writes", range(3))
def test_a_pull_that_ends_half_way_is_made_up_for_by_the_next_one(writes):
    world = World({NAME: a_report(5)})
    world.state.fuse = Fuse(writes)
    if writes < 2:
        with pytest.raises(Crash):
            world.read()
    world.state.fuse = Fuse()
    world.read()
    assert world.sent() == [(f"file:{NAME}", 5)]
    assert world.state.coverage("things")


def test_files_that_vanish_are_left_out():
    world = World({})
    world.partner.list = MemoryConnector({NAME: a_report(5)}).list
    assert world.read() == (0, ())


def test_sources_without_such_files_list_nothing():
    world = World({}, a_source(counts={"window": "1h"}))
    world.partner.list = None
    assert world.read() == (0, ())


def test_files_with_counts_are_no_events():
    source = counted(files="things-{date}-counts.csv")
    source = source.model_copy(update={"pull": source.pull.model_copy(update={"files": "things-{date}*.csv"})})
    partner = MemoryConnector({"things-2013-03-11-counts.csv": b"", "things-2013-03-11.csv": b""})
    plan = plan_pull(source, as_of=None, partner=partner, cache=MemoryFileCache(), now=NOW)
    assert [item.path for item in plan.items] == ["things-2013-03-11.csv"]
