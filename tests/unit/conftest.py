"""Fixtures that several files of unit tests share: commands, scripted web servers on loopback, and DynamoDB."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from slackwater.cli.main import run
from tests import dynamodb_local
from tests.fakes_dynamodb import LocalDynamoDB
from tests.fakes_web import Web


@pytest.fixture(autouse=True)
def metric_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the namespace of metrics, as the environment of a function does."""
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Slackwater/of-tests")


@pytest.fixture
def recursion_limit() -> Iterator[int]:
    """Set Python's default, which libraries raise in the processes of other tests, and return it."""
    limit, default = sys.getrecursionlimit(), 1000
    sys.setrecursionlimit(default)
    yield default
    sys.setrecursionlimit(limit)


@pytest.fixture
def printed_by(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command that ends with `code`, and return what it has printed: `out` and `err`."""

    def printed_by(*arguments: str, code: int = 0) -> Any:
        assert run(arguments) == code
        return capsys.readouterr()

    return printed_by


@pytest.fixture
def document_of(printed_by: Callable[..., Any]) -> Callable[..., Any]:
    """Run a command with `--json`, and return its document."""
    return lambda *arguments, code=0: json.loads(printed_by(*arguments, "--json", code=code).out)


@pytest.fixture(scope="session")
def dynamodb_local_endpoint() -> Iterator[str]:
    """The endpoint of AWS's DynamoDB Local."""
    if not dynamodb_local.is_fetched():
        pytest.skip("no DynamoDB Local here: `make unit` fetches it for Linux on x86-64")
    with dynamodb_local.serve() as endpoint:
        yield endpoint


@pytest.fixture(scope="session", params=["local cloud", "DynamoDB Local"])
def each_dynamodb(request: pytest.FixtureRequest) -> LocalDynamoDB:
    """The DynamoDB of the local cloud, and AWS's own second implementation."""
    if request.param == "local cloud":
        return LocalDynamoDB()
    return LocalDynamoDB(request.getfixturevalue("dynamodb_local_endpoint"))


@pytest.fixture
def web() -> Iterator[Web]:
    """A server with scripted responses."""
    with Web() as web:
        yield web


@pytest.fixture
def other() -> Iterator[Web]:
    """Another origin."""
    with Web() as other:
        yield other


@pytest.fixture
def waits() -> list[float]:
    """How long a connector would have slept."""
    return []
