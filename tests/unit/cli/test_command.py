"""What `@command` does for every command."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import typer

from slackwater.cli.command import Result, command
from slackwater.client.client import Client
from slackwater.client.workspace import Workspace
from tests.example_project import PROJECT
from tests.fakes_cli import use_client

pytestmark = pytest.mark.unit


class RecordedClient:
    """A client that records when it is opened and closed."""

    def __init__(self, events):
        self.events = events

    def __enter__(self):
        self.events.append("opened")
        return self

    def __exit__(self, *_):
        self.events.append("closed")


@pytest.fixture
def events(monkeypatch):
    recorded = []
    monkeypatch.setattr(Client, "open", lambda *_: RecordedClient(recorded))
    return recorded


def call(function, *arguments, **options):
    """Run a function as a command with these options of the decorator; return the exit code."""
    group = typer.Typer()
    command("slackwater any", group=group, **options)(function)
    code = typer.main.get_command(group)(list(arguments), standalone_mode=False)
    return code or 0


def test_a_client_is_opened_when_it_is_used_and_closed_before_the_view(events, capsys):
    def used(*, session: object) -> Result:
        events.append(session.project.source("flights").source)
        assert session.client is session.client
        return Result({}, lambda: events.append("shown"))

    assert call(used, *PROJECT) == 0
    assert events == ["flights", "opened", "closed", "shown"]


@pytest.mark.parametrize(("writes", "uses", "saved"), [(False, False, 0), (False, True, 1), (True, False, 1)])
def test_the_state_of_a_local_cloud_is_saved_before_the_view_if_a_command_has_asked_a_cloud(
    events, monkeypatch, writes, uses, saved
):
    def ask(*, session: object) -> Result:
        assert session.workspace
        assert not uses or session.client
        return Result({}, lambda: events.append("shown"))

    monkeypatch.setattr(RecordedClient, "connection", SimpleNamespace(cloud="a test"), raising=False)
    monkeypatch.setattr(Workspace, "save_local_cloud", lambda _: events.append("saved"))
    assert call(ask, *PROJECT, writes=writes) == 0
    assert [event for event in events if event in {"saved", "shown"}] == ["saved"] * saved + ["shown"]


def test_a_command_that_writes_shows_once_where(monkeypatch, capsys):
    def write(*, session: object) -> Result:
        assert session.client is session.client
        session.reconnect()
        assert session.client
        return Result({})

    use_client(monkeypatch, SimpleNamespace())
    assert call(write, *PROJECT, writes=True) == 0
    assert capsys.readouterr().err == "target: a test\n"
    assert call(write, *PROJECT) == 0
    assert capsys.readouterr().err == ""


def test_without_a_use_no_client_is_opened_and_a_failure_closes_one(events):
    def unused(*, session: object) -> Result:
        return Result({"project": str(session.workspace.project)})

    def failing(*, session: object) -> Result:
        raise LookupError(session.client)

    assert call(unused, *PROJECT) == 0
    assert events == []
    with pytest.raises(LookupError):
        call(failing, *PROJECT)
    assert events == ["opened", "closed"]


@pytest.mark.parametrize(
    ("view", "options", "printed"),
    [("a text", [], "a text\n"), ("a text", ["--json"], '{"a": 1}\n'), (None, [], '{"a": 1}\n')],
)
def test_the_document_is_printed_or_the_view_and_the_exit_code_is_the_result_s(capsys, view, options, printed):
    def shown() -> Result:
        return Result({"a": 1}, view, exit_code=3)

    assert call(shown, *options) == 3
    assert capsys.readouterr().out == printed
