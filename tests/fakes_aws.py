"""AWS clients that are not connected: botocore checks each request and each answer against its model of the service."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import boto3
from botocore.validate import validate_parameters

Answer = dict[str, Any] | str | Callable[[dict[str, Any]], Any]
"""An answer, the code of an error, or a function of the request that returns one of them."""


class FakeAws:
    """Clients by service whose calls are answered by `service:Operation`, such as `lambda:ListFunctions`."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        self.answers = answers

    def client(self, service: str) -> Any:
        """Return the client of a service. A call without an answer is an error of the test."""
        client = _client(service)
        client.fake = self
        return client

    def answer(self, operation: str, request: dict[str, Any]) -> Any:
        answer = self.answers[operation]
        return answer(request) if callable(answer) else answer


@cache
def _client(service: str) -> Any:
    """Return one client for all tests: loading the model of a service takes long."""
    session = boto3.session.Session("test", "test", region_name="eu-west-1")
    client = session.client(service)
    requests: dict[str, dict[str, Any]] = {}

    def keep(params: dict[str, Any], model: Any, **_: Any) -> None:
        requests[model.name] = params

    def respond(model: Any, **_: Any) -> tuple[Any, Any]:
        answer = client.fake.answer(f"{service}:{model.name}", requests[model.name])
        if isinstance(answer, str):
            return SimpleNamespace(status_code=400), {"Error": {"Code": answer, "Message": "no"}}
        validate_parameters(answer, model.output_shape)
        return SimpleNamespace(status_code=200), answer

    client.meta.events.register(f"provide-client-params.{model_id(client)}", keep)
    client.meta.events.register(f"before-call.{model_id(client)}", respond)
    return client


def model_id(client: Any) -> str:
    """Return the name of the service in botocore's events."""
    return str(client.meta.service_model.service_id.hyphenize())
