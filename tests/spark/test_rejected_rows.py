"""Rows that a step rejects in a run: they are stored with the attempt, and the next run reads its inputs anew."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from slackwater.arrow.dataset import find_reference
from slackwater.client.days.rejected_rows import RejectedRow, rejected_rows
from slackwater.errors import ObjectMissing
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.inputs.manifest import InputManifest, InputObject
from slackwater.runs.record import StageRecord
from slackwater.spark.merge import _added_effects
from slackwater.spark.rejected_rows import rejected_prefix
from tests.spark.nyc import Day
from tests.spark.test_day import FLIGHT, table
from tests.two_stages import two_stage_project

pytestmark = pytest.mark.usefixtures("way")

ROWS = [
    FLIGHT,
    {**FLIGHT, "carrier": None},
    {**FLIGHT, "carrier": None, "arr_delay": -500.0},
    {**FLIGHT, "carrier": "航空", "arr_delay": -500.0},
]


def project_with(*rules: dict[str, Any]):
    """Return the example with a pipeline of two stages, of which the first one rejects rows."""
    steps = {
        "good": {"step": "data_quality", "depends_on": ["flights"], "with": {"rules": list(rules)}, "exchange": True},
        "result": {"step": "sql", "depends_on": ["good"], "with": {"query": "SELECT origin, carrier FROM good"}},
    }
    definition = {
        "pipeline": "daily_delays",
        "timezone": "America/New_York",
        "sources": ["flights"],
        "steps": steps,
        "publish": {"step": "result", "key": ["date", "carrier"]},
    }
    return two_stage_project().model_copy(update={"pipelines": {"daily_delays": Pipeline.model_validate(definition)}})


NOT_NULL = {"rule": "not_null", "column": "carrier", "severity": "reject"}
RANGE = {"rule": "range", "column": "arr_delay", "min": -100, "severity": "reject"}


def rejected(day: Day) -> list[RejectedRow]:
    """Return the rejected rows of a run whose stages have ended."""
    stages = [
        StageRecord(stage=name, reference=find_reference(day.identity.stage_prefix(name), store=day.store))
        for name in ("good", "result")
    ]
    return list(rejected_rows(SimpleNamespace(run=day.identity, stages=stages), store=day.store))


def stored(day: Day) -> list[str]:
    """Return the keys of the files with rejected rows in the raw bucket."""
    return [item.uri for item in day.store.list("s3://raw/rejected/")]


def test_rejected_rows_are_stored_with_the_attempt_and_come_back_when_the_rule_is_changed(spark, store, stores):
    day = Day(store=store, project=project_with(NOT_NULL, RANGE), date="2013-03-08").with_events("flights", ROWS)
    first = table(spark, stores, day.freeze().run(spark, stores)["result"])
    assert [row["carrier"] for row in first] == ["UA"]
    rows = rejected(day)
    assert {(row.pipeline, row.date, row.attempt, row.step) for row in rows} == {
        ("daily_delays", "2013-03-08", 1, "good")
    }
    found = sorted((row.rule, row.reason, str(row.row["carrier"]), row.row["arr_delay"]) for row in rows)
    no_carrier, too_early = "carrier: no value", "arr_delay: less than -100, or NaN"
    assert found == [
        # A row that fails several rules has the first one.
        ("not_null", no_carrier, "None", -500.0),
        ("not_null", no_carrier, "None", 15.0),
        ("range", too_early, "航空", -500.0),
    ]
    # Columns that no later step reads are there, too, and no column of the step itself.
    assert rows[0].row.keys() >= {"origin", "time_hour", "dep_delay"}
    assert not [name for name in rows[0].row if name.startswith("__")]

    second = replace(day, project=project_with(RANGE), attempt=2)
    rows_again = table(spark, stores, second.freeze().run(spark, stores)["result"])
    assert sorted(str(row["carrier"]) for row in rows_again) == ["None", "UA"]
    assert [(row.attempt, row.rule, row.row["arr_delay"]) for row in rejected(second)] == [
        (2, "range", -500.0),
        (2, "range", -500.0),
    ]
    # The rows of the first version are still there.
    assert len(rejected(day)) == len(found)
    folder = "s3://raw/rejected/source=flights/daily_delays/2013-03-08/run"
    assert {uri.rpartition("/")[0] for uri in stored(day)} == {f"{folder}/1/good", f"{folder}/2/good"}
    assert not list(store.list(f"{day.identity.arrow_prefix}rejected/"))


def test_a_run_without_rejected_rows_stores_none(spark, store, stores):
    day = Day(store=store, project=project_with(RANGE), date="2013-03-08").with_events("flights", [FLIGHT])
    day.freeze().run(spark, stores)
    assert rejected(day) == []
    assert stored(day) == []


def test_rows_that_retention_has_removed_are_named(spark, store, stores):
    day = Day(store=store, project=project_with(NOT_NULL), date="2013-03-08").with_events("flights", ROWS)
    day.freeze().run(spark, stores)
    store.delete(stored(day))
    with pytest.raises(ObjectMissing, match="or deleted"):
        rejected(day)


def an_input(source: str, uri: str = "s3://raw/raw/source={}/date=2013-03-08/hour=05/0.parquet") -> InputObject:
    values = {
        "date": "2013-03-08",
        "hour": "05",
        "etag": "e",
        "bytes": 1,
        "rows": 1,
        "arrived": datetime(2013, 3, 8, 6, tzinfo=UTC),
    }
    return InputObject(uri=uri.format(source), source=source, **values)


STEPS = {
    "flights_only": ("flights",),
    "both": ("flights_only", "weather"),
    "of_table": ("days",),
    "mixed": ("of_table", "both"),
    "outside": (),
    "check_flights": ("flights_only", "weather"),
    "check_both": ("both",),
    "check_table": ("of_table",),
    "check_mixed": ("mixed",),
    "check_outside": ("outside",),
}
OWN, ATTEMPT = "s3://exchange/arrow/", "daily_delays/2013-03-08/run/1"


@pytest.mark.parametrize(
    ("step", "keys", "without", "prefix"),
    [
        # The second input of a step is a reference: its rows are not rejected.
        ("check_flights", (), (), "s3://raw/rejected/source=flights/"),
        ("check_flights", ("weather",), (), "s3://raw/rejected/source=flights/"),
        ("check_both", (), (), "s3://raw/rejected/source=flights/"),
        ("check_both", ("weather",), (), "s3://raw/rejected/source=weather/"),
        ("check_both", ("weather", "flights"), (), "s3://raw/rejected/source=flights/"),
        ("check_both", (), ("flights",), "s3://raw/rejected/source=weather/"),
        ("check_mixed", ("weather",), (), "s3://raw/rejected/source=weather/"),
        # A step without inputs may read any source.
        ("check_outside", ("weather",), (), "s3://raw/rejected/source=weather/"),
        ("check_outside", ("weather",), ("flights", "weather"), f"{OWN}{{}}/rejected/check_outside/"),
        ("check_table", ("flights", "weather"), (), f"{OWN}{{}}/rejected/check_table/"),
    ],
)
def test_rejected_rows_are_where_the_objects_of_their_source_are(step, keys, without, prefix):
    definition = {
        "pipeline": "daily_delays",
        "timezone": "UTC",
        "sources": ["flights", "weather"],
        "tables": {"days": {"table": "others", "days": [0, 0]}},
        "steps": {
            name: {"step": "data_quality", "depends_on": list(reads), "with": {}} for name, reads in STEPS.items()
        },
        "publish": {"step": "both", "key": ["date"]},
    }
    objects = [an_input(name) for name in ("flights", "weather") if name not in without]
    objects.append(an_input("days", "s3://warehouse/warehouse/others/metadata/1.json"))
    manifest = InputManifest(
        pipeline="daily_delays", date="2013-03-08", frozen_at=datetime(2013, 3, 9, tzinfo=UTC), objects=tuple(objects)
    )
    run = Day(store=None, project=None, date="2013-03-08").identity
    source_keys = dict.fromkeys(keys, "arn:aws:kms:eu-west-1:123456789012:key/0a")
    found = rejected_prefix(run, Pipeline.model_validate(definition), step, manifest=manifest, source_keys=source_keys)
    assert found == (prefix.format(ATTEMPT) if prefix.startswith(OWN) else f"{prefix}{ATTEMPT}/{step}/")


def test_added_objects_have_rejected_rows_of_their_own():
    one, other = {"rows_rejected": 2, "rejected_rows": ["a"]}, {"rows_rejected": 1, "rejected_rows": ["b"]}
    assert _added_effects(one, other) == {"rows_rejected": 3, "rejected_rows": ["a", "b"]}
    assert _added_effects({"rows_rejected": 0}, other) == other
    assert _added_effects({"rows_rejected": 0}, {"rows_rejected": 0}) == {"rows_rejected": 0}
