"""`slackwater pull`: the totals that it prints."""

from __future__ import annotations

import pytest

from slackwater.cli.commands.pull import print_pull_totals
from slackwater.project.project import Project
from tests.fakes_receiver import a_source

pytestmark = pytest.mark.unit

COUNTS = ("rejected", "vanished", "busy", "waiting", "removed", "doubtful", "left", "empty")
TOTALS = {"source": "things", "listed": 1200, "stored": 1000, "rows": 5, "unchanged": 1, "duplicate": 2}
PULL = a_source().pull.model_dump()


def printed(capsys, *, on_removed="keep", **changes) -> str:
    project = Project(sources={"things": a_source(pull={**PULL, "on_removed": on_removed})}, pipelines={})
    print_pull_totals({**dict.fromkeys(COUNTS, 0), "new_columns": [], **TOTALS, **changes}, project)
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


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
            "1 file could not be fetched before and waits for its next attempt "
            "(slackwater files things --state failed)",
            "2,000 files could not be fetched before and wait for their next attempts "
            "(slackwater files things --state failed)",
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
