"""Amazon MWAA's InvokeRestApi, for the Airflow that `slackwater airflow up` runs on this machine.

The emulator would forward it to a container that it has started.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from slackwater.local import layout
from slackwater.local.emulator import Response, module, replaces

# MWAA's own limits.
_SECONDS = 10
_PATH = 64
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def register(file: Path) -> None:
    """Answer InvokeRestApi for the Airflow that `file` describes while it runs: its `url`, `user` and `password`."""

    @replaces(module("services.mwaa"), "_invoke_rest_api")
    async def invoke_rest_api(_: Any, _method: str, path: str, _headers: Any, body: bytes, *_query: Any) -> Any:
        name, request = path.rpartition("/")[2], json.loads(body)
        # Airflow's answer takes seconds, and its tasks call this cloud meanwhile.
        return await module("core.concurrency").run_offloop(invoke, file, name, request)


def invoke(file: Path, name: str, request: Mapping[str, Any]) -> Response:
    """Return MWAA's answer to a request for the environment of this name."""
    method, path = request.get("Method", ""), request.get("Path", "")
    if not 1 <= len(path) <= _PATH:
        return _error(HTTPStatus.BAD_REQUEST, "ValidationException", message=f"Path: at most {_PATH} characters")
    if name != layout.AIRFLOW or not file.exists():
        return _error(HTTPStatus.NOT_FOUND, "ResourceNotFoundException", message=f"Environment {name} not found")
    api = json.loads(file.read_text(encoding="utf-8"))
    try:
        # Without a password, Airflow signs in everybody.
        login = {"username": api["user"], "password": api["password"]} if api["password"] else None
        token = _call(f"{api['url']}/auth/token", "POST" if login else "GET", login, {})[1]["access_token"]
        authorization = {"Authorization": f"Bearer {token}"}
        status, answer = _call(f"{api['url']}/api/v2{path}", method, request.get("Body"), authorization)
    except (OSError, KeyError, TypeError, ValueError) as error:
        return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerException", message=f"Airflow: {error}")
    document = {"RestApiStatusCode": status, "RestApiResponse": answer}
    if status < HTTPStatus.BAD_REQUEST:
        return HTTPStatus.OK, {"Content-Type": "application/json"}, json.dumps(document).encode()
    kind = "RestApiClientException" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "RestApiServerException"
    return _error(HTTPStatus.BAD_REQUEST, kind, **document)


def _call(url: str, method: str, body: object, headers: Mapping[str, str]) -> tuple[int, Any]:
    """Return status and JSON document of Airflow's answer. Raises `OSError` and `ValueError`."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310 - the URL of our own Airflow
        url, data, {"Content-Type": "application/json", **headers}, method=method
    )
    try:
        with _OPENER.open(request, timeout=_SECONDS) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def _error(status: HTTPStatus, code: str, **members: object) -> Response:
    headers = {"Content-Type": "application/json", "x-amzn-errortype": code}
    return status, headers, json.dumps({"__type": code, **members}).encode()
