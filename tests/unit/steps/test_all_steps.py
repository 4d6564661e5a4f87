"""The example with all steps leaves none out: a new step is added to one of its pipelines."""

from __future__ import annotations

import pkgutil
from pathlib import Path

import pytest
import yaml

from slackwater.steps import extract, load, transform

pytestmark = pytest.mark.unit

PIPELINES = Path(__file__).resolve().parents[3] / "examples" / "all_steps" / "pipelines"


def test_the_example_uses_every_step():
    definitions = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in PIPELINES.glob("*.yaml")]
    used = {use["step"] for one in definitions for use in [*one["steps"].values(), *one["load"].values()]}
    steps = {module.name for package in (extract, transform, load) for module in pkgutil.iter_modules(package.__path__)}
    assert steps - used == set()
    assert used - steps == {"after_commission"}, "the example also uses a step of its own package, and only that one"
