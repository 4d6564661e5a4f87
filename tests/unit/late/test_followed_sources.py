"""The raw tables and states of which sources a daily check has follow the listing."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace

import pytest

from slackwater.late.monitor import Monitor
from slackwater.sources.counts import Counts
from tests.fakes_check import PIPELINE, World

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("period", ["day", "hour"])
@pytest.mark.parametrize(
    ("pipelines", "checked", "expected"),
    [
        ({"a": ("flights",), "b": ("weather",)}, "a", {"flights"}),
        ({"a": ("flights",), "b": ("weather",)}, "b", {"weather"}),
        ({"a": ("flights",), "b": ("flights",)}, "a", {"flights", "weather"}),
        ({"b": ("flights",), "a": ("flights",)}, "b", {"flights"}),
    ],
)
def test_one_pipeline_looks_after_the_sources_that_no_pipeline_reads(pipelines, checked, expected, period):
    world = World()
    daily = world.project.pipelines[PIPELINE]
    sources = {
        name: source.model_copy(update={"counts": Counts.model_construct()})
        for name, source in world.project.sources.items()
    }
    project = world.project.model_copy(
        update={
            "sources": sources,
            "pipelines": {
                name: daily.model_copy(update={"pipeline": name, "sources": read, "period": period})
                for name, read in pipelines.items()
            },
        }
    )
    updated, folded = set(), set()
    parts = {field.name: None for field in fields(Monitor)} | {
        "checker": SimpleNamespace(project=project),
        "update_table": lambda source, _: updated.add(source),
        "fold_states": lambda source, _: folded.add(source),
    }
    report = SimpleNamespace(as_of="2013-03-13", checked_at=world.time)
    Monitor(**parts).update_tables(report, project.pipelines[checked])
    assert (updated, folded) == (expected, expected)
