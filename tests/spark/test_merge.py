"""Stages that compute added objects alone, compared with DuckDB and with runs of the whole day."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from slackwater.arrow.reference import reference_uri
from slackwater.errors import DataError
from slackwater.pipeline.graph import stages
from slackwater.runs.inputs.manifest import read_manifest
from slackwater.spark.merge import find_earlier_rows, stage_merges
from tests.fakes_spark import FolderStore
from tests.spark.large_day import (
    AGGREGATE,
    CHAIN,
    CHECKED,
    COLUMNS,
    GROUPINGS,
    MEASURES,
    PIPELINE,
    SHOPS,
    SOURCE,
    TOTALS,
    LargeDay,
    project_of,
)


@pytest.fixture
def day(spark, stores, tmp_path):
    return LargeDay(spark, stores, project_of({**CHAIN, "grouped": AGGREGATE}), tmp_path / "raw" / "source=sales")


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("way", "grouping"),
    [*(("small", grouping) for grouping in GROUPINGS), ("large", "aggregate"), ("large", "total")],
    indirect=["way"],
)
def test_three_late_files_in_a_row_give_the_rows_and_counts_of_the_whole_day(day, grouping):
    day.project = project_of({**CHAIN, "grouped": GROUPINGS[grouping]})
    duckdb_rows = [TOTALS, ""] if grouping == "total" else []
    day.add(2000, shops=7)
    first = day.run()
    assert (first.is_merged, day.rows(first)) == (False, day.expected(*duckdb_rows))
    for rows, shops in ((100, 7), (1, 7), (40, 12)):
        earlier = day.records[-1].run.stage_prefix("grouped")
        day.add(rows, shops=shops)
        merged = day.run()
        assert (merged.is_merged, day.rows(merged)) == (True, day.expected(*duckdb_rows))
        assert day.manifest(merged).parents == (f"{earlier}manifest.json",)
    whole = day.compute(day.start(force=True))
    assert (whole.is_merged, day.rows(whole)) == (False, day.rows(merged))
    assert day.counts(merged) == day.counts(whole)
    effect = day.counts(merged)[0].effect
    assert effect["rejected_rows"] == effect["rows_rejected"] > 0
    assert day.manifest(merged).arrow_schema == day.manifest(whole).arrow_schema


def test_examples_are_of_failed_rows_of_all_objects(day):
    day.add(1000)
    day.run()
    day.add(100, shops=10)
    checked, *_ = day.manifest(day.run()).steps
    assert [bool(result["examples"]) for result in checked.effect["results"]] == [True, True, False, True]
    numbers, prices, _, shops = ([*result["examples"]] for result in checked.effect["results"])
    assert sorted(example["n"] for example in numbers) == [-2, -1]
    assert {example["price"] for example in prices} <= {None, "NaN"}
    assert [example["shop"] for example in shops] == ["shop 9"]


def test_added_rows_that_fail_a_rule_fail_the_run_and_leave_no_reference(day):
    rule = {"rule": "range", "column": "n", "max": 97}
    late = {"step": "data_quality", "depends_on": ["sales"], "with": {"rules": [rule]}}
    day.add(1000)
    duckdb.execute(f"COPY (FROM '{day.folder}/0.parquet' WHERE n < 50) TO '{day.folder}/fine.parquet'")
    (day.folder / "fine.parquet").rename(day.folder / "0.parquet")
    day.project = project_of({"checked": late, "grouped": {**AGGREGATE, "depends_on": ["checked"]}})
    day.run()
    day.add(100, shops=3)
    duckdb.execute(
        f"COPY (SELECT * REPLACE (98::BIGINT AS n) FROM '{day.folder}/1.parquet') TO '{day.folder}/bad.parquet'"
    )
    (day.folder / "bad.parquet").rename(day.folder / "1.parquet")
    run = day.start()
    with pytest.raises(DataError, match="range of n failed in 100 of 100 checked rows"):
        day.compute(run)
    assert not day.stores().path(reference_uri(run.stage_prefix("grouped"))).exists()


@pytest.mark.parametrize("lost", [["reference.json"], ["reference.json", "manifest.json"]])
def test_a_job_that_is_repeated_after_a_crash_between_writes_merges_once(day, lost):
    day.add(1000)
    day.run()
    day.add(100)
    run = day.start()
    day.compute(run)
    day.stores().delete([f"{run.stage_prefix('grouped')}{name}" for name in lost])
    again = day.compute(run)
    assert (again.is_merged, day.rows(again)) == (True, day.expected())


FITTING: dict[str, dict[str, Any]] = {"checked": CHECKED, "grouped": {**AGGREGATE, "depends_on": ["checked"]}}


def grouping(**more: Any) -> dict[str, Any]:
    return {**FITTING, "grouped": {**FITTING["grouped"], "with": {**FITTING["grouped"]["with"], **more}}}


def measure(function: str, **more: Any) -> dict[str, Any]:
    return grouping(measures={"n": {"function": function, "column": "n", **more}})


def query(text: str) -> dict[str, Any]:
    return {**FITTING, "grouped": {"step": "sql", "depends_on": ["checked"], "with": {"query": text}}}


def checking(rule: dict[str, Any], *inputs: str) -> dict[str, Any]:
    return {**FITTING, "checked": {**CHECKED, "depends_on": ["sales", *inputs], "with": {"rules": [rule]}}}


def step_before(step: str, *inputs: str, **parameters: Any) -> dict[str, Any]:
    before = {"step": step, "depends_on": ["sales", *inputs], "with": parameters}
    return {"before": before, "grouped": {**AGGREGATE, "depends_on": ["before"]}}


OTHER_INPUT = [SOURCE, SHOPS]
WITH_IDS = [{**SOURCE, "event_id": "shop"}]
WITH_GENERATED_IDS = [{**SOURCE, "push": {"buffer": "queue"}}]
NOT_FITTING = {
    "unique": (checking({"rule": "unique", "columns": ["shop"], "severity": "warn"}), [SOURCE]),
    "row_count": (checking({"rule": "row_count", "min": 1}), [SOURCE]),
    "freshness": (checking({"rule": "freshness", "column": "sold", "hours": 24}), [SOURCE]),
    "referential": (checking({"rule": "referential", "columns": ["shop"]}, "shops"), OTHER_INPUT),
    "deduplicate": (step_before("deduplicate", keys=["shop"], order_by=["sold"]), [SOURCE]),
    "outliers": (step_before("outliers", columns=["n"], method="iqr", action="drop"), [SOURCE]),
    "clean_nan": (step_before("clean_nan", columns={"price": "drop"}), [SOURCE]),
    "join": (step_before("join", "shops", keys=["shop"]), OTHER_INPUT),
    "lookup": (step_before("lookup", "shops", keys=["shop"], columns=["day"]), OTHER_INPUT),
    "condition that differs between runs": (step_before("filter", where="rand() < 0.5"), [SOURCE]),
    "window": (step_before("sql", query="SELECT *, sum(n) OVER (ORDER BY sold) AS s FROM sales"), [SOURCE]),
    "avg": (query("SELECT shop, avg(n) AS n FROM checked GROUP BY shop"), [SOURCE]),
    "mean": (measure("mean"), [SOURCE]),
    "stddev": (measure("stddev"), [SOURCE]),
    "median": (measure("median"), [SOURCE]),
    "quantile": (measure("quantile", q=0.9), [SOURCE]),
    "count_distinct": (measure("count_distinct"), [SOURCE]),
    "first": (measure("first", order_by="sold"), [SOURCE]),
    "no grouping": ({"checked": CHECKED}, [SOURCE]),
    "two groupings": (
        {**FITTING, "again": {"step": "aggregate", "depends_on": ["grouped"], "with": AGGREGATE["with"]}},
        [SOURCE],
    ),
    "event ids": (FITTING, WITH_IDS),
    "generated ids": (FITTING, WITH_GENERATED_IDS),
}


@pytest.mark.parametrize("reason", NOT_FITTING)
def test_a_stage_that_needs_all_rows_computes_the_whole_day(day, reason):
    steps, sources = NOT_FITTING[reason]
    day.project = project_of(steps, tuple(sources))
    (stage,) = stages(day.project.pipeline(PIPELINE))
    assert stage_merges(day.project, PIPELINE, stage) is None


def test_the_steps_of_the_cases_above_fit_without_what_they_are_named_for(day):
    day.project = project_of(FITTING)
    (stage,) = stages(day.project.pipeline(PIPELINE))
    assert stage_merges(day.project, PIPELINE, stage) == ["key", "sum", "sum", "sum", "sum", "min", "max", "max"]


def test_a_whole_day_is_computed_although_there_are_earlier_rows(day):
    day.project = project_of(
        {
            **CHAIN,
            "grouped": {
                **AGGREGATE,
                "with": {
                    **AGGREGATE["with"],
                    "measures": {**MEASURES, "mean": {"function": "mean", "column": "price"}},
                },
            },
        }
    )
    day.add(1000)
    day.run()
    day.add(100)
    run = day.start()
    assert day.stores().path(f"{run.prefix}earlier.json").exists()
    reference = day.compute(run)
    assert (reference.is_merged, day.rows(reference)) == (False, day.expected(f"{COLUMNS}, avg(price) AS mean"))


def test_only_the_first_run_of_a_day_looks_for_no_earlier_rows(day):
    (stage,) = stages(day.project.pipeline(PIPELINE))

    def earlier_rows(store):
        run = day.start()
        inputs = read_manifest(day.stores(), run.manifest)
        return find_earlier_rows(run, day.project, stage, inputs, store=store)

    day.add(1000)
    assert earlier_rows(None) is None
    day.run()
    day.add(10)
    assert earlier_rows(day.stores()) is not None
    assert earlier_rows(FolderStore(day.folder)) is None
