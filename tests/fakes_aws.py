"""AWS clients that are not connected: botocore checks each request and each answer against its model of the service."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import deepcopy
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
    # Threads make calls at the same time.
    latest = threading.local()

    def keep(params: dict[str, Any], **_: Any) -> None:
        latest.request = params

    def respond(model: Any, **_: Any) -> tuple[Any, Any]:
        answer = client.fake.answer(f"{service}:{model.name}", latest.request)
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


class DictGlue:
    """Glue's tables in a dictionary, with the lock by `VersionId` that pyiceberg relies on."""

    class exceptions:  # noqa: N801 - as boto3 names it
        class EntityNotFoundException(Exception): ...

        class ConcurrentModificationException(Exception): ...

        class AlreadyExistsException(Exception): ...

    def __init__(self, location):
        self.location, self.tables = location, {}

    def get_database(self, Name):  # noqa: N803
        return {"Database": {"Name": Name, "LocationUri": self.location}}

    def get_table(self, DatabaseName, Name):  # noqa: N803
        if Name not in self.tables:
            raise self.exceptions.EntityNotFoundException
        # A copy, as each answer of Glue: pyiceberg changes the parameters in it before it commits.
        return {"Table": deepcopy(self.tables[Name])}

    def delete_table(self, DatabaseName, Name):  # noqa: N803
        if self.tables.pop(Name, None) is None:
            raise self.exceptions.EntityNotFoundException

    def create_table(self, DatabaseName, TableInput):  # noqa: N803
        if TableInput["Name"] in self.tables:
            raise self.exceptions.AlreadyExistsException
        self.tables[TableInput["Name"]] = TableInput | {"DatabaseName": DatabaseName, "VersionId": "0"}

    def update_table(self, DatabaseName, TableInput, VersionId, SkipArchive=True):  # noqa: N803
        stored = self.tables[TableInput["Name"]]
        if VersionId != stored["VersionId"]:
            raise self.exceptions.ConcurrentModificationException
        self.tables[TableInput["Name"]] = stored | TableInput | {"VersionId": str(int(VersionId) + 1)}
