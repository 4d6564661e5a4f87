"""Clients are made for the region of the environment, and their calls fit into the time of their functions."""

from __future__ import annotations

import io
import socket
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError
from botocore.session import Session

from lambdas import compare_versions, notify_change, receive_events, record_run, store_events
from slackwater.aws.clients import BRIEF_CONFIG, SHORT_CONFIG, SINGLE_CONFIG, botocore_session, client, default_session
from slackwater.aws.function_resources import function_resources
from slackwater.aws.objects import S3ObjectStore
from slackwater.errors import CloudError, InputError
from slackwater.project.project import Project
from tests.fakes_receiver import a_source
from tests.fakes_runs import LONGEST_RUN
from tests.pauses import record_pauses
from tests.pushing import FunctionContext

pytestmark = pytest.mark.unit


def test_without_a_region_the_error_names_both_remedies(monkeypatch, tmp_path):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    default_session.cache_clear()  # another test may have set a region
    with pytest.raises(InputError, match=r"AWS_REGION.*slackwater local up"):
        client("dynamodb")


SECOND = datetime(2026, 11, 29, 16, 32, 41, tzinfo=UTC)


def answered(monkeypatch, service, *, headers, body, session=None, status=200):
    """Return a client of a service that answers each request so."""
    for name, value in {
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
    }.items():
        monkeypatch.setenv(name, value)
    session = boto3.session.Session(botocore_session=session or botocore_session())
    raw = SimpleNamespace(stream=lambda *_, **__: iter([body.encode()]))
    made = client(service, session=session, config=SINGLE_CONFIG)
    made.meta.events.register("before-send", lambda request, **_: AWSResponse(request.url, status, headers, raw))
    return made


OBJECT = "<Key>{key}</Key><LastModified>{time}</LastModified><ETag>&quot;e&quot;</ETag><Size>5</Size>"
PAGE = """<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult{namespace}><Name>raw</Name><Prefix>a</Prefix><KeyCount>2</KeyCount><IsTruncated>true</IsTruncated>
<NextContinuationToken>t</NextContinuationToken>{encoding}{objects}
<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes></ListBucketResult>"""


def page(*objects, namespace="", encoding=""):
    contents = "".join(f"<Contents>{each}</Contents>" for each in objects)
    return PAGE.format(namespace=namespace, encoding=encoding, objects=contents)


def an_object(key="a&amp;b", time="2026-11-29T16:32:41.000Z"):
    return OBJECT.format(key=key, time=time)


@pytest.mark.parametrize(
    "body",
    [
        page(),
        page(an_object()),
        page(an_object(key="%C3%BC%26%2B+c"), encoding="<EncodingType>url</EncodingType>"),
        page(*[an_object(key=f"ü{n}") for n in range(3)], namespace=' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'),
        page(f"{an_object()}<StorageClass>STANDARD</StorageClass>"),
        page(an_object(time="2026-11-29T17:32:41+01:00")),
        page(an_object(time="2026-11-29T16:32:41")),
        page(an_object(), an_object(time="Sun, 29 Nov 2026 16:32:41 Z")),
        page(an_object(), "<Key>a</Key>"),
        page("<Key/><LastModified>2026-11-29T16:32:41.000Z</LastModified><ETag/><Size>0</Size>"),
    ],
)
def test_a_page_of_a_listing_is_read_as_botocore_reads_it(monkeypatch, body):
    ours, theirs = (
        answered(monkeypatch, "s3", headers={}, body=body, session=session).list_objects_v2(Bucket="raw")
        for session in (botocore_session(), Session())
    )
    assert ours == theirs


def test_the_objects_of_a_page_are_not_read_by_botocore(monkeypatch):
    s3 = answered(monkeypatch, "s3", headers={}, body=page(an_object()))
    (read,) = s3.list_objects_v2(Bucket="raw")["Contents"]
    # botocore's own reader has a class of its own for UTC.
    assert read["LastModified"] == SECOND
    assert read["LastModified"].tzinfo is UTC


@pytest.mark.parametrize("status", [200, 403])
@pytest.mark.parametrize("body", ["<ListBucketResult><Cont", "<Error><Code>AccessDenied</Code></Error>"])
def test_a_page_that_is_no_listing_is_the_error_of_botocore(monkeypatch, status, body):
    errors = []
    for session in (botocore_session(), Session()):
        s3 = answered(monkeypatch, "s3", headers={}, body=body, session=session, status=status)
        with pytest.raises((ClientError, ResponseParserError)) as raised:
            s3.list_objects_v2(Bucket="raw")
        errors.append((raised.type.__name__, str(raised.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("name", ["events_api", "receiver"])
def test_all_clients_of_the_functions_that_store_pushed_events_fail_soon(monkeypatch, name):
    project = Project(sources={"things": a_source()}, pipelines={}).model_dump_json(by_alias=True).encode()
    configs = []

    def make_client(self: object, service: str, *, config: Config) -> SimpleNamespace:
        configs.append(config)
        return SimpleNamespace(get_object=lambda **_: {"Body": io.BytesIO(project)})

    monkeypatch.setattr(boto3.session.Session, "client", make_client)
    settings = ("RAW_BUCKET", "TOKEN_TABLE", "FILE_TABLE", "STATE_TABLE", "EVENT_QUEUE_URL")
    for variable, value in {**dict.fromkeys(settings, "x"), "PROJECT_URI": "s3://assets/project"}.items():
        monkeypatch.setenv(variable, value)
    getattr(function_resources.__wrapped__(SHORT_CONFIG), name)
    assert configs
    assert all(config is SHORT_CONFIG for config in configs)


@pytest.mark.parametrize("compose", [record_run.recorder, notify_change.notifier])
def test_all_clients_of_a_function_that_runs_for_a_minute_fail_before_its_timeout(monkeypatch, compose):
    configs = []
    monkeypatch.setattr(boto3.session.Session, "client", lambda _, service, *, config: configs.append(config))
    of_aws = ("AWS_REGION", "APPLICATION_ID", "ARCHITECTURE")
    for variable in ("RUN_TABLE", "STATE_TABLE", "EXCHANGE_BUCKET", "CHANGE_TOPIC", *of_aws):
        monkeypatch.setenv(variable, "x")
    more = {"FUNCTION_MB": "{}", "ARRIVAL_QUEUE_URL": "x", "AWAIT_INPUTS_FUNCTION": "f", "INTERMEDIATE_DAYS": "1"}
    for variable, value in more.items():
        monkeypatch.setenv(variable, value)
    resources = function_resources.__wrapped__(SHORT_CONFIG)
    assert compose(resources)
    assert resources.once.arrivals
    assert {SHORT_CONFIG, SINGLE_CONFIG} == set(configs)


def test_what_the_end_of_a_run_has_cost_is_asked_for_once_and_written_with_repetitions(monkeypatch):
    monkeypatch.setattr(boto3.session.Session, "client", lambda _, service, *, config: (service, config))
    of_aws = ("AWS_REGION", "APPLICATION_ID", "ARCHITECTURE")
    for variable in ("RUN_TABLE", "STATE_TABLE", "ARRIVAL_QUEUE_URL", "AWAIT_INPUTS_FUNCTION", *of_aws):
        monkeypatch.setenv(variable, "x")
    monkeypatch.setenv("FUNCTION_MB", "{}")
    monkeypatch.setenv("INTERMEDIATE_DAYS", "1")
    resources = function_resources.__wrapped__(SHORT_CONFIG)
    costs = record_run.recorder(resources).costs
    assert costs.table is resources.run_table
    assert (costs.reader.states, costs.reader.emr) == (
        ("stepfunctions", SINGLE_CONFIG),
        ("emr-serverless", SINGLE_CONFIG),
    )


@pytest.mark.parametrize("function", [receive_events, store_events, record_run, notify_change, compare_versions])
def test_a_function_of_a_minute_asks_for_short_clients(monkeypatch, function):
    asked = []

    class Asked(Exception):
        """The handler goes no further."""

    def resources(config):
        asked.append(config)
        raise Asked

    monkeypatch.setattr(function, "function_resources", resources)
    run = LONGEST_RUN.model_dump()
    event = {
        "pathParameters": {"source": "s"}, "requestContext": {"requestId": "r"}, "multiValueHeaders": {},
        "Records": [], "event": "failed", "run": run, "error": "E", "cause": "", "retried": False, "pipeline": "p",
        "date": "2013-03-10", "comparison": "c", "execution": "e", "correlation_id": "c", "prefix": "x", "job": "j",
    }  # fmt: skip
    with suppress(Asked):
        function.handler(event, FunctionContext())
    assert asked == [SHORT_CONFIG]


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
