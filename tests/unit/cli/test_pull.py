"""`slackwater pull`: the totals that it prints."""

from __future__ import annotations

import pytest

from slackwater.cli.commands.pull import print_pull_totals

pytestmark = pytest.mark.unit

TOTALS = {"source": "things", "listed": 1200, "stored": 1000, "rows": 5, "unchanged": 1, "duplicate": 2, "rejected": 0}


def printed(capsys, **changes: int) -> str:
    print_pull_totals({**TOTALS, "vanished": 0, "busy": 0, "waiting": 0, "left": 0, **changes})
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
    ],
)
def test_other_totals_are_printed_unless_they_are_zero(capsys, key, one, many):
    assert printed(capsys, **{key: 1}) == f"{printed(capsys)} {one}"
    assert printed(capsys, **{key: 2000}) == f"{printed(capsys)} {many}"
