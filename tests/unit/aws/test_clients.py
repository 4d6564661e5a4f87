"""Clients are made for the region of the environment, and their calls fit into the time of their functions."""

from __future__ import annotations

import io
import socket
from types import SimpleNamespace

import boto3
import pytest
from botocore.config import Config

from lambdas import compare_versions, notify_change, receive_events, record_run, store_events
from slackwater.aws.clients import BRIEF_CONFIG, SHORT_CONFIG, SINGLE_CONFIG, client, default_session
from slackwater.aws.objects import S3ObjectStore
from slackwater.errors import CloudError, InputError
from slackwater.project.project import Project
from tests.fakes_receiver import a_source
from tests.pauses import record_pauses

pytestmark = pytest.mark.unit


def test_without_a_region_the_error_names_both_remedies(monkeypatch, tmp_path):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    default_session.cache_clear()  # another test may have set a region
    with pytest.raises(InputError, match=r"AWS_REGION.*slackwater local up"):
        client("dynamodb")


@pytest.mark.parametrize("function", [receive_events, store_events])
def test_all_clients_of_the_functions_that_store_pushed_events_fail_soon(monkeypatch, function):
    project = Project(sources={"things": a_source()}, pipelines={}).model_dump_json(by_alias=True).encode()
    configs = []

    def make_client(self: object, service: str, *, config: Config) -> SimpleNamespace:
        configs.append(config)
        return SimpleNamespace(get_object=lambda **_: {"Body": io.BytesIO(project)})

    monkeypatch.setattr(boto3.session.Session, "client", make_client)
    settings = ("RAW_BUCKET", "RAW_DATABASE", "TOKEN_TABLE", "FILE_TABLE", "EVENT_QUEUE_URL")
    for name, value in {**dict.fromkeys(settings, "x"), "PROJECT_URI": "s3://assets/project"}.items():
        monkeypatch.setenv(name, value)
    build = function.build_api if function is receive_events else function.build_resources
    build.__wrapped__()
    assert configs
    assert all(config is SHORT_CONFIG for config in configs)


@pytest.mark.parametrize(
    "build", [record_run.build_recorder, notify_change.build_notifier, compare_versions.build_versions]
)
def test_all_clients_of_a_function_that_runs_for_a_minute_fail_before_its_timeout(monkeypatch, build):
    configs = []
    monkeypatch.setattr(boto3.session.Session, "client", lambda _, service, *, config: configs.append(config))
    for name in ("RUN_TABLE", "EXCHANGE_BUCKET", "CHANGE_TOPIC", "AWS_REGION", "APPLICATION_ID", "ARCHITECTURE"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("INTERMEDIATE_DAYS", "30")
    monkeypatch.setenv("FUNCTION_MB", "{}")
    monkeypatch.setenv("ARRIVAL_QUEUE_URL", "x")
    build.__wrapped__()
    assert configs
    assert all(config in {SHORT_CONFIG, SINGLE_CONFIG} for config in configs)


def test_events_are_counted_in_the_time_that_is_kept_for_the_response():
    assert BRIEF_CONFIG.retries["total_max_attempts"] == 1
    assert BRIEF_CONFIG.connect_timeout + BRIEF_CONFIG.read_timeout < receive_events.RESPONSE_SECONDS


def test_a_call_that_aws_never_answers_ends_after_its_attempts_and_pauses(monkeypatch):
    pauses = record_pauses(monkeypatch, "botocore.endpoint")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
            monkeypatch.setenv(name, "us-east-1")
        s3 = client("s3", config=SHORT_CONFIG.merge(Config(read_timeout=0.1)))
        with pytest.raises(CloudError, match="Read timeout"):
            S3ObjectStore(s3).get("s3://bucket/key")
    assert len(pauses) == 2
    assert all(pause <= 2**number for number, pause in enumerate(pauses))


def test_clients_share_one_session_so_that_its_large_files_are_read_once(monkeypatch):
    sessions = []
    monkeypatch.setattr(boto3.session.Session, "client", lambda self, service, *, config: sessions.append(self))
    for service in ("s3", "dynamodb"):
        client(service)
    assert sessions[0] is sessions[1]
