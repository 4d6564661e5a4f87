"""Documents, tables, lines and progress, on a terminal and in a pipe."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from slackwater.cli import output
from slackwater.formatting import counted
from slackwater.progress import ProgressBoard, TaskState
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
def test_values_are_converted_to_json(capsys, value, expected):
    output.print_json({"value": value})
    assert json.loads(capsys.readouterr().out) == {"value": expected}


def test_a_document_is_one_line_without_escaped_letters(capsys):
    output.print_json({"name": "Zürich\n"})
    assert capsys.readouterr().out == '{"name": "Zürich\\n"}\n'


def test_a_table_in_a_pipe_is_aligned_text_without_control_characters(capsys):
    output.print_table(COLUMNS, ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "name           count    mean",
        "JFK                1  0.1235",
        "a\\x1b[31mb\\nc   1000",
    ]


def test_a_table_without_rows_shows_its_columns(capsys):
    output.print_table(COLUMNS, [])
    assert capsys.readouterr().out == "name  count  mean\n"


def test_a_table_on_a_terminal_has_a_rule_and_no_control_characters_of_the_data(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    output.print_table(COLUMNS, ROWS, title="[red]a title")
    shown = terminal.getvalue()
    assert "─" in shown
    assert "[red]a title" in shown
    assert "a\\x1b[31mb\\nc" in shown


def test_a_narrow_terminal_wraps_column_names_and_no_value(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "dumb")
    output.print_table(["origin", "dep_delay_mean", "rows in"], [["JFK", 1.5, 2]])
    assert [line.rstrip() for line in terminal.getvalue().splitlines()] == [
        "          dep_",
        "        delay_  rows",
        "origin    mean    in",
        "────────────────────",
        "JFK        1.5     2",
    ]


def test_a_narrow_terminal_wraps_long_strings_and_never_truncates_a_number(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("TERM", "dumb")
    output.print_table(["rows", "reason"], [[1234567890123, "a reason of several words"], [5, "x" * 20]])
    assert [line.rstrip() for line in terminal.getvalue().splitlines()] == [
        "         rows  reason",
        "──────────────────────────────",
        "1234567890123  a reason of",
        "               several words",
        "            5  xxxxxxxxxxxxxxx",
        "               xxxxx",
    ]


def test_wide_characters_are_aligned(capsys):
    output.print_table(["city", "rows"], [["東京", 1], ["Oslo", 20]])
    assert capsys.readouterr().out.splitlines() == ["city  rows", "東京     1", "Oslo    20"]


def test_a_long_table_on_a_terminal_is_written_line_by_line(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "20")
    output.print_table(["row", "text"], [[number, "a b" * 10] for number in range(500)])
    assert len(terminal.getvalue().splitlines()) == 501


def test_text_is_coloured_on_a_terminal_only(capsys, monkeypatch):
    output.print_text("done [bold]", style="green")
    assert capsys.readouterr().out == "done [bold]\n"
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    output.print_text("done [bold]", style="green", stream=terminal)
    assert terminal.getvalue() == "\x1b[32mdone [bold]\x1b[0m\n"


@pytest.mark.parametrize(("count", "expected"), [(0, "0 files"), (1, "1 file"), (1200, "1,200 files")])
def test_counted_nouns_have_the_right_plural(count, expected):
    assert counted(count, "file") == expected


def test_progress_in_a_pipe_is_a_line_for_each_change(capsys):
    with ProgressBoard() as board:
        board.update("freeze")
        board.update("freeze")
        board.update("freeze", TaskState.DONE, seconds=1.25)
        board.update("freeze", TaskState.DONE, seconds=1.25)
        board.update("spark", note="a\x1bb")
        board.update("spark", TaskState.FAILED, note="why", seconds=2)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "freeze: running",
        "freeze: done 1.2 s",
        "spark: running, a\\x1bb",
        "spark: failed 2.0 s, why",
    ]


def test_progress_in_a_pipe_does_not_write_every_note(capsys):
    with ProgressBoard() as board:
        for note in "abc":
            board.update("deploy", note=note)
        board.update("deploy", TaskState.DONE, note="d", seconds=1)
    with ProgressBoard(note_interval=0) as board:
        for note in "aabc":
            board.update("deploy", note=note)
    assert capsys.readouterr().err.splitlines() == [
        "deploy: running, a",
        "deploy: done 1.0 s, d",
        "deploy: running, a",
        "deploy: running, b",
        "deploy: running, c",
    ]


def test_progress_on_a_terminal_ends_with_every_task(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    with ProgressBoard(terminal) as board:
        board.update("freeze", TaskState.DONE, seconds=1.25)
        board.update("spark", TaskState.FAILED, seconds=2, note="[red]why")
    last = terminal.getvalue().rpartition("freeze")[2]
    assert "1.2 s" in last
    assert "✗" in last
    assert "[red]why" in last


@pytest.mark.parametrize(("lines", "shown"), [("10", ["day 26", "running 1", "running 2"]), ("60", ["day 0"])])
def test_progress_on_a_terminal_leaves_out_ended_tasks_that_do_not_fit_and_no_running_one(monkeypatch, lines, shown):
    monkeypatch.setenv("LINES", lines)
    board = ProgressBoard(Terminal())
    for number in range(26):
        board.update(f"day {number}", TaskState.DONE)
    board.update("running 1")
    board.update("day 26", TaskState.DONE)
    board.update("running 2")
    names = [str(cell) for cell in board.__rich__().columns[1].cells]
    assert len(names) == min(int(lines) - 2, 29)
    assert set(shown) <= set(names)
