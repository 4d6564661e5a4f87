"""`slackwater pull`: the totals that it prints."""

from __future__ import annotations

import pytest

from slackwater.cli.commands.pull import print_pull_totals

pytestmark = pytest.mark.unit

TOTALS = {"source": "things", "listed": 1200, "stored": 1000, "rows": 5, "unchanged": 1, "duplicate": 2, "rejected": 0}


def printed(capsys, **changes: int) -> str:
    print_pull_totals({**TOTALS, "vanished": 0, "busy": 0, "left": 0, **changes})
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_totals_are_printed(capsys):
    assert printed(capsys) == "things: 1,200 files listed, 1000 stored (5 events), 1 unchanged, 2 duplicate"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("rejected", "200 events were rejected (the reasons: slackwater sideline show things)"),
        ("vanished", "200 files disappeared before they were fetched; the next pull checks again"),
        ("busy", "200 files are being fetched by another pull"),
        ("left", "200 more files are left for the next pull"),
    ],
)
def test_other_totals_are_printed_unless_they_are_zero(capsys, key, message):
    assert printed(capsys, **{key: 200}) == f"{printed(capsys)} {message}"
