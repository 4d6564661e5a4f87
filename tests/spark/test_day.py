"""The example's two stages in one process, compared with DuckDB's reading of the package's CSVs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from slackwater.arrow.dataset import load_manifest
from slackwater.arrow.exchange import read_frame
from slackwater.arrow.reference import manifest_uri
from slackwater.errors import DataError, DefinitionError, InputError, InputInvalid, ObjectMissing, UnknownName
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import stages
from slackwater.runs.attempt_files import invalid_input_uri, publication_uri
from slackwater.runs.invalid_input import InvalidInput
from slackwater.runs.period import day_of
from slackwater.spark.stage import run_stage, run_stage_job
from slackwater.steps import registry
from slackwater.steps.files import ProjectFiles
from slackwater.steps.spark_errors import explain
from slackwater.steps.step import Parameters, StepContext, Transform
from tests.checking import check_steps
from tests.independent import assert_same_table, daily_delays
from tests.spark.nyc import MANIFEST_URI, Day, nyc_day
from tests.two_stages import two_stage_project

pytestmark = pytest.mark.usefixtures("way")

HOUR = datetime(2013, 3, 8, 15, tzinfo=UTC)
FLIGHT = {"carrier": "UA", "origin": "EWR", "time_hour": HOUR, "dep_time": 1000, "dep_delay": 4.0, "arr_delay": 15.0}
WEATHER = {"origin": "EWR", "time_hour": HOUR, "wind_speed": 10.0, "precip": 0.5}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("csv")


@pytest.fixture
def day(store) -> Day:
    return Day(store=store, project=two_stage_project(), date="2013-03-08")


def table(spark, stores, reference) -> list[dict[str, Any]]:
    manifest = load_manifest(reference.manifest, store=stores())
    rows = read_frame(spark, manifest, stores=stores).orderBy("origin", "carrier").collect()
    return [row.asDict() for row in rows]


def run_whole(day, spark, stores) -> list[dict[str, Any]]:
    return table(spark, stores, day.freeze().run(spark, stores)["delays_by_carrier"])


# The days of the demo are compared on a cloud. These have 24, 23 and 25 hours.
@pytest.mark.parametrize("date", ["2013-03-08", "2013-03-10", "2013-11-03"])
def test_a_real_day_agrees_with_an_independent_computation(spark, store, stores, scratch, date):
    day = nyc_day(store, date, scratch)
    done = day.run(spark, stores)
    expected = daily_delays(scratch, date)
    assert_same_table([[date, *row.values()] for row in table(spark, stores, done["delays_by_carrier"])], expected)
    flights = sum(row[3] for row in expected)
    joined, aggregated = (load_manifest(done[name].manifest, store=store) for name in done)
    assert joined.rows == flights
    assert [(step.name, step.step, step.rows_out) for step in (*joined.steps, *aggregated.steps)] == [
        ("checked_flights", "data_quality", flights),
        ("hourly_weather", "select", joined.steps[1].rows_in["weather"]),
        ("flights_with_weather", "join", flights),
        ("delays_by_carrier", "sql", len(expected)),
    ]
    assert aggregated.steps[0].rows_in == {"flights_with_weather": flights}
    assert joined.steps[0].rows_in == {"flights": flights}
    assert [result["checked"] for result in joined.steps[0].effect["results"][:2]] == [flights, flights]
    assert aggregated.parents == (done["flights_with_weather"].manifest,)
    assert joined.producer.model_dump() == {
        "pipeline": "daily_delays",
        "date": date,
        "run_id": "run",
        "attempt": 1,
        "stage": "flights_with_weather",
        "correlation_id": "c-1",
    }


def test_a_day_without_any_object_gives_an_empty_table(spark, stores, day):
    done = day.freeze().run(spark, stores)
    assert [reference.rows for reference in done.values()] == [0, 0]
    assert [reference.files for reference in done.values()] == [1, 1]


def test_rows_that_are_easy_to_get_wrong(spark, stores, day):
    """One flight, cancelled flights without weather, a null key, which matches no weather, and any script."""
    nothing = {"dep_time": None, "dep_delay": None, "arr_delay": None}
    cancelled = {**FLIGHT, **nothing, "origin": "JFK"}
    flights = [
        FLIGHT,
        cancelled,
        cancelled,
        {**FLIGHT, "origin": None},
        {**FLIGHT, "origin": "LGA", "carrier": "航空✈'`"},
    ]
    weather = [{**WEATHER, "origin": None}, {**WEATHER, "origin": None}, WEATHER]
    nowhere, one, gone, script = run_whole(
        day.with_events("flights", flights).with_events("weather", weather), spark, stores
    )
    assert one == {
        "origin": "EWR",
        "carrier": "UA",
        "flights": 1,
        "cancelled": 0,
        "dep_delay_mean": 4.0,
        "dep_delay_p90": 4.0,
        "on_time_share": 1.0,
        "wind_speed_mean": 10.0,
        "precip_mean": 0.5,
    }
    means = ["dep_delay_mean", "dep_delay_p90", "on_time_share", "wind_speed_mean", "precip_mean"]
    assert gone == {"origin": "JFK", "carrier": "UA", "flights": 2, "cancelled": 2, **dict.fromkeys(means)}
    assert (nowhere["origin"], nowhere["flights"], nowhere["wind_speed_mean"]) == (None, 1, None)
    assert script["carrier"] == "航空✈'`"


def test_weather_sent_twice_fails_and_names_the_hour(spark, stores, day):
    full = day.with_events("flights", [FLIGHT]).with_events("weather", [WEATHER, {**WEATHER, "precip": 0.75}]).freeze()
    with pytest.raises(Exception, match="join: hourly_weather has 2 rows for one key") as failure:
        full.run(spark, stores)
    error_type, message = explain(failure.value)
    assert error_type == DataError.__name__
    assert '{"origin":"EWR","time_hour":"2013-03-08T15:00:00.000Z"}' in message
    assert "many: true" in message


def test_a_job_whose_rule_refuses_the_input_names_it_and_publishes_nothing(spark, stores, day):
    steps = day.project.pipeline("daily_delays").steps
    rules = [{"rule": "row_count", "min": 2, "severity": "invalidate"}]
    checked = steps["checked_flights"].model_copy(update={"parameters": {"rules": rules}})
    pipeline = day.project.pipeline("daily_delays").model_copy(update={"steps": {**steps, "checked_flights": checked}})
    project = day.project.model_copy(update={"pipelines": {**day.project.pipelines, "daily_delays": pipeline}})
    full = replace(day, project=project).with_events("flights", [FLIGHT]).with_events("weather", [WEATHER]).freeze()
    with pytest.raises(InputInvalid, match=r"steps\.checked_flights: row_count failed") as failure:
        run_stage_job(spark, full.job(stages(pipeline)[0].name), stores=stores)
    assert explain(failure.value)[0] == "InputInvalid"
    refused = InvalidInput.model_validate_json(stores().get(invalid_input_uri(full.prefix)))
    assert refused.hours == (("flights", "2013-03-08T15"),)
    assert refused.reason.startswith("steps.checked_flights: row_count failed")
    with pytest.raises(ObjectMissing):
        stores().get(publication_uri(full.prefix))


def test_only_events_of_the_day_count(spark, stores, day):
    """New York's 8 March 2013 starts at 05:00 UTC; an object of a partition may hold events of two days."""
    times = [
        datetime(2013, 3, 8, 4, 59, 59, 999999, UTC),
        datetime(2013, 3, 8, 5, tzinfo=UTC),
        datetime(2013, 3, 9, 5, tzinfo=UTC),
    ]
    rows = run_whole(day.with_events("flights", [{**FLIGHT, "time_hour": time} for time in times]), spark, stores)
    assert [row["flights"] for row in rows] == [1]


def test_exactly_the_objects_of_the_manifest_are_read(spark, stores, day):
    frozen = day.with_events("flights", [FLIGHT], name="listed").freeze()
    day.with_events("flights", [FLIGHT], name="came-later")
    joined = frozen.run(spark, stores)["flights_with_weather"]
    assert joined.rows == 1


def test_a_missing_object_is_named(spark, stores, day):
    full = day.with_events("flights", [FLIGHT]).freeze()
    uri = full.objects[0].uri
    Path(uri.removeprefix("file://")).unlink()
    with pytest.raises(ObjectMissing, match=r"hour=15/0\.parquet is in the input manifest"):
        full.run(spark, stores)


def test_an_older_object_without_a_field_gives_nulls(spark, stores, store, day):
    full = day.with_events("flights", [FLIGHT]).freeze()
    path = Path(full.objects[0].uri.removeprefix("file://"))
    pq.write_table(pq.ParquetFile(path).read().drop_columns(["tailnum", "_extra"]), path)
    reference = full.run(spark, stores)["flights_with_weather"]
    (row,) = read_frame(spark, load_manifest(reference.manifest, store=store), stores=stores).collect()
    assert row["tailnum"] is None
    assert "_event_time" not in row.asDict()


def test_a_second_attempt_does_not_change_the_first(spark, stores, store, day):
    first = day.with_events("flights", [FLIGHT]).freeze()
    second = Day(store=store, project=first.project, date=first.date, objects=first.objects, attempt=2)
    done = [attempt.run(spark, stores)["flights_with_weather"] for attempt in (first, second)]
    assert done[0].manifest != done[1].manifest
    for reference in done:
        assert load_manifest(reference.manifest, store=store).rows == 1


def test_a_repeated_job_keeps_the_reference_of_its_attempt_and_writes_nothing(spark, stores, store, day):
    full = day.with_events("flights", [FLIGHT]).freeze()
    first = full.run(spark, stores)
    files = [item.uri for item in store.list("s3://exchange/")]
    Path(full.objects[0].uri.removeprefix("file://")).unlink()
    assert full.run(spark, stores) == first
    assert [item.uri for item in store.list("s3://exchange/")] == files


def test_wrong_arguments_are_named(spark, stores, day):
    full = day.with_events("flights", [FLIGHT]).freeze()
    with pytest.raises(UnknownName, match=r"no stage 'joined'.*flights_with_weather, delays_by_carrier"):
        run_stage(full.job("joined"), full.project, StepContext(spark=spark), stores=stores)
    with pytest.raises(ObjectMissing, match="/flights_with_weather/ has no reference: this stage has not been"):
        run_stage(full.job("delays_by_carrier"), full.project, StepContext(spark=spark), stores=stores)
    other = replace(full, date="2013-03-09").job("flights_with_weather")
    with pytest.raises(InputError, match=f"{MANIFEST_URI} is the input manifest of daily_delays 2013-03-08"):
        run_stage(other, full.project, StepContext(spark=spark), stores=stores)


def test_a_step_reads_the_results_of_earlier_stages_of_its_run(spark, stores, day, monkeypatch, way):
    looked_up = []

    def count_version(frames, _parameters, context):
        looked_up.append((list(context.earlier_versions), "second" in context.earlier_versions))
        with pytest.raises(KeyError):
            context.earlier_versions["second"]
        return context.earlier_versions["first"].selectExpr("count(*) AS n", "max(carrier) AS carrier")

    step = Transform(name="count_version", parameters=Parameters, apply=count_version)
    known = {**registry.registry(), "count_version": step}
    monkeypatch.setattr(registry, "registry", lambda: known)
    query = {"step": "sql", "depends_on": ["flights"], "with": {"query": "SELECT carrier FROM flights"}}
    steps = {
        "first": {**query, "exchange": True},
        "second": {"step": "count_version", "depends_on": ["first"], "exchange": True},
        "third": {"step": "sql", "depends_on": ["first", "second"], "with": {"query": "SELECT * FROM second"}},
    }
    definition = {"sources": ["flights"], "steps": steps, "publish": {"step": "third", "key": ["date"]}}
    pipeline = Pipeline.model_validate({"pipeline": "daily_delays", **definition})
    project = day.project.model_copy(update={"pipelines": {"daily_delays": pipeline}})
    full = replace(day, project=project).with_events("flights", [FLIGHT, FLIGHT]).freeze()
    context = StepContext(spark=spark)
    for name in ("first", "second"):
        manifest = run_stage(full.job(name), project, context, stores=stores)
    # In the way of many rows, the steps are planned once before.
    assert looked_up == [(["first"], False)] * (1 if way == "small" else 2)
    assert read_frame(spark, manifest, stores=stores).collect() == [(2, "UA")]
    assert manifest.parents == (manifest_uri(full.identity.stage_prefix("first")),)
    assert {file.uri.rpartition("/")[0] for file in manifest.files} == {f"{full.identity.arrow_prefix}second"}


def test_extract_steps_of_a_run_read_the_frozen_source_and_the_projects_files(spark, store, stores, day):
    store.put("s3://files/carriers/2013-03-08.csv", b"code,name\nUA,United\nB6,JetBlue\n")
    fields = {"code": "string", "name": "string"}
    steps = {
        "departed": {"step": "read_partition", "with": {"source": "flights"}},
        "carriers": {"step": "read_csv", "with": {"path": "carriers/{date}.csv", "fields": fields}},
        "named": {
            "step": "lookup",
            "depends_on": ["departed", "carriers"],
            "with": {"column": "carrier", "reference_column": "code", "values": ["name"]},
        },
        "delays_by_carrier": {
            "step": "aggregate",
            "depends_on": ["named"],
            "with": {"group_by": ["name"], "measures": {"flights": {"function": "count"}}},
        },
    }
    definition = {**day.project.pipeline("daily_delays").model_dump(by_alias=True), "steps": steps}
    pipeline = Pipeline.model_validate(
        {**definition, "publish": {"step": "delays_by_carrier", "key": ["date", "name"]}}
    )
    check_steps(pipeline)
    project = day.project.model_copy(update={"pipelines": {"daily_delays": pipeline}})
    other_day = {**FLIGHT, "time_hour": datetime(2013, 3, 8, 4, 59, tzinfo=UTC)}
    flights = [FLIGHT, FLIGHT, {**FLIGHT, "carrier": "B6"}, other_day]
    full = replace(day, project=project).with_events("flights", flights).freeze()
    local = day_of(date(2013, 3, 8), pipeline.timezone)
    context = StepContext(spark=spark, files=ProjectFiles("s3://files/", stores), day=local)
    manifest = run_stage(full.job("delays_by_carrier"), project, context, stores=stores)
    rows = read_frame(spark, manifest, stores=stores).collect()
    assert {(row["name"], row["flights"]) for row in rows} == {("United", 2), ("JetBlue", 1)}
    assert [(step.name, step.rows_in, step.rows_out) for step in manifest.steps] == [
        ("departed", {}, 3),
        ("carriers", {}, 2),
        ("named", {"departed": 3, "carriers": 2}, 3),
        ("delays_by_carrier", {"named": 3}, 2),
    ]


def test_a_partition_of_a_source_that_the_pipeline_does_not_list_is_refused(spark, stores, day):
    pipeline = day.project.pipeline("daily_delays")
    steps = {"delays_by_carrier": {"step": "read_partition", "with": {"source": "fares"}}}
    pipeline = Pipeline.model_validate({**pipeline.model_dump(by_alias=True), "steps": steps})
    full = replace(day, project=day.project.model_copy(update={"pipelines": {"daily_delays": pipeline}})).freeze()
    with pytest.raises(
        DefinitionError, match=r"source: fares is not one of the pipeline's sources: add it to `sources"
    ):
        run_stage(full.job("delays_by_carrier"), full.project, StepContext(spark=spark), stores=stores)
