"""`slackwater sideline redrive`: the batches of a day are sent to the function, and the outcome is printed."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace

import pytest

from lambdas import redrive_events
from slackwater.cli.main import run
from slackwater.client.client import Client
from slackwater.client.redrive import DayRedrive
from slackwater.errors import NotDeployed
from slackwater.receiver.pull.rejects_reader import RejectsReader
from slackwater.receiver.push.redrive import Redriver
from slackwater.receiver.writing.rejects import rejects_uri
from slackwater.sources.definition import Source
from tests.example_project import PROJECT
from tests.fakes_cli import Terminal, use_client
from tests.fakes_functions import use_resources
from tests.fakes_receiver import RECEIVED, MemoryFileCache
from tests.pushing import Setup, pushed_body

pytestmark = pytest.mark.unit

DATE = RECEIVED.date().isoformat()
REDRIVE = ("sideline", "redrive", "weather", "--date", DATE)
FIELDS = {"id": "string", "count": "int64", "at": "timestamp"}


def weather(*null_values: str) -> Source:
    settings = {"source": "weather", "timestamp": {"field": "at"}, "fields": FIELDS, "push": {}}
    return Source.model_validate({**settings, "null_values": list(null_values)})


class Deployed(Setup):
    """A source whose definition is corrected after events were pushed, and the function over fakes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(weather())
        self.broken = ""
        """The batch at which the function fails."""
        project = SimpleNamespace(source=lambda name: weather("many"))
        use_resources(monkeypatch, redrive_events, project=project, redriver=Redriver(receiver=self.receiver))
        clients = lambda service: SimpleNamespace(invoke=self.invoke)  # noqa: E731
        rejects = RejectsReader(store=self.store, files=MemoryFileCache(), raw_bucket="raw")
        redrive = DayRedrive(rejects=rejects, clients=clients, function="arn", correlation_id="c")
        settings = SimpleNamespace(redrive_events_function="arn")
        self.client = SimpleNamespace(
            settings=settings,
            day_redrive=redrive,
            project=SimpleNamespace(source=lambda name: None),
            plan=lambda pipelines: None,
            connection=SimpleNamespace(cloud="here"),
        )
        self.client.redrive = lambda *arguments, **named: Client.redrive(self.client, *arguments, **named)
        use_client(monkeypatch, self.client)
        monkeypatch.setattr("slackwater.cli.redrive.note_changes", lambda session, pipelines: None)

    def send(self, *events: dict[str, object] | bytes) -> str:
        lines = [
            event if isinstance(event, bytes) else json.dumps({"at": "2013-03-12T08:10:00Z", **event}).encode()
            for event in events
        ]
        checked = self.receiver.check(pushed_body(b"\n".join(lines)), self.source)
        return self.receiver.store(checked).batch_id

    def invoke(self, *, FunctionName: str, Payload: str) -> dict[str, object]:  # noqa: N803
        request = json.loads(Payload)
        try:
            if request["batch_id"] == self.broken:
                raise MemoryError("too much")
            answer, more = redrive_events.handler(request, None), {}
        except Exception as error:  # noqa: BLE001 - as Lambda does
            answer, more = (
                {"errorType": type(error).__name__, "errorMessage": str(error)},
                {"FunctionError": "Unhandled"},
            )
        return {"Payload": io.BytesIO(json.dumps(answer).encode()), **more}


@pytest.fixture
def deployed(monkeypatch):
    return Deployed(monkeypatch)


def test_the_outcome_is_by_rule(deployed, document_of, caplog):
    for number in range(20):
        deployed.send({"id": f"{number}", "count": "many"}, {"id": f"{number}", "count": "few"})
    deployed.send({"id": "good"})
    deployed.send({"id": "good", "count": 1}, b"{")
    few = {"rule": "wrong_type", "events": 20, "reason": "count: 'few' is not a whole number"}

    def outcome(*arguments):
        document = document_of(*REDRIVE, *arguments, *PROJECT)
        assert [rule["rule"] for rule in document["rules"]] == ["not_json", "wrong_type"]
        [not_json], wrong_type = (rule["reasons"] for rule in document["rules"])
        assert (not_json["rule"], not_json["events"], wrong_type) == ("not_json", 1, [few])
        assert (document["batches"], document["files"], document["failed"]) == (21, 0, [])
        return document["accepted"], document["rejected"], document["stored_before"]

    assert outcome("--dry-run") == (20, 21, 0)
    assert not deployed.store.uris("/redriven/")
    assert outcome() == (20, 21, 0)
    assert outcome() == (0, 21, 20)
    # Reasons quote values, which may be personal.
    assert "few" not in caplog.text


def test_a_terminal_shows_a_table(deployed, monkeypatch):
    deployed.send({"id": "a", "count": "many"}, {"id": "b", "count": "few"})
    uri = rejects_uri("raw", "weather", received_at=RECEIVED, batch_id=f"{'a' * 32}-{'b' * 12}")
    deployed.store.put(uri, b"")
    shown = []
    for arguments in (["--dry-run"], [], []):
        monkeypatch.setattr(sys, "stdout", Terminal())
        monkeypatch.setenv("COLUMNS", "160")
        assert run([*REDRIVE, *arguments, *PROJECT]) == 0
        shown.append(sys.stdout.getvalue())
    assert ["a dry run: nothing was stored" in text for text in shown] == [True, False, False]
    assert "1 wrong_type: count: 'few' is not a whole number" in shown[1]
    assert (
        "1 event of that day were stored by an earlier redrive" in shown[2]
        or "stored by an earlier redrive" in shown[2]
    )


def test_files_are_left_to_the_pull(deployed, capsys, monkeypatch):
    uri = rejects_uri("raw", "weather", received_at=RECEIVED, batch_id=f"{'a' * 32}-{'b' * 12}")
    deployed.store.put(uri, b"")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert run([*REDRIVE, *PROJECT]) == 0
    assert f"no rejected events of weather on {DATE} to send again" in sys.stdout.getvalue()
    assert "slackwater pull weather reads the files again" in capsys.readouterr().err


def test_a_batch_that_cannot_be_read_stops_no_other(deployed, document_of, capsys):
    deployed.send({"id": "a", "count": "many"})
    lost = deployed.send({"id": "b", "count": "many"})
    deployed.store.delete(deployed.store.uris(f"/receipts/source=weather/{lost}"))
    assert run([*REDRIVE, "--json", *PROJECT]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["accepted"] == 1
    [failed] = document["failed"]
    assert failed["batch"] == lost
    assert "has no receipt" in failed["reason"]


def test_a_function_that_fails_stops_the_command_and_the_next_one_does_the_rest(deployed, document_of, capsys):
    batches = [deployed.send({"id": str(number), "count": "many"}) for number in range(3)]
    deployed.broken = sorted(batches)[1]
    assert run([*REDRIVE, *PROJECT]) == 1
    assert "MemoryError: too much: the same command again does the rest" in capsys.readouterr().err
    deployed.broken = ""
    document = document_of(*REDRIVE, *PROJECT)
    assert document["accepted"] + document["stored_before"] == 3


def test_wrong_input(deployed, printed_by):
    shown = printed_by(*REDRIVE, "--rule", "odd", *PROJECT, code=2).err
    assert "rule: 'odd' is no rule that rejects events: use one of not_json, " in shown
    assert "no source 'tides'" in printed_by("sideline", "redrive", "tides", "--date", DATE, *PROJECT, code=2).err


def test_a_deployment_without_the_function(deployed):
    deployed.client.settings.redrive_events_function = ""
    with pytest.raises(NotDeployed, match="run slackwater deploy"):
        deployed.client.redrive("weather", DATE)


def test_an_interrupted_command_says_how_to_go_on(deployed, capsys):
    batches = [deployed.send({"id": str(number), "count": "many"}) for number in range(30)]
    invoke, calls = deployed.invoke, []

    def interrupted(**request):
        calls.append(request)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return invoke(**request)

    deployed.invoke = interrupted
    assert run([*REDRIVE, *PROJECT]) == 130
    assert "stopped: what was sent is stored. The same command sends the rest." in capsys.readouterr().err
    # Those that were being sent are finished, and no further ones are sent.
    assert len(calls) < len(batches)
