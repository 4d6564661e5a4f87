"""`slackwater why` about a day whose run waits for its inputs."""

from __future__ import annotations

import pytest

from slackwater.state.facts import HOUR
from slackwater.state.waits import DayKey, WaitingRun
from tests.example_project import PROJECT
from tests.fakes_check import PIPELINE
from tests.fakes_cli import use_client
from tests.fakes_waits import MemoryWaits
from tests.unit.cli.test_why import connect
from tests.unit.runs.test_source_counts import DATE, counted_world
from tests.unit.runs.test_waits import END, waiting

pytestmark = pytest.mark.unit

KEY = DayKey(PIPELINE, DATE)


@pytest.fixture
def world():
    """Four hours after the end of a day of which 5 of 1,000 events are missing."""
    world = waiting(counted_world(), inputs={"flights": "complete"}, incomplete={"after": "12h", "then": "run"})
    world.time = END + 4 * HOUR
    return world


@pytest.fixture
def why(monkeypatch, world, printed_by):
    """Return what `slackwater why` prints about the day, without the data."""
    waits = MemoryWaits()
    waits.put_wait(WaitingRun(*KEY, execution="run", token="t", since=END + 3 * HOUR))
    waits.put_wait(WaitingRun(*KEY, execution="stopped", token="u", since=END + 2 * HOUR))

    def why(table=waits):
        client = connect(monkeypatch, world)
        vars(client)["wait_table"] = table
        use_client(monkeypatch, client)
        out = printed_by("why", PIPELINE, "--date", DATE, *PROJECT).out
        assert out.startswith(f"{PIPELINE} {DATE}\n")
        return out

    return why


def test_it_says_what_a_run_waits_for_since_when_and_what_happens_then(why, document_of):
    assert why().endswith(
        "  decision      ignore, by the rule never_published: the day has no published run\n"
        "                never run\n"
        "  inputs        a run waits since 2013-03-09 08:00 UTC for:\n"
        "                flights: sent 1,000, stored 990, rejected 5, missing 5\n"
        "  waits for     when its inputs change, and every 15 minutes; at 2013-03-09 17:00 UTC, it runs without "
        "what is missing\n"
        "  to run it     slackwater run daily_delays --date 2013-03-08\n"
    )
    document = document_of("why", PIPELINE, "--date", DATE, *PROJECT)["wait"]
    assert document["runs"] == [{"execution": "run", "since": "2013-03-09T08:00:00Z"}]
    assert (document["until"], document["then"]) == ("2013-03-09T17:00:00Z", "run")
    [unmet] = document["unmet"]
    assert (unmet["input"], unmet["kind"]) == ("flights", "incomplete")


def test_before_a_run_waits_it_says_what_it_would_wait_for(why):
    assert (
        "  inputs        a scheduled run would wait for what follows; at 2013-03-09 17:00 UTC, it runs without what is "
        "missing\n"
        "                flights: sent 1,000, stored 990, rejected 5, missing 5\n"
        "  waits for     its first run"
    ) in why(MemoryWaits())


def test_it_says_that_everything_is_there(why, world):
    world.add("flights", DATE, "06", name="rest", rows=5)
    assert "  inputs        all that `when` of the pipeline names is there\n" in why(MemoryWaits())


def test_a_published_day_says_what_it_ran_without(why, world):
    world.publish(DATE, missing="flights: sent 1,000, stored 990, rejected 5, missing 5")
    text = why()
    assert "\n  ran without   flights: sent 1,000, stored 990, rejected 5, missing 5\n" in text
    assert "\n  inputs " not in text
