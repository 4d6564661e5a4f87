"""Where the local cloud keeps what it knows, and how it is found."""

from __future__ import annotations

import json

import pytest
from ministack.core import persistence

from slackwater.errors import CloudError
from slackwater.local import cloud
from slackwater.local.checkpoint import Checkpointer
from slackwater.local.layout import Layout, environment

pytestmark = pytest.mark.unit


def test_a_project_without_a_cloud(tmp_path):
    assert cloud.status(tmp_path) is None
    assert not cloud.down(tmp_path)


def test_a_cloud_that_is_gone(tmp_path):
    place = Layout(tmp_path)
    place.base.mkdir()
    place.endpoint_file.write_text(json.dumps({"endpoint": "http://127.0.0.1:9", "pid": 1}))
    assert cloud.status(tmp_path) is None
    assert not cloud.down(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null"])
def test_an_endpoint_file_that_cannot_be_read_says_what_to_do(tmp_path, text):
    place = Layout(tmp_path)
    place.base.mkdir()
    place.endpoint_file.write_text(text)
    with pytest.raises(CloudError, match="delete it"):
        cloud.status(tmp_path)


def test_the_environment_names_endpoint_credentials_and_region():
    assert environment("http://127.0.0.1:1") == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def states(monkeypatch, **services):
    """Let the emulator hold these services' states."""
    monkeypatch.setattr("slackwater.local.emulator.service_states", lambda: services)


def test_only_what_changed_is_written(tmp_path, monkeypatch):
    kept, changing = {"a": 1}, {"layers": b"one"}
    states(monkeypatch, kept=lambda: kept, changing=lambda: changing)
    checkpointer = Checkpointer(tmp_path, busy=lambda: False)
    assert set(checkpointer.take()) == {"kept", "changing"}
    assert checkpointer.take() == {}
    changing["layers"] = b"two"
    assert checkpointer.take() == {"changing": {"layers": b"two"}}


def test_a_state_that_is_taken_does_not_change_afterwards(tmp_path, monkeypatch):
    live = {"runs": [1]}
    states(monkeypatch, live=lambda: live)
    taken = Checkpointer(tmp_path, busy=lambda: False).take()
    live["runs"].append(2)
    assert taken == {"live": {"runs": [1]}}


def test_a_state_that_changes_while_it_is_taken_is_taken_again(tmp_path, monkeypatch):
    answers = iter([RuntimeError("dictionary changed size during iteration"), {"a": 1}])

    def get_state():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    states(monkeypatch, busy=get_state)
    assert Checkpointer(tmp_path, busy=lambda: False).take() == {"busy": {"a": 1}}


def test_what_is_written_is_what_the_emulator_loads(tmp_path, monkeypatch):
    Checkpointer(tmp_path, busy=lambda: False).write({"emr_serverless": {"applications": [], "blob": b"\x00\xff"}})
    monkeypatch.setattr(persistence, "PERSIST_STATE", True)
    monkeypatch.setattr(persistence, "STATE_DIR", str(tmp_path))
    assert persistence.load_state("emr_serverless") == {"applications": [], "blob": b"\x00\xff"}
    assert [path.name for path in tmp_path.iterdir()] == ["emr_serverless.json"]
