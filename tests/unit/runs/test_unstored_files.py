"""A run of a day says which sources have files of the day that are not stored."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest

from slackwater.cli.commands import run as run_command
from slackwater.cli.main import run
from slackwater.client.days.runs import RunResult, RunSeconds
from slackwater.late.changes.choose_versions import published_version
from slackwater.late.report.message import compose
from slackwater.receiver.pull.file_cache import FileEntry, FileState
from slackwater.runs.inputs.unstored_files import unstored_files
from slackwater.runs.period import day_of
from slackwater.runs.record import RunRecord
from tests.example_project import example_project
from tests.fakes_check import PIPELINE, PUBLICATION, World
from tests.fakes_cli import a_client, use_client
from tests.fakes_comparison import comparison, version
from tests.fakes_receiver import MemoryFileCache

pytestmark = pytest.mark.unit

DATE = "2013-03-10"
PROJECT = ["--project", str(Path(__file__).resolve().parents[3] / "examples" / "nyc_flights")]


@pytest.fixture
def world() -> World:
    return World()


def record_file(files: MemoryFileCache, day: str, state: FileState, *, name: str = "08", **more: object) -> None:
    files.save(
        FileEntry(
            source="flights",
            path=f"flights-{day}-{name}.csv",
            dated_pattern=files_pattern(day),
            state=state,
            **more,
        )
    )


def files_pattern(day: str) -> str:
    pull = example_project().source("flights").require_pull()
    return pull.pattern.dated(date.fromisoformat(day))


def started(world: World, attempt: int = 1) -> RunRecord:
    record = world.table.run(PIPELINE, DATE, attempt)
    assert record
    return record


def test_the_record_of_a_run_has_the_number_of_files_of_its_day_that_are_not_taken(world):
    record_file(world.files, DATE, FileState.FAILED)
    record_file(world.files, DATE, FileState.LEASED, name="09")
    for state in (FileState.STORED, FileState.DUPLICATE, FileState.VANISHED, FileState.GIVEN_UP):
        record_file(world.files, DATE, state, name=state.value)
    record_file(world.files, "2013-03-08", FileState.FAILED)
    world.freeze(DATE)
    assert started(world).files_not_taken == {"flights": 2}


def test_a_changed_file_that_could_not_be_fetched_again_counts_although_its_earlier_rows_are_stored(world):
    record_file(world.files, DATE, FileState.FAILED, content="0" * 32)
    world.freeze(DATE)
    assert started(world).files_not_taken == {"flights": 1}


def test_a_day_whose_files_are_all_taken_says_nothing(world):
    world.freeze(DATE)
    assert started(world).files_not_taken == {}


def test_files_that_are_not_taken_do_not_change_the_identity_of_a_run(world):
    first = world.publish(DATE)
    record_file(world.files, DATE, FileState.FAILED)
    assert world.freeze(DATE, force=True).run_id == first.run_id


@pytest.mark.parametrize(
    ("timezone", "dates"),
    [
        ("America/New_York", ["2013-03-10"]),
        ("UTC", ["2013-03-10", "2013-03-11"]),
        ("Asia/Tokyo", ["2013-03-10", "2013-03-11"]),
    ],
)
def test_only_the_dates_that_the_day_overlaps_in_the_timezone_of_the_pull_are_read(timezone, dates):
    read = []

    class Files(MemoryFileCache):
        def files_of_date(self, source, dated_pattern):
            read.append((source, dated_pattern))
            return super().files_of_date(source, dated_pattern)

    project = example_project()
    flights = project.source("flights")
    moved = flights.model_copy(update={"pull": flights.require_pull().model_copy(update={"timezone": timezone})})
    project = project.model_copy(update={"sources": {**project.sources, "flights": moved}})
    day = day_of(date.fromisoformat(DATE), "America/New_York")
    unstored_files(project, PIPELINE, day, files=Files())
    assert read == [("flights", files_pattern(day)) for day in dates]


def test_a_file_whose_name_has_only_a_month_counts_once(world):
    flights = world.project.source("flights")
    pull = flights.require_pull().model_copy(update={"files": "{date:%Y-%m}.csv", "timezone": "UTC"})
    project = world.project.model_copy(
        update={"sources": {**world.project.sources, "flights": flights.model_copy(update={"pull": pull})}}
    )
    world.files.save(
        FileEntry(source="flights", path="2013-03.csv", dated_pattern="2013-03.csv", state=FileState.FAILED)
    )
    day = day_of(date.fromisoformat(DATE), "America/New_York")
    assert unstored_files(project, PIPELINE, day, files=world.files) == {"flights": 1}


def test_the_notification_names_the_source_the_number_and_the_command(world):
    record_file(world.files, DATE, FileState.FAILED)
    world.publish(DATE)
    assert published_version(started(world)).files_not_taken == {"flights": 1}
    after = version(2).model_copy(update={"files_not_taken": {"flights": 1, "weather": 2}})
    body = compose(comparison(after=after)).body
    assert (
        "Missing in version 2\n"
        "  1 file of flights was not stored (slackwater files flights --state failed)\n"
        "  2 files of weather were not stored (slackwater files weather --state failed)\n"
    ) in body


def test_a_notification_about_a_day_whose_files_are_all_taken_does_not_mention_files():
    assert "not stored" not in compose(comparison()).body


def test_runs_shows_the_files_that_are_not_taken(world, monkeypatch, capsys):
    record_file(world.files, DATE, FileState.FAILED)
    world.freeze(DATE)
    use_client(monkeypatch, a_client(world.project, run_table=world.table))
    assert run(["runs", PIPELINE, *PROJECT]) == 0
    note = f"{DATE}, attempt 1: 1 file of flights was not stored (slackwater files flights --state failed)"
    assert note in capsys.readouterr().out
    assert run(["runs", PIPELINE, "--json", *PROJECT]) == 0
    assert '"files_not_taken": {"flights": 1}' in capsys.readouterr().out


def test_run_prints_the_files_that_are_not_taken_and_other_notes(world, monkeypatch, capsys):
    result = RunResult(
        outcome="published",
        run=world.freeze(DATE),
        publication=PUBLICATION,
        seconds=RunSeconds(total=1.0),
        execution="e",
        files_not_taken={"flights": 1},
        notes=("the day has not ended",),
    )
    started = SimpleNamespace(wait=lambda **_: result)
    use_client(monkeypatch, SimpleNamespace(run=lambda *_, **__: started))
    assert run(["run", PIPELINE, "--date", DATE, *PROJECT]) == 0
    shown = capsys.readouterr().err
    assert "when its inputs were listed, 1 file of flights was not stored" in shown
    assert "the day has not ended" in shown
    document = run_command.run_document(result)
    assert (document["files_not_taken"], document["notes"]) == ({"flights": 1}, ["the day has not ended"])
