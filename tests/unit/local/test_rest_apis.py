"""REST APIs of the local cloud: their URLs, the bodies that they expand or refuse, and the role for their logs."""

from __future__ import annotations

import asyncio
import gzip
import inspect
import zlib

import pytest
from ministack import app
from ministack.services import apigateway_v1
from ministack.services.cloudformation import provisioners, stacks

from slackwater.local.services import rest_apis

pytestmark = pytest.mark.unit

ENDPOINT = "http://127.0.0.1:1"
BODY = b'{"n":1}\n'


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    """The emulator with our changes until the test ends, with a REST API that answers with the body it gets."""
    handlers = {name: dict(entry) for name, entry in provisioners._RESOURCE_HANDLERS.items()}
    monkeypatch.setattr(provisioners, "_RESOURCE_HANDLERS", handlers)
    monkeypatch.setattr(stacks, "_resolve_stack_outputs", stacks._resolve_stack_outputs)
    names = ["api_id", "stage_name", "method", "path", "headers", "body", "query_params"]
    assert list(inspect.signature(apigateway_v1.handle_execute).parameters) == names

    async def execute(*request):
        *_, headers, body, _ = request
        return 200, dict(headers), body

    monkeypatch.setattr(apigateway_v1, "handle_execute", execute)
    rest_apis.register(ENDPOINT)
    yield handlers
    apigateway_v1.reset()


def post(body, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return asyncio.run(apigateway_v1.handle_execute("api", "push", "POST", "/", named, body, {}))


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(BODY, mtime=0)),
        (" GZip", gzip.compress(BODY, mtime=0)),
        ("deflate", zlib.compress(BODY)),
        ("identity", BODY),
    ],
)
def test_a_body_is_expanded_and_its_header_stays(encoding, body):
    assert post(body, content_encoding=encoding) == (200, {"content-encoding": encoding}, BODY)


def test_a_body_without_an_encoding_stays():
    assert post(BODY) == (200, {}, BODY)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("zstd", BODY), ("br", BODY), ("gzip", BODY), ("gzip", gzip.compress(BODY, mtime=0)[:-9]), ("deflate", BODY)],
)
def test_a_body_that_api_gateway_cannot_expand_is_refused(encoding, body):
    status, _, answer = post(body, content_encoding=encoding)
    assert (status, answer) == (415, b'{"message":"Unsupported Media Type"}')


def test_a_body_has_at_most_10_mb_as_it_is_sent():
    assert post(b"x" * (10 * 2**20 + 1)) == (
        413, {"Content-Type": "text/plain"}, b"HTTP content length exceeded 10485760 bytes."
    )  # fmt: skip


@pytest.mark.parametrize(("size", "status"), [(3 * 2**20, 200), (4 * 2**20, 200), (4_800_000, 413)])
def test_an_expanded_body_fits_in_base64_into_a_call_of_a_function(size, status):
    for body, encoding in ((b"x" * size, "identity"), (gzip.compress(b"x" * size), "gzip")):
        assert post(body, content_encoding=encoding)[0] == status


@pytest.mark.parametrize("name", ["www-authenticate", "WWW-Authenticate"])
def test_the_header_that_names_the_scheme_of_the_token_is_renamed(name):
    assert post(BODY, **{name: "Bearer", "x": "y"}) == (
        200,
        {"x-amzn-Remapped-www-authenticate": "Bearer", "x": "y"},
        BODY,
    )


def test_the_url_of_a_stage_in_an_output_is_below_the_endpoint():
    definitions = {
        "Api": {"Value": "https://a1b2c3d4.execute-api.us-east-1.amazonaws.com/push"},
        "Other": {"Value": "https://example.com/push"},
    }
    outputs, _ = stacks._resolve_stack_outputs(definitions, {}, {}, {}, {}, "stack", "id")
    urls = {output["OutputKey"]: output["OutputValue"] for output in outputs}
    assert urls == {"Api": f"{ENDPOINT}/_aws/execute-api/a1b2c3d4/push", "Other": "https://example.com/push"}
    path = urls["Api"].removeprefix(ENDPOINT) + "/v1/x"
    assert app._parse_execute_api_url("127.0.0.1", path) == ("a1b2c3d4", "push", "/v1/x")


def test_a_stage_with_an_access_log_needs_the_role_of_the_account(registered):
    create = registered["AWS::ApiGateway::Stage"]["create"]
    api, _ = registered["AWS::ApiGateway::RestApi"]["create"]("Api", {"Name": "a"}, "stack")
    stage = {"RestApiId": api, "StageName": "push"}
    assert create("Stage", stage, "stack")[0] == "push"
    logged = {**stage, "AccessLogSetting": {"DestinationArn": "arn:aws:logs:us-east-1:000000000000:log-group:a"}}
    with pytest.raises(ValueError, match="CloudWatch Logs role ARN must be set in account settings"):
        create("Stage", logged, "stack")
    role = {"op": "replace", "path": "/cloudwatchRoleArn", "value": "arn:aws:iam::000000000000:role/logs"}
    apigateway_v1._update_account({"patchOperations": [role]})
    assert create("Stage", logged, "stack")[0] == "push"
