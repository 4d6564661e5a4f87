"""`Client.history`, `rollback` and `query` with a version, and their commands, over records in memory."""

from __future__ import annotations

from types import SimpleNamespace

import pyarrow as pa
import pytest

from slackwater.client.days.history import VersionStatus
from slackwater.errors import InputError, UnknownName
from slackwater.runs.holds import MAX_EARLIER, held, hold_ended, released_day
from slackwater.runs.record import Hold, RunReason
from tests.fakes_check import PIPELINE, World
from tests.fakes_cli import a_client, use_client

pytestmark = pytest.mark.unit

DATE = "2013-03-10"


class FakeWarehouse:
    """The tags of a table, and rows that name the tag as of which they are read."""

    def __init__(self):
        self.names = set()

    def tags(self, pipeline):
        assert pipeline == PIPELINE
        return frozenset(self.names)

    def published(self, pipeline, *, tag=None):
        return pa.table({"pipeline": [pipeline], "tag": [tag]})


@pytest.fixture
def world():
    """A day with three versions, and a failed attempt before the third, which repeats the first one."""
    world = World()
    world.add("flights", DATE, "12")
    runs = [world.publish(DATE)]
    world.add("flights", DATE, "13", rows=20)
    runs.append(world.publish(DATE))
    failed = world.freeze(DATE, force=True)
    world.recorder.record_failure(failed, error="E", cause="c")
    runs.append(world.publish(DATE, rollback=1, reason="wrong file"))
    world.runs = runs
    world.warehouse = FakeWarehouse()
    world.warehouse.names = {run.tag for run in runs}
    world.started = []
    return world


@pytest.fixture
def client(world, monkeypatch):
    def start(machine, *, name, payload):
        world.started.append((machine, name, payload))
        return "arn:execution"

    client = a_client(
        world.project,
        deployment=SimpleNamespace(pipeline_machine_prefix="machines:"),
        run_table=world.table,
        store=world.store,
        warehouse=world.warehouse,
        file_cache=None,
        executions=SimpleNamespace(start=start),
    )
    use_client(monkeypatch, client)
    return client


def test_every_published_version_is_listed_with_what_it_comes_from(client, world):
    first, second, third = client.history(PIPELINE, DATE)
    assert [version.version for version in (first, second, third)] == [1, 2, 4]
    assert [version.tag for version in (first, second, third)] == [run.tag for run in world.runs]
    assert [version.status.value for version in (first, second, third)] == ["readable", "readable", "published"]
    assert [version.reasons for version in (first, second, third)] == [
        (RunReason.FIRST,), (RunReason.LATE_DATA,), (RunReason.ROLLBACK,)
    ]  # fmt: skip
    assert [(version.input_files, version.input_rows) for version in (first, second, third)] == [
        (1, 10), (2, 30), (1, 10)
    ]  # fmt: skip
    assert first.run_id == third.run_id != second.run_id
    assert (first.rollback, third.rollback.to, third.rollback.reason) == (None, 1, "wrong file")
    assert first.definition == second.definition == third.definition != ""


def test_a_version_without_its_tag_is_removed(client, world):
    world.warehouse.names.remove(world.runs[0].tag)
    assert client.history(PIPELINE, DATE)[0].status is VersionStatus.REMOVED


def test_a_day_that_was_never_published_has_no_version(client):
    assert client.history(PIPELINE, "2013-03-09") == []
    with pytest.raises(UnknownName, match="no pipeline 'unknown'"):
        client.history("unknown", DATE)


def test_a_rollback_starts_the_machine_of_the_pipeline(client, world):
    client.rollback(PIPELINE, DATE, to=2, reason="right after all")
    payload = {"date": DATE, "rollback": 2, "reason": "right after all"}
    assert world.started == [(f"machines:{PIPELINE}", DATE, payload)]


@pytest.mark.parametrize(
    ("to", "reason", "message"),
    [
        (4, "x", "version 4 of 2013-03-10 is the published one"),
        (3, "x", r"no published version 3 .*\(readable: 2, 4\)"),
        (2, " ", "reason: missing"),
        (1, "x", r"version 1 .* was removed from the table, with its tag .* \(readable: 2, 4\)"),
    ],
)
def test_a_rollback_that_cannot_be_published_starts_nothing(client, world, to, reason, message):
    world.warehouse.names.remove(world.runs[0].tag)
    with pytest.raises(InputError, match=message):
        client.rollback(PIPELINE, DATE, to=to, reason=reason)
    assert world.started == []


class TestAQueryOfAVersion:
    def test_reads_the_table_under_its_tag(self, client, world):
        [(_, tag)] = client.query(f"FROM {PIPELINE}", date=DATE, version=1).rows
        assert tag == world.runs[0].tag
        assert client.query(f"FROM {PIPELINE}").rows == [(PIPELINE, None)]

    @pytest.mark.parametrize(
        ("sql", "options", "message"),
        [
            (f"FROM {PIPELINE}", {"version": 1}, "--date is missing"),
            (f"FROM {PIPELINE}", {"date": DATE}, "--version is missing"),
            ("SELECT 1", {"date": DATE, "version": 1}, "names no published table"),
            (f"FROM {PIPELINE}", {"date": DATE, "version": 3}, r"no published version 3 .*\(readable: 2, 4\)"),
            (f"FROM {PIPELINE}", {"date": DATE, "version": 1}, "version 1 .* was removed"),
        ],
    )
    def test_that_cannot_be_read_is_refused(self, client, world, sql, options, message):
        world.warehouse.names.remove(world.runs[0].tag)
        with pytest.raises(InputError, match=message):
            client.query(sql, **options)


class TestCommands:
    def test_history_prints_the_versions_and_the_reason_of_a_rollback(self, client, world, printed_by, document_of):
        shown = " ".join(printed_by("history", PIPELINE, "--date", DATE).out.split())
        assert "late data" in shown
        assert f"tag {world.runs[2].tag}" in shown
        assert "version 1 published again: wrong file" in shown
        document = document_of("history", PIPELINE, "--date", DATE)
        assert (document["pipeline"], document["date"]) == (PIPELINE, DATE)
        assert [version["reasons"] for version in document["versions"]] == [["first"], ["late_data"], ["rollback"]]

    def test_history_prints_each_decision_about_a_hold_and_how_holds_ended(
        self, client, world, printed_by, document_of
    ):
        def change(change, **more):
            day = world.table.day(PIPELINE, DATE)
            world.table.save(change(day, now=world.time, **more))

        def hold(rule):
            day = world.table.day(PIPELINE, DATE)
            world.table.save(held(day, Hold(rule=rule, reason="why", since=world.time)))

        change(released_day, reason="the partner withdrew the file", principal="arn:me", inputs="without the file")
        hold("vanished")
        change(hold_ended, reason="the file is back", inputs="with the file")
        printed = printed_by("history", PIPELINE, "--date", DATE).out.replace("\n", " ")
        first = printed.index("released by arn:me on")
        assert first < printed.index("the partner withdrew the file") < printed.index("ended on")
        document = document_of("history", PIPELINE, "--date", DATE)
        # The rollback's hold ended with the release.
        assert [item["reason"] for item in document["earlier_resolutions"]] == ["the partner withdrew the file"]
        assert (document["resolution"]["reason"], document["resolution"]["hold"]["rule"]) == (
            "the file is back", "vanished",
        )  # fmt: skip

    def test_history_of_a_day_without_a_version_names_the_command_that_makes_one(self, client, printed_by):
        shown = printed_by("history", PIPELINE, "--date", "2013-03-09").out
        assert "slackwater run daily_delays --date 2013-03-09" in shown

    def test_a_rollback_to_the_published_version_is_an_input_error(self, client, printed_by):
        error = printed_by("rollback", PIPELINE, "--to", "4", "--reason", "x", "--date", DATE, code=2).err
        assert "version 4 of 2013-03-10 is the published one" in error

    def test_a_query_reads_a_version(self, client, world, document_of):
        document = document_of("query", f"FROM {PIPELINE}", "--version", "1", "--date", DATE)
        assert document["rows"] == [[PIPELINE, world.runs[0].tag]]


def test_the_latest_decisions_about_a_day_are_kept(world):
    day = world.table.day(PIPELINE, DATE)
    for number in range(MAX_EARLIER + 2):
        day = released_day(day, reason=str(number), principal="arn:me", inputs="digest", now=world.time)
    assert day.resolution.reason == str(MAX_EARLIER + 1)
    assert [item.reason for item in day.earlier_resolutions] == [str(number) for number in range(1, MAX_EARLIER + 1)]
