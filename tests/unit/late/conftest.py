"""Fixtures of the tests of late data."""

from __future__ import annotations

import pytest

from tests.fakes_check import World, five_days
from tests.models import InlinePool


@pytest.fixture
def world() -> World:
    return five_days()


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the checks of a model call everything in one thread."""
    checks = ("arrival_checks", "silences", "checker", "passed_over", "late_rejects")
    for module in (*(f"late.check.{name}" for name in checks), "runs.inputs.listing"):
        monkeypatch.setattr(f"slackwater.{module}.ThreadPoolExecutor", InlinePool)
