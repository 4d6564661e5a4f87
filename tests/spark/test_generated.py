"""Random pipelines, run stage by stage, return the rows that DuckDB computes from the same description."""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime

import pytest
import yaml

from slackwater.arrow.dataset import load_manifest
from slackwater.arrow.exchange import read_frame
from slackwater.pipeline.graph import stages
from slackwater.project.project import load_project
from tests.spark.generated import SOURCES, generate
from tests.spark.nyc import Day

SEEDS = (10, 18, 75, 177, 303, 473, 736, 773, 804, 995, 1093, 1175)
"""Chosen such that the rows show a fault of any step, and of any kind of join."""
GENERATED = {seed: generate(seed) for seed in SEEDS}


def written_project(folder, pipeline):
    """Write the project's files and read them, so that they are checked as a user's are."""
    sources = {
        name: {"source": name, "timestamp": {"field": "time_hour"}, "fields": columns, "push": {}}
        for name, columns in SOURCES.items()
    }
    content = pipeline.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for path, definition in {
        **{f"sources/{name}.yaml": source for name, source in sources.items()},
        "pipelines/daily_delays.yaml": content,
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(yaml.safe_dump(definition, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return load_project(folder)


def comparable(value):
    """Return a value such that NaN equals NaN, and timestamps have no timezone."""
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def counted(rows):
    """Return how often each row occurs."""
    return Counter(tuple((name, comparable(value)) for name, value in row.items()) for row in rows)


@pytest.mark.parametrize(
    ("way", "seed"),
    # Stages read other stages in the way of many rows, which reads only the columns that the steps need.
    [
        *(("small" if len(stages(GENERATED[seed].pipeline)) == 1 else "large", seed) for seed in SEEDS),
        ("small", 303),  # three stages
    ],
    indirect=["way"],
)
@pytest.mark.usefixtures("way")
def test_the_stages_return_the_rows_of_the_same_program_in_duckdb(spark, store, stores, tmp_path, seed):
    generated = GENERATED[seed]
    day = Day(store=store, project=written_project(tmp_path / "project", generated.pipeline), date="2013-03-08")
    for source in generated.pipeline.sources:
        day = day.with_events(source, generated.rows[source])
    references = day.freeze().run(spark, stores)
    last = load_manifest(references[generated.pipeline.publish.step].manifest, store=store)
    rows = read_frame(spark, last, stores=stores).toArrow().to_pylist()
    expected = generated.expected()
    assert counted(rows) == counted(expected)


def test_the_pipelines_have_all_steps_and_one_to_three_stages():
    uses = [use for generated in GENERATED.values() for use in generated.pipeline.steps.values()]
    assert {use.step for use in uses} == {"select", "filter", "join", "aggregate", "deduplicate", "sql"}
    joins = {use.parameters["how"] for use in uses if use.step == "join"}
    assert joins == {"inner", "left", "right", "full", "semi", "anti"}
    assert {use.parameters["keep"] for use in uses if use.step == "deduplicate"} == {"latest", "earliest"}
    assert {len(stages(generated.pipeline)) for generated in GENERATED.values()} == {1, 2, 3}
    assert {len(generated.operations) for generated in GENERATED.values()} <= {3, 4, 5, 6}
