"""`slackwater pull`: the totals that it prints."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from slackwater.cli.commands.pull import print_pull_totals, pull
from slackwater.client.sender import PushTotals
from slackwater.errors import PullFailed
from slackwater.project.project import Project
from tests.example_project import PROJECT
from tests.fakes_cli import a_client, use_client
from tests.fakes_receiver import a_source
from tests.fakes_runs import DictRunTable
from tests.unit.cli.test_changes import DEPLOYED, FILES

pytestmark = pytest.mark.unit

COUNTS = ("rejected", "vanished", "busy", "waiting", "removed", "doubtful", "left", "empty", "failed", "noted")
TOTALS = {"source": "things", "listed": 1200, "stored": 1000, "rows": 5, "unchanged": 1, "duplicate": 2}
PULL = a_source().pull.model_dump()


def printed(capsys, *, on_removed="keep", **changes) -> str:
    project = Project(sources={"things": a_source(pull={**PULL, "on_removed": on_removed})}, pipelines={})
    print_pull_totals({**dict.fromkeys(COUNTS, 0), "new_columns": [], "notes": [], **TOTALS, **changes}, project)
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_a_pull_and_a_push_say_that_the_files_differ_from_what_is_deployed(monkeypatch, printed_by, tmp_path):
    files = tmp_path / "events.ndjson"
    files.write_text("{}\n")
    flights = {**dict.fromkeys(COUNTS, 0), "new_columns": [], **TOTALS, "source": "flights"}
    pushed = PushTotals(source="weather", events=1, accepted=1, duplicates=1, batches=1)
    client = a_client(FILES, run_table=DictRunTable(), deployed=DEPLOYED)
    monkeypatch.setattr(client, "pull", lambda *_, **__: flights)
    monkeypatch.setattr(client, "push", lambda *_, **__: pushed)
    use_client(monkeypatch, client)
    line = "the files differ from what is deployed: pipelines/daily_delays.yaml changed. To apply: slackwater deploy"
    assert line in printed_by("pull", "flights", *PROJECT).err
    shown = printed_by("push", "weather", str(files), *PROJECT)
    assert line in shown.err
    assert shown.out == "weather: 1 accepted, 1 duplicate, 0 rejected, in 1 batch\n"


def test_totals_are_printed(capsys):
    assert printed(capsys) == "things: 1,200 files listed, 1000 stored (5 events), 1 unchanged, 2 duplicate"


@pytest.mark.parametrize(
    ("key", "one", "many"),
    [
        (
            "rejected",
            "1 event was rejected (the reason: slackwater sideline show things)",
            "2,000 events were rejected (the reasons: slackwater sideline show things)",
        ),
        (
            "vanished",
            "1 file disappeared before it was fetched; the next pull checks again",
            "2,000 files disappeared before they were fetched; the next pull checks again",
        ),
        ("busy", "1 file is being fetched by another pull", "2,000 files are being fetched by another pull"),
        (
            "waiting",
            "1 file could not be fetched before and waits for its next attempt: slackwater files things --state failed "
            "shows when and why. After another definition is deployed, a pull tries it at once",
            "2,000 files could not be fetched before and wait for their next attempts: slackwater files things --state "
            "failed shows when and why. After another definition is deployed, a pull tries them at once",
        ),
        (
            "doubtful",
            "1 stored file is not listed, and still counts: the listing lacks more files than it has. Is the partner's "
            "folder complete? If it was removed on purpose: slackwater pull things --accept-removed 1",
            "2,000 stored files are not listed, and still count: the listing lacks more files than it has. Is the "
            "partner's folder complete? If they were removed on purpose: slackwater pull things --accept-removed 2000",
        ),
        ("left", "1 file is left for the next pull", "2,000 files are left for the next pull"),
        ("empty", "1 stored file has no event", "2,000 stored files have no event"),
        (
            "removed",
            "1 stored file is not listed any more: its events stay (on_removed: keep)",
            "2,000 stored files are not listed any more: their events stay (on_removed: keep)",
        ),
    ],
)
def test_other_totals_are_printed_unless_they_are_zero(capsys, key, one, many):
    for count, text in ((1, one), (2000, many)):
        changes = {"removed": count} if key == "doubtful" else {}
        assert printed(capsys, **changes, **{key: count}) == f"{printed(capsys)} {text}"


@pytest.mark.parametrize(
    ("on_removed", "text"),
    [
        ("hold", "published days with their events are on hold from the next check on"),
        ("drop", "published days with their events run again without them after the next check"),
    ],
)
def test_what_becomes_of_removed_files_is_printed(capsys, on_removed, text):
    shown = printed(capsys, on_removed=on_removed, removed=5, doubtful=2)
    assert f"3 stored files are not listed any more: {text} (on_removed: {on_removed}) 2 stored files are" in shown


def test_new_columns_are_printed(capsys):
    assert printed(capsys, new_columns=["gate", "tail color"]).endswith(
        "columns that sources/things.yaml does not list: gate, tail color (their values are in the column _extra: "
        "to use one, add it to `fields`)"
    )


def test_notes_about_files_are_printed(capsys):
    notes = ["a.csv lacks the column 'x' of sources/things.yaml: its 2 rows have no value there", "b.csv begins with"]
    assert printed(capsys, notes=notes, noted=2).endswith(" ".join(notes))
    assert printed(capsys, notes=notes, noted=12).endswith(f"{' '.join(notes)} and 10 other files with such a note")


def test_a_pull_that_fails_prints_its_totals_and_notes_before_the_error(capsys, monkeypatch):
    monkeypatch.setattr("slackwater.cli.changes.note_changes", lambda *_: None)
    project = Project(sources={"things": a_source()}, pipelines={})
    totals = {**dict.fromkeys(COUNTS, 0), **TOTALS, "failed": 1, "rejected": 3, "new_columns": ["gate"], "noted": 1}
    totals["notes"] = ["n"]

    class Failing:
        def pull(self, *_, **__):
            raise PullFailed("1 of 3 files of things could not be fetched", totals)

    def run(*, as_json: bool) -> str:
        session = SimpleNamespace(project=project, client=Failing(), as_json=as_json)
        with pytest.raises(PullFailed, match="1 of 3 files"):
            pull("things", session=session)
        captured = capsys.readouterr()
        return " ".join((captured.out + captured.err).split())

    shown = run(as_json=False)
    assert "1000 stored (5 events), 1 unchanged, 2 duplicate, 1 failed 3 events were rejected" in shown
    assert "does not list: gate" in shown
    assert shown.endswith(" n")
    assert run(as_json=True) == ""


def test_an_empty_listing_is_printed_with_what_was_looked_for(capsys):
    assert printed(capsys, listed=0).endswith(
        "no file at http://127.0.0.1:1/things matches things-{date}.csv on the 3 days of the look-back window: "
        "check `url`, `files` and `lookback_days` in sources/things.yaml; for an earlier window: "
        "slackwater pull things --as-of DATE"
    )


def test_files_with_counts_are_printed(capsys):
    shown = printed(capsys, reports=2, refused_reports=["2026/counts.json: the report is not JSON"])
    assert "2 reports of how many events were sent" in shown
    assert "a file with counts was not read: 2026/counts.json: the report is not JSON" in shown


def test_files_that_match_no_pattern_are_printed(capsys):
    shown = printed(capsys, unmatched=1, unmatched_files=["fx-2026-11-22-late.csv"])
    assert "1 file matches no pattern of the source: fx-2026-11-22-late.csv" in shown
    shown = printed(capsys, unmatched=4, unmatched_files=["a", "b", "c"])
    assert "4 files match no pattern of the source: a, b, c, ..." in shown


def test_files_that_have_returned_are_printed(capsys):
    assert "1 removed file is listed again" in printed(capsys, returned=1)
