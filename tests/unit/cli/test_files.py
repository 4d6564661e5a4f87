"""`slackwater files`: the files of a source, and giving up some of them."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

import pytest

from slackwater.cli.commands.files import State
from slackwater.receiver.pull.file_cache import FileEntry, FileState
from tests.example_project import PROJECT, example_project
from tests.fakes_cli import a_client, use_client
from tests.fakes_receiver import RECEIVED, MemoryFileCache

pytestmark = pytest.mark.unit

BROKEN, STORED = "flights-2013-03-11-08.csv", "flights-2013-03-12-08.csv"


@pytest.fixture(autouse=True)
def cache(monkeypatch):
    cache = MemoryFileCache()
    broken = FileEntry(
        source="flights",
        path=BROKEN,
        dated_pattern="flights-2013-03-11*.csv",
        state=FileState.FAILED,
        attempts=4,
        reason="its header lacks 'time_hour'",
        due=RECEIVED + timedelta(hours=1),
        not_taken_since=RECEIVED - timedelta(days=1),
    )
    stored = FileEntry(
        source="flights",
        path=STORED,
        dated_pattern="flights-2013-03-12*.csv",
        state=FileState.STORED,
        rows=12,
        content="0",
    )
    cache.save(broken, stored)
    use_client(monkeypatch, a_client(example_project(), file_cache=cache))
    monkeypatch.setattr("slackwater.client.client.utc_now", lambda: RECEIVED)
    return cache


def test_every_state_of_a_file_can_be_selected():
    assert get_args(State) == tuple(state.value for state in FileState)


def test_files_are_listed_with_what_a_person_needs_to_decide(document_of):
    assert document_of("files", "flights", *PROJECT) == {
        "source": "flights",
        "files": [
            {
                "path": BROKEN,
                "state": "failed",
                "rows": 0,
                "rejected": 0,
                "attempts": 4,
                "next_attempt": "2013-03-12T10:30:00+00:00",
                "since": "2013-03-11T09:30:00+00:00",
                "reason": "its header lacks 'time_hour'",
            },
            {
                "path": STORED,
                "state": "stored",
                "rows": 12,
                "rejected": 0,
                "attempts": 0,
                "next_attempt": None,
                "since": None,
                "reason": None,
            },
        ],
        "more": False,
    }


def test_the_table_shows_times_in_minutes(printed_by):
    header, broken, stored = printed_by("files", "flights", *PROJECT).out.splitlines()
    assert header.split("  ")[0] == "path"
    assert "2013-03-12 10:30" in broken
    assert "2013-03-11 09:30" in broken
    assert stored.split() == [STORED, "stored", "12", "0", "0"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("files", "flights", "--state", "failed"),
        ("files", "--state", "failed", "flights"),
        ("files", "list", "flights", "--state", "failed", "--as-of", "2013-01-01"),
    ],
)
def test_failed_files_are_listed_with_options_in_any_place(document_of, arguments):
    assert [file["path"] for file in document_of(*arguments, *PROJECT)["files"]] == [BROKEN]


def test_a_cut_list_and_an_empty_one_say_so(printed_by, document_of):
    assert (
        "these are the first 1 file (to see more: --limit N)"
        in printed_by("files", "flights", "--limit", "1", *PROJECT).err
    )
    assert document_of("files", "flights", "--limit", "1", *PROJECT)["more"]
    assert (
        printed_by("files", "flights", "--state", "vanished", *PROJECT).out
        == "no files of flights with state vanished\n"
    )


def test_files_are_given_up_with_a_reason(printed_by, document_of, cache):
    assert (
        printed_by("files", "give-up", "flights", BROKEN, "--reason", "lost", *PROJECT).out
        == "flights: 1 file given up\n"
    )
    entry = cache.get("flights", BROKEN)
    assert (entry.state, entry.reason) == (FileState.GIVEN_UP, "lost")
    assert document_of("files", "flights", "--state", "given-up", *PROJECT)["files"][0]["path"] == BROKEN


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("give-up", "flights", STORED), "there is nothing to give up: its rows are stored"),
        (("weather",), "source 'weather' is not pulled"),
        (("give-up", "weather", "x"), "source 'weather' is not pulled"),
        (("nothing",), "no source 'nothing'"),
        (("flights", "--state", "broken"), "'broken' is not one of"),
        (("give-up", "flights"), "Missing argument 'PATH...'"),
    ],
)
def test_wrong_input_is_refused_with_its_reason(printed_by, arguments, message):
    assert message in printed_by("files", *arguments, *PROJECT, code=2).err
