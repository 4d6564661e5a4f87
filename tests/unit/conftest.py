"""Fixtures that several files of unit tests share: scripted web servers on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes_web import Web


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
