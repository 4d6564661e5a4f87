"""Events of OpenLineage: each fits the published schemas, and says what is stored about the run."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from slackwater.lineage.datasets import _VERSIONS, assertions
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.record import RunState
from tests.fakes_check import PIPELINE
from tests.lineage_runs import GLUE, OF, RESULTS, SCHEMAS, a_step, validated
from tests.two_stages import two_stage_project

pytestmark = pytest.mark.unit


def short(event: dict[str, Any]) -> tuple[str, str, list[str], list[str]]:
    inputs, outputs = ([each["name"] for each in event[name]] for name in ("inputs", "outputs"))
    return event["eventType"], event["job"]["name"], inputs, outputs


def test_the_versions_of_facets_are_those_of_the_published_schemas():
    published = {name: schema["$id"].split("/")[-2] for name, schema in SCHEMAS.items() if name != "OpenLineage"}
    assert published == _VERSIONS
    assert all("licence Apache-2.0" in schema["$comment"] for schema in SCHEMAS.values())


def test_a_run_that_starts_says_what_it_reads(runs):
    [event] = validated(runs.events(runs.record_of(runs.start())).started())
    names = ["raw/source=flights", "raw/source=weather"]
    assert short(event) == ("START", PIPELINE, names, [f"table/acme_warehouse/{PIPELINE}"])
    assert event["outputs"][0]["namespace"] == GLUE
    flights = event["inputs"][0]
    assert flights["namespace"] == "s3://raw"
    statistics = flights["inputFacets"]["inputStatistics"]
    assert (statistics["rowCount"], statistics["size"], statistics["fileCount"]) == (20, 20, 2)
    partitions = flights["inputFacets"]["subset"]["inputCondition"]["partitions"]
    assert [each["dimensions"] for each in partitions] == [{"date": OF, "hour": "12"}, {"date": OF, "hour": "13"}]
    fields = {field["name"]: field["type"] for field in flights["facets"]["schema"]["fields"]}
    assert fields == {name: str(kind) for name, kind in runs.project.sources["flights"].columns.items()}
    times = event["run"]["facets"]["nominalTime"]
    assert times["nominalStartTime"] == "2013-03-08T05:00:00.000+00:00"  # midnight in New York
    assert times["nominalEndTime"] == "2013-03-09T05:00:00.000+00:00"


def test_a_table_with_the_name_of_a_source_has_not_its_schema(runs, daily):
    definition = {
        "pipeline": "copy",
        "timezone": "America/New_York",
        "tables": {"flights": {"table": PIPELINE}},
        "steps": {
            "rows": {"step": "sql", "depends_on": ["flights"], "with": {"query": "SELECT origin, flights FROM flights"}}
        },
        "publish": {"step": "rows", "key": ["date", "origin"]},
    }
    pipelines = {**runs.project.pipelines, "copy": Pipeline.model_validate(definition)}
    runs.project = runs.project.model_copy(update={"pipelines": pipelines})
    [event] = validated(runs.events(runs.record_of(runs.start("copy"))).started())
    [table] = event["inputs"]
    assert table["name"] == f"table/acme_warehouse/{PIPELINE}"
    assert "schema" not in table["facets"]


def test_a_published_run_says_what_it_has_written(runs, daily):
    *of_stage, event = validated(runs.events(daily).ended())
    outputs = [f"table/acme_warehouse/{PIPELINE}", "files/exports/x.csv", "reports.public.delays"]
    assert short(event) == ("COMPLETE", PIPELINE, ["raw/source=flights", "raw/source=weather"], outputs)
    table, file, loaded = event["outputs"]
    assert table["facets"]["version"]["datasetVersion"] == daily.run.tag
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 3
    [partition] = table["outputFacets"]["subset"]["outputCondition"]["partitions"]
    assert (partition["dimensions"], partition["identifier"]) == ({"date": OF}, daily.run.tag)
    fields = [(field["name"], field["type"]) for field in table["facets"]["schema"]["fields"]]
    assert fields == [("origin", "string"), ("carrier", "string"), ("flights", "int64"), ("date", "date32[day]")]
    assert (file["namespace"], loaded["namespace"]) == ("s3://warehouse", "postgres://db.example:5432")
    assert file["outputFacets"]["outputStatistics"]["size"] == 99
    assert event["eventTime"] == daily.ended_at.isoformat(timespec="milliseconds")
    assert [each["eventType"] for each in of_stage] == ["START", "COMPLETE"]


def test_a_stage_is_a_job_of_its_own_within_the_run(runs, daily):
    start, end, of_run = validated(runs.events(daily).ended())
    name = f"{PIPELINE}.delays_by_carrier"
    assert short(end)[:2] == ("COMPLETE", name)
    assert start["run"]["runId"] == end["run"]["runId"] != of_run["run"]["runId"]
    parent = end["run"]["facets"]["parent"]
    assert (parent["run"]["runId"], parent["job"]["name"]) == (of_run["run"]["runId"], PIPELINE)
    assert end["outputs"][0]["name"] == f"arrow/{PIPELINE}/delays_by_carrier"
    assert end["outputs"][0]["outputFacets"]["outputStatistics"]["fileCount"] == 1
    began, ended = (datetime.fromisoformat(each["eventTime"]) for each in (start, end))
    assert (ended - began).total_seconds() == 1.25


def test_a_check_of_an_input_is_an_assertion_about_it(runs, daily):
    *_, event = validated(runs.events(daily).ended())
    flights, weather = event["inputs"]
    assert "dataQualityAssertions" not in weather["inputFacets"]
    found = flights["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert [(each["assertion"], each.get("column"), each["success"], each["severity"]) for each in found] == [
        ("range", "distance", True, "error"), ("allowed", "origin", False, "warn"), ("unique", None, True, "warn"),
    ]  # fmt: skip
    assert (found[1]["actual"], found[2]["name"]) == ("2 of 10 failed", "checked_flights unique carrier flight")


def test_a_rule_that_refuses_its_input_is_an_error():
    result = {"rule": "row_count", "columns": [], "severity": "invalidate", "failed": 1, "checked": 7}
    step = a_step("checked", "data_quality", {"flights": 7}, effect={"results": [result]})
    [found] = assertions(step)
    assert (found["success"], found["severity"]) == (False, "error")


def test_a_check_of_the_rows_of_a_step_is_an_assertion_of_its_stage(runs):
    run = runs.start()
    effect = {"results": RESULTS[:1]}
    runs.store_stages(
        run,
        a_step("joined", "join", {"flights": 1, "weather": 1}),
        a_step("delays_by_carrier", "data_quality", {"joined": 1}, effect=effect),
    )
    *_, end, of_run = validated(runs.events(runs.publish_run(run)).ended())
    by_name = {each["name"]: each["inputFacets"] for each in end["inputs"]}
    assert by_name.keys() == {"raw/source=flights", "raw/source=weather", f"arrow/{PIPELINE}/joined"}
    assert len(by_name[f"arrow/{PIPELINE}/joined"]["dataQualityAssertions"]["assertions"]) == 1
    assert all("dataQualityAssertions" not in each["inputFacets"] for each in of_run["inputs"])


def test_what_one_run_writes_is_what_the_next_one_reads(runs, daily):
    week = runs.publish_run(runs.start("weekly_delays"))
    *_, written = validated(runs.events(daily).ended())
    *_, event = validated(runs.events(week).ended())
    [read], table = event["inputs"], written["outputs"][0]
    assert (read["namespace"], read["name"]) == (table["namespace"], table["name"])
    assert read["facets"]["version"]["datasetVersion"] == table["facets"]["version"]["datasetVersion"]
    [partition] = read["inputFacets"]["subset"]["inputCondition"]["partitions"]
    assert partition == table["outputFacets"]["subset"]["outputCondition"]["partitions"][0]
    lineage = event["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert {
        name: [(each["field"], each["transformations"][0]["subtype"]) for each in of["inputFields"]]
        for name, of in lineage.items()
    } == {
        "carrier": [("carrier", "IDENTITY")],
        "flights": [("flights", "AGGREGATION")],
        "cancelled": [("cancelled", "AGGREGATION")],
        "days": [("date", "AGGREGATION")],
    }
    assert {each["name"] for of in lineage.values() for each in of["inputFields"]} == {table["name"]}


def test_columns_come_from_those_of_the_inputs_through_all_steps(runs, daily):
    *_, event = validated(runs.events(daily).ended())
    lineage = event["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert {
        name: [(each["name"].rpartition("=")[2], each["field"]) for each in of["inputFields"]]
        for name, of in lineage.items()
    } == {
        "origin": [("flights", "origin")],
        "carrier": [("flights", "carrier")],
        # The number of flights comes from no column.
        "cancelled": [("flights", "dep_time")],
        "dep_delay_mean": [("flights", "dep_delay")],
        "dep_delay_p90": [("flights", "dep_delay")],
        "on_time_share": [("flights", "arr_delay")],
        "wind_speed_mean": [("weather", "wind_speed")],
        "precip_mean": [("weather", "precip")],
    }


def test_another_definition_than_that_of_the_run_says_nothing_about_it(runs, daily):
    daily_delays = runs.project.pipelines[PIPELINE]
    publish = daily_delays.publish.model_copy(update={"key": ("date",)})
    changed = {**runs.project.pipelines, PIPELINE: daily_delays.model_copy(update={"publish": publish})}
    runs.project = runs.project.model_copy(update={"pipelines": changed})
    *_, event = validated(runs.events(daily).ended())
    assert event["outputs"][0]["facets"].keys() == {"version", "schema"}
    assert all("schema" not in each["facets"] for each in event["inputs"])


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("DataError: 3 rows", "FAIL"),
        (f"DataError: {'Flüge ☃ ' * 500}", "FAIL"),
        ("its execution ended without recording an outcome", "ABORT"),
        ("Stopped: it was stopped with slackwater stop", "ABORT"),
    ],
)
def test_a_run_that_has_not_published_says_why(runs, error, kind):
    run = runs.start()
    runs.store_stages(run, a_step("delays_by_carrier", "join", {"flights": 1}))
    failed = {"state": RunState.FAILED, "ended_at": runs.now(), "error": error}
    *of_stage, event = validated(runs.events(runs.record_of(run).model_copy(update=failed)).ended())
    assert (event["eventType"], event["run"]["facets"]["errorMessage"]["message"]) == (kind, error)
    assert [output["facets"] for output in event["outputs"]] == [{}]
    # What has finished has finished.
    assert [each["eventType"] for each in of_stage] == ["START", "COMPLETE"]


FAILED = {"state": RunState.FAILED, "error": "DataError: distance"}


def test_the_stage_that_was_running_has_failed_with_the_run(runs):
    run = runs.start()
    stage, of_run = validated(runs.events(runs.record_of(run).model_copy(update=FAILED)).ended())
    sources = ["raw/source=flights", "raw/source=weather"]
    name = f"{PIPELINE}.delays_by_carrier"
    assert short(stage) == ("FAIL", name, sources, [f"arrow/{PIPELINE}/delays_by_carrier"])
    assert stage["run"]["facets"]["errorMessage"]["message"] == "DataError: distance"
    assert stage["run"]["facets"]["parent"]["run"]["runId"] == of_run["run"]["runId"]


def test_of_two_stages_the_second_one_has_failed_if_the_first_one_has_finished(runs):
    runs.project = two_stage_project()
    run = runs.start()
    first = a_step("flights_with_weather", "join", {"flights": 1, "weather": 1})
    for steps, failed in (((), "flights_with_weather"), ((first,), "delays_by_carrier")):
        if steps:
            runs.store_stages(run, *steps)
        events = validated(runs.events(runs.record_of(run).model_copy(update=FAILED)).ended())
        kinds = [(event["eventType"], event["job"]["name"].rpartition(".")[2]) for event in events]
        finished = [(kind, step.name) for step in steps for kind in ("START", "COMPLETE")]
        assert kinds == [*finished, ("FAIL", failed), ("FAIL", PIPELINE)]
    assert [each["name"] for each in events[-2]["inputs"]] == [f"arrow/{PIPELINE}/flights_with_weather"]


def test_which_of_two_parallel_stages_has_failed_is_not_said(runs):
    runs.project = two_stage_project()
    pipeline = runs.project.pipelines[PIPELINE]
    both = {
        name: pipeline.steps[name].model_copy(update={"exchange": True})
        for name in ("checked_flights", "hourly_weather")
    }
    pipeline = pipeline.model_copy(update={"steps": {**pipeline.steps, **both}})
    runs.project = runs.project.model_copy(update={"pipelines": {PIPELINE: pipeline}})
    [event] = validated(runs.events(runs.record_of(runs.start()).model_copy(update=FAILED)).ended())
    assert event["job"]["name"] == PIPELINE


def test_a_run_is_identified_by_its_attempt_whatever_is_repeated(runs, daily):
    first, again = (runs.events(daily).ended() for _ in range(2))
    assert first == again
    UUID(first[-1]["run"]["runId"])
    other = runs.record_of(runs.start(force=True))
    ids = {event["run"]["runId"] for event in (*first, *runs.events(other).started())}
    assert len(ids) == 3


def test_a_stage_that_an_earlier_attempt_has_computed_is_not_sent_again(runs, daily):
    kept = daily.model_copy(update={"run": daily.run.model_copy(update={"prefix": "s3://exchange/runs/other/"})})
    [event] = validated(runs.events(kept).ended())
    assert event["job"]["name"] == PIPELINE
    assert event["outputs"][0]["facets"]["schema"]["fields"]


def test_a_manifest_that_is_gone_leaves_the_inputs_out(runs, daily):
    runs.store.delete([daily.run.manifest])
    *_, event = validated(runs.events(daily).ended())
    assert event["inputs"] == []
    assert "columnLineage" not in event["outputs"][0]["facets"]


def test_an_hour_is_a_partition_of_date_and_hour(runs, daily):
    hourly = daily.model_copy(update={"run": daily.run.model_copy(update={"date": "2013-03-08T12"})})
    *_, event = validated(runs.events(hourly).ended())
    [partition] = event["outputs"][0]["outputFacets"]["subset"]["outputCondition"]["partitions"]
    assert partition["dimensions"] == {"date": OF, "hour": "12"}
    assert [field["name"] for field in event["outputs"][0]["facets"]["schema"]["fields"]][-2:] == ["date", "hour"]
    assert event["run"]["facets"]["nominalTime"]["nominalStartTime"] == "2013-03-08T12:00:00.000+00:00"


def test_the_events_of_a_large_day_stay_small(runs):
    for number in range(2000):
        runs.add("flights", OF, f"{number % 24:02}", name=f"n{number}")
    [event] = validated(runs.events(runs.record_of(runs.start())).started())
    assert event["inputs"][0]["inputFacets"]["inputStatistics"]["fileCount"] > 1500
    assert len(json.dumps(event)) < 10_000
