"""Documents, tables and lines: on a terminal and in a pipe."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from slackwater.cli import output
from slackwater.cli.progress import PartState, ProgressBoard
from slackwater.formatting import counted
from tests.fakes_cli import Terminal

pytestmark = pytest.mark.unit

COLUMNS = ["name", "count", "mean"]
ROWS = [["JFK", 1, 0.123456], ["a\x1b[31mb\nc", 1000, None]]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        (float("-inf"), None),
        (Decimal("1.50"), 1.5),
        (Decimal("NaN"), None),
        (2**80, 2**80),
        (True, True),
        (date(2013, 3, 10), "2013-03-10"),
        (datetime(2013, 3, 10, 7, tzinfo=UTC), "2013-03-10T07:00:00+00:00"),
        (datetime(2013, 3, 10, 7), "2013-03-10T07:00:00"),
        (time(7, 30), "07:30:00"),
        (timedelta(hours=1), "1:00:00"),
        (b"\x00\xff", "00ff"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ({"a": [Decimal(1), None, {"b": float("inf")}]}, {"a": [1.0, None, {"b": None}]}),
        ((1, "x"), [1, "x"]),
    ],
)
def test_values_as_json(capsys, value, expected):
    output.document({"value": value})
    assert json.loads(capsys.readouterr().out) == {"value": expected}


def test_a_document_is_one_line_of_text_as_it_is(capsys):
    output.document({"name": "Zürich\n"})
    assert capsys.readouterr().out == '{"name": "Zürich\\n"}\n'


def test_a_table_in_a_pipe_is_aligned_text_without_control_characters(capsys):
    output.table(COLUMNS, ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "name           count    mean",
        "JFK                1  0.1235",
        "a\\x1b[31mb\\nc   1000",
    ]


def test_a_table_without_rows_shows_its_columns(capsys):
    output.table(COLUMNS, [])
    assert capsys.readouterr().out == "name  count  mean\n"


def test_a_table_on_a_terminal_is_drawn_and_data_cannot_move_the_cursor(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    output.table(COLUMNS, ROWS, title="[red]a title")
    shown = terminal.getvalue()
    assert "─" in shown
    assert "[red]a title" in shown
    assert "a\\x1b[31mb\\nc" in shown


def test_a_header_folds_where_the_terminal_is_narrow_and_no_value_does(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "dumb")
    output.table(["origin", "dep_delay_mean", "rows in"], [["JFK", 1.5, 2]])
    assert terminal.getvalue().splitlines() == [
        "          dep_",
        "        delay_  rows",
        "origin    mean    in",
        "────────────────────",
        "JFK        1.5     2",
    ]


def test_a_line_is_coloured_on_a_terminal_only(capsys, monkeypatch):
    output.say("done [bold]", style="green")
    assert capsys.readouterr().out == "done [bold]\n"
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    output.say("done [bold]", style="green", stream=terminal)
    assert terminal.getvalue() == "\x1b[32mdone [bold]\x1b[0m\n"


@pytest.mark.parametrize(("count", "text"), [(0, "0 files"), (1, "1 file"), (1200, "1,200 files")])
def test_counted(count, text):
    assert counted(count, "file") == text


def test_progress_in_a_pipe_is_a_line_for_each_change(capsys):
    with ProgressBoard() as board:
        board.update("freeze")
        board.update("freeze")
        board.update("freeze", PartState.DONE, seconds=1.25)
        board.update("freeze", PartState.DONE, seconds=1.25)
        board.update("spark", note="a\x1bb")
        board.update("spark", PartState.FAILED, note="why", seconds=2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "freeze: running",
        "freeze: done 1.2 s",
        "spark: running, a\\x1bb",
        "spark: failed 2.0 s, why",
    ]


def test_progress_in_a_pipe_does_not_tell_every_note(capsys):
    with ProgressBoard() as board:
        for note in "abc":
            board.update("deploy", note=note)
        board.update("deploy", PartState.DONE, note="d", seconds=1)
    with ProgressBoard(quiet=0) as board:
        for note in "aabc":
            board.update("deploy", note=note)
    assert capsys.readouterr().err.splitlines() == [
        "deploy: running, a",
        "deploy: done 1.0 s, d",
        "deploy: running, a",
        "deploy: running, b",
        "deploy: running, c",
    ]


def test_progress_on_a_terminal_ends_with_every_part(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    with ProgressBoard(terminal) as board:
        board.update("freeze", PartState.DONE, seconds=1.25)
        board.update("spark", PartState.FAILED, seconds=2, note="[red]why")
    last = terminal.getvalue().rpartition("freeze")[2]
    assert "1.2 s" in last
    assert "✗" in last
    assert "[red]why" in last
