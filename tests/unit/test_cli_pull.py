"""What `slackwater pull` says of a pull."""

from __future__ import annotations

import pytest

from slackwater.cli.commands.pull import show

pytestmark = pytest.mark.unit

TOTALS = {"source": "things", "listed": 1200, "taken": 1000, "rows": 5, "unchanged": 1, "duplicate": 2, "rejected": 0}


def said(capsys, **changes: int) -> str:
    show({**TOTALS, "vanished": 0, "busy": 0, "left": 0, **changes})
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_what_is_counted(capsys):
    assert said(capsys) == "things: 1,200 files listed, 1000 taken (5 events), 1 unchanged, 2 duplicate"


@pytest.mark.parametrize(
    ("count", "words"),
    [
        ("rejected", "200 events were side-lined with their reasons"),
        ("vanished", "200 files were gone when they were fetched; the next pull looks again"),
        ("busy", "200 files are being taken by another pull"),
        ("left", "200 more files wait for the next pull"),
    ],
)
def test_what_is_told_only_if_there_is_some(capsys, count, words):
    assert said(capsys, **{count: 200}) == f"{said(capsys)} {words}"
