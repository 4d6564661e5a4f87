"""REST APIs as on AWS: URLs, sizes of bodies, compression, a renamed header, and the role that access logs need.

It replaces functions of the emulator; see `emulator`.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from slackwater.local.emulator import Response, module, replaces, resource_handlers

# The URL of a stage, as templates build it: a REST API has no attribute for it.
_URL = re.compile(r"https://(\w+)\.execute-api\.[\w-]+\.amazonaws\.com/")
_UNSUPPORTED_MEDIA_TYPE: Response = (
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    {"Content-Type": "application/json"},
    b'{"message":"Unsupported Media Type"}',
)
# "Quotas for configuring and running a REST API": the payload, as sent.
_MAX_BODY = 10 * 2**20
_TOO_LONG: Response = (
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    {"Content-Type": "text/plain"},
    f"HTTP content length exceeded {_MAX_BODY} bytes.".encode(),
)
# "Lambda quotas": a synchronous invocation. The function gets the expanded body in Base64.
_MAX_INVOCATION = 6 * 2**20
_TOO_LONG_FOR_FUNCTION: Response = (
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    {"Content-Type": "application/json"},
    b'{"message":"Request Too Long"}',
)
# "Amazon API Gateway important notes for REST APIs".
_REMAPPED = {"www-authenticate": "x-amzn-Remapped-www-authenticate"}


def register(endpoint: str) -> None:
    """Change the emulator's REST APIs. Outputs of stacks name their stages by URLs below `endpoint`."""
    _set_urls(endpoint)
    _wrap_requests()
    _require_role_of_logs()


def expand_body(body: bytes, encoding: str) -> bytes:
    """Return a body without its content encoding. Raises `ValueError` for one that API Gateway does not support."""
    try:
        match encoding.strip().lower():
            case "identity":
                return body
            case "gzip":
                return gzip.decompress(body)
            case "deflate":
                return zlib.decompress(body)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"not compressed with {encoding}") from error
    raise ValueError(f"unsupported content encoding {encoding!r}")


def _set_urls(endpoint: str) -> None:
    @replaces(module("services.cloudformation.stacks"), "_resolve_stack_outputs")
    def resolve_outputs(resolve: Any, *arguments: Any) -> Any:
        outputs, exports = resolve(*arguments)
        for output in outputs:
            output["OutputValue"] = _URL.sub(rf"{endpoint}/_aws/execute-api/\1/", output["OutputValue"])
        return outputs, exports


def _wrap_requests() -> None:
    # "Call an API method with a compressed payload in API Gateway". The function still gets the header
    # `content-encoding` (https://github.com/dougmoscrop/serverless-http/issues/194).
    @replaces(module("services.apigateway_v1"), "handle_execute")
    async def handle_execute(execute: Any, *request: Any) -> Response:
        *route, headers, body, query_params = request
        if len(body) > _MAX_BODY:
            return _TOO_LONG
        try:
            expanded = expand_body(body, headers.get("content-encoding", "identity"))
        except ValueError:
            return _UNSUPPORTED_MEDIA_TYPE
        if len(expanded) * 4 // 3 > _MAX_INVOCATION:
            return _TOO_LONG_FOR_FUNCTION
        status, answered, content = await execute(*route, headers, expanded, query_params)
        return status, {_REMAPPED.get(name.lower(), name): value for name, value in answered.items()}, content


def _require_role_of_logs() -> None:
    account = module("services.apigateway_v1")._account_settings

    @replaces(resource_handlers("AWS::ApiGateway::Stage"), "create")
    def create_stage(create: Any, logical_id: str, properties: Mapping[str, Any], stack: str) -> Any:
        if "AccessLogSetting" in properties and not (account.get("settings") or {}).get("cloudwatchRoleArn"):
            raise ValueError("CloudWatch Logs role ARN must be set in account settings to enable logging")
        return create(logical_id, properties, stack)
