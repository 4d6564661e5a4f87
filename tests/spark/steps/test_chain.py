"""Transform steps one after the other, as in a pipeline: each sees the rows that the one before has left."""

from __future__ import annotations

import math

import pytest

from slackwater.arrow.exchange import observed_values
from slackwater.errors import DataError
from slackwater.pipeline.definition import StepUse
from slackwater.spark.run_steps import AppliedSteps
from slackwater.steps.step import StepContext
from tests.spark.frames import frame_of

pytestmark = pytest.mark.usefixtures("interpreted")

ROWS = [
    (1, 1, "AA", 1.0),
    (1, 2, "AA", None),
    (2, 1, "B6", 3.0),
    (3, 1, "B6", math.nan),
    (4, 1, "AA", 900.0),
    (5, 1, "QQ", 5.0),
    (6, 1, "AA", 4.0),
    (None, 1, "AA", 2.0),
]


@pytest.fixture
def records(spark):
    def run(**steps):
        inputs = {
            "flights": frame_of(spark, ROWS, "id int, version int, carrier string, delay double"),
            "airlines": frame_of(spark, [("AA", "American"), ("B6", "JetBlue")], "code string, name string"),
        }
        uses = {
            name: StepUse.model_validate({"step": step, "depends_on": reads, "with": parameters})
            for name, (step, reads, parameters) in steps.items()
        }
        applied = AppliedSteps(uses, inputs, StepContext(spark=spark))
        last = applied[list(uses)[-1]]
        rows = last.toArrow().to_pylist()
        return rows, applied.records(observed_values(last), seconds=0, rows={})

    return run


def test_each_step_reports_rows_and_effect(records):
    referential = {"rule": "referential", "columns": ["carrier"], "reference_columns": ["code"], "severity": "reject"}
    not_null = {"rule": "not_null", "column": "id", "severity": "reject"}
    rows, done = records(
        checked=("data_quality", ["flights", "airlines"], {"rules": [not_null, referential]}),
        filled=("clean_nan", ["checked"], {"columns": {"delay": "median"}}),
        usual=("outliers", ["filled"], {"columns": ["delay"], "method": "iqr", "threshold": 3, "action": "drop"}),
        latest=("deduplicate", ["usual"], {"keys": ["id"], "order_by": ["version"]}),
        named=("lookup", ["latest", "airlines"], {"column": "carrier", "reference_column": "code", "values": ["name"]}),
        total=(
            "aggregate",
            ["named"],
            {
                "group_by": ["name"],
                "measures": {"n": {"function": "count"}, "delay": {"function": "sum", "column": "delay"}},
            },
        ),
    )
    # The median of 1, 3, 900 and 4 is 3.5. The flight with a delay of 900 is dropped.
    assert sorted(rows, key=str) == [
        {"name": "American", "n": 2, "delay": 7.5},
        {"name": "JetBlue", "n": 2, "delay": 6.5},
    ]
    assert [(record.step, list(record.rows_in.values()), record.rows_out) for record in done] == [
        ("data_quality", [8, 2], 6),
        ("clean_nan", [6], 6),
        ("outliers", [6], 5),
        ("deduplicate", [5], 4),
        ("lookup", [4, 2], 4),
        ("aggregate", [4], 2),
    ]
    effects = {record.step: record.effect for record in done}
    assert effects["data_quality"]["rows_rejected"] == 2
    assert [(r["checked"], r["failed"], r["examples"]) for r in effects["data_quality"]["results"]] == [
        (8, 1, [{"id": None}]),
        (8, 1, [{"carrier": "QQ"}]),
    ]
    assert effects["clean_nan"] == {"filled.delay": 2}
    assert effects["outliers"] == {"outliers.delay": 1, "rows_dropped": 1}
    assert effects["lookup"] == {"missing": 0, "examples": []}


def test_a_check_fails_the_run_even_if_no_later_step_needs_its_rows(records):
    not_null = {"rule": "not_null", "column": "id"}
    with pytest.raises(DataError, match=r"steps\.checked: not_null of id failed in 1 of 8 checked rows"):
        records(
            checked=("data_quality", ["flights"], {"rules": [not_null], "key": ["carrier"]}),
            none=("filter", ["checked"], {"where": "false"}),
        )
