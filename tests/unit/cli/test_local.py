"""`slackwater local`: what it prints of a running local cloud, and without one."""

from __future__ import annotations

import json
import subprocess

import pytest

from slackwater.cli.main import run
from slackwater.local import cloud
from slackwater.local.cloud import LocalCloud

pytestmark = pytest.mark.unit

RUNNING = LocalCloud("http://127.0.0.1:20001", 7, "us-east-1", "000000000000", "2026-11-28T07:00:00+00:00")


def test_a_shell_takes_the_variables_that_env_prints_and_status_prints_none(monkeypatch, printed_by, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cloud, "status", lambda _root: RUNNING)
    exports = printed_by("local", "env").out
    shell = subprocess.run(
        ["bash", "-c", f'{exports}echo "$AWS_ENDPOINT_URL|$SLACKWATER_SET"'], capture_output=True, text=True, check=True
    )
    assert shell.stdout == f"{RUNNING.endpoint}|{RUNNING.environment()['SLACKWATER_SET']}\n"
    assert "export " not in printed_by("local", "status").out


def test_a_running_cloud_names_the_folder_that_it_belongs_to(monkeypatch, printed_by, tmp_path):
    (tmp_path / "sources").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cloud, "status", lambda _root: RUNNING)
    monkeypatch.setattr(cloud, "up", lambda _root, **_options: RUNNING)
    for verb in ("up", "status"):
        assert f"  folder     {tmp_path}\n" in printed_by("local", verb).out
        assert json.loads(printed_by("local", verb, "--json").out)["folder"] == str(tmp_path)


def test_without_a_local_cloud_env_names_the_command_that_starts_it(monkeypatch, printed_by, tmp_path):
    # Without a project, it would be the cloud of the clone, which runs after `make demo`.
    (tmp_path / "sources").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run(["local", "env"]) == 2
    assert "slackwater local up" in printed_by("local", "env", code=2).err


def test_in_a_folder_without_a_project_status_and_env_say_so(monkeypatch, printed_by, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("slackwater.client.workspace.is_clone", lambda _files: False)
    remedy = f"{tmp_path} has no project: change into the folder of the project, or name it with --project DIR"
    assert printed_by("local", "status").out == f"not running here: {remedy}\n"
    assert remedy in printed_by("local", "env", code=2).err
    (tmp_path / "sources").mkdir()
    assert printed_by("local", "status").out == "not running (to start it: slackwater local up)\n"
