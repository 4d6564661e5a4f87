"""Steps that are computed one after the other: `versions: all` stores their rows, and `--profile` measures them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import functions as sf

from slackwater.arrow.dataset import load_manifest
from slackwater.arrow.exchange import read_frame
from slackwater.errors import DataError, DefinitionError
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.finished_stages import keep_finished_stages, stage_identities
from slackwater.runs.inputs.manifest import read_manifest
from slackwater.runs.outputs import versions
from slackwater.runs.record import Run, RunRecord, RunState
from slackwater.runs.step_versions import stored_names
from slackwater.spark.stage import run_stage
from slackwater.steps import registry
from slackwater.steps.step import Parameters, StepContext, Transform
from tests.spark.nyc import MANIFEST_URI, Day
from tests.two_stages import two_stage_project

NOW = datetime(2013, 3, 13, tzinfo=UTC)
HOURS = [datetime(2013, 3, 8, hour, tzinfo=UTC) for hour in (15, 16)]
FLIGHTS: list[dict[str, Any]] = [
    {"carrier": "UA", "origin": "EWR", "time_hour": HOURS[0], "distance": 100 * number, "dep_delay": 4.0}
    for number in range(1, 6)
] + [{"carrier": "AA", "origin": "JFK", "time_hour": HOURS[1], "distance": 2475, "dep_delay": None}]
WEATHER = [{"origin": origin, "time_hour": hour, "wind_speed": 10.0} for origin in ("EWR", "JFK") for hour in HOURS]
STEPS: dict[str, Any] = {
    "checked": {
        "step": "data_quality",
        "depends_on": ["flights"],
        "with": {"rules": [{"rule": "range", "column": "distance", "min": 200, "severity": "warn"}]},
    },
    "long": {"step": "filter", "depends_on": ["checked"], "with": {"where": "distance >= 300"}},
    "hourly": {"step": "select", "depends_on": ["weather"], "with": {"columns": ["origin", "time_hour", "wind_speed"]}},
    "windy": {"step": "filter", "depends_on": ["hourly"], "with": {"where": "wind_speed > 1"}},
    "joined": {
        "step": "join",
        "depends_on": ["long", "windy"],
        "with": {"keys": ["origin", "time_hour"], "how": "left"},
    },
    "by_carrier": {
        "step": "aggregate",
        "depends_on": ["joined"],
        "with": {"group_by": ["carrier"], "measures": {"flights": {"function": "count"}}},
    },
}
RESULT = {("UA", 3), ("AA", 1)}


class Profiled(Day):
    """A day whose run measures each step."""

    @property
    def identity(self) -> Run:
        return super().identity.model_copy(update={"profiled": True})


def defined(day: Day, *, exchange: tuple[str, ...] = (), versions: str = "all", **changes: Any) -> Day:
    """Return the day with events, of a pipeline of these steps."""
    steps = {name: {**step, "exchange": name in exchange} for name, step in {**STEPS, **changes}.items()}
    pipeline = Pipeline.model_validate(
        {
            "pipeline": "daily_delays",
            "timezone": "America/New_York",
            "sources": ["flights", "weather"],
            "versions": versions,
            "steps": steps,
            "publish": {"step": "by_carrier", "key": ["date", "carrier"]},
        }
    )
    project = day.project.model_copy(update={"pipelines": {"daily_delays": pipeline}})
    full = replace(day, project=project).with_events("flights", FLIGHTS).with_events("weather", WEATHER)
    return full.freeze()


def keep(day: Day, store, *earlier: Day) -> frozenset[str]:
    """Let the day's attempt start after the earlier ones; return the stages that it keeps."""
    manifest = read_manifest(store, MANIFEST_URI)
    identities = stage_identities(day.project, day.identity, manifest, published=0)
    return keep_finished_stages(
        day.identity,
        identities,
        [attempt.identity for attempt in earlier],
        since=NOW - timedelta(days=1),
        store=store,
        all_versions=True,
    )


def listed(day: Day, store) -> list[Any]:
    record = RunRecord(run=day.identity, state=RunState.RUNNING, execution="e", started_at=NOW)
    return list(versions(record, store=store))


@pytest.fixture
def day(store) -> Day:
    return Day(store=store, project=two_stage_project(), date="2013-03-08")


def result(spark, stores, reference) -> set[tuple[Any, ...]]:
    manifest = load_manifest(reference.manifest, store=stores())
    return {tuple(row) for row in read_frame(spark, manifest, stores=stores).select("carrier", "flights").collect()}


@pytest.mark.usefixtures("way")
def test_the_rows_of_each_step_are_stored_and_what_the_steps_did_is_that_of_one_pass(spark, store, stores, day):
    full, once = defined(day), replace(defined(day, versions="stages"), attempt=2)
    keep(full, store)
    records = []
    for attempt in (full, once):
        done = attempt.run(spark, stores)["by_carrier"]
        assert result(spark, stores, done) == RESULT
        steps = load_manifest(done.manifest, store=store).steps
        records.append([record.model_dump(exclude={"seconds", "bytes_in", "bytes_out"}) for record in steps])
    assert records[0] == records[1]
    checked = next(record for record in records[0] if record["name"] == "checked")
    assert checked["effect"]["results"][0]["failed"] == 1
    assert stored_names(once.prefix, store=store) == {"by_carrier"}
    first, *found = listed(full, store)
    # `checked` rejects no row: its rows are those of the input.
    assert {version.name: (version.type, version.rows) for version in found} == {
        "long": ("step", 4),
        "hourly": ("step", 4),
        "windy": ("step", 4),
        "joined": ("step", 4),
        "by_carrier": ("stage", 2),
    }
    names = {version.uri: version.name for version in (first, *found)}
    assert {version.name: [names[uri] for uri in version.parents] for version in found} == {
        "long": ["input"],
        "hourly": ["input"],
        "windy": ["hourly"],
        "joined": ["long", "windy"],
        "by_carrier": ["joined"],
    }
    assert [version.name for version in found[-2:]] == ["joined", "by_carrier"]
    assert {version.stage for version in found[:-1]} == {"by_carrier"}
    for version in found:
        assert (version.state, version.reference.files > 0) == ("present", True)
        manifest = load_manifest(version.uri, store=store)
        assert read_frame(spark, manifest, stores=stores).count() == version.rows
        assert {file.uri.rpartition("/")[0] for file in manifest.files} == {
            f"{full.identity.arrow_prefix}{version.name}"
        }


@pytest.mark.usefixtures("way")
def test_a_step_reads_the_inputs_and_all_steps_before_it_also_those_of_parallel_branches(
    spark, store, stores, day, monkeypatch
):
    seen: dict[str, list[str]] = {}

    def compare(frames, _parameters, context):
        (frame,) = frames.values()
        seen[frame.columns[0]] = list(context.earlier_versions)
        counts = {name: context.earlier_versions[name].count() for name in context.earlier_versions}
        return frame.withColumn("counts", sf.lit(",".join(f"{name}={count}" for name, count in counts.items())))

    step = Transform(name="compare", parameters=Parameters, apply=compare)
    known = {**registry.registry(), "compare": step}
    monkeypatch.setattr(registry, "registry", lambda: known)
    watching = {"step": "compare", "depends_on": ["joined"]}
    last = {**STEPS["by_carrier"], "depends_on": ["watched"]}
    # Two stages run in parallel: `checked` and `long`, and `hourly`; a third one reads the second only.
    full = defined(day, exchange=("long", "hourly", "windy"), watched=watching, by_carrier=last)
    keep(full, store)
    full.run(spark, stores)
    (manifest,) = [load_manifest(item.uri, store=store) for item in listed(full, store) if item.name == "watched"]
    (row,) = read_frame(spark, manifest, stores=stores).select("counts").distinct().collect()
    assert dict(pair.split("=") for pair in row.counts.split(",")) == {
        "flights": "6",
        "weather": "4",
        "checked": "6",
        "long": "4",
        "hourly": "4",
        "windy": "4",
        "joined": "4",
    }
    parents = {uri.split("/")[-2] for uri in manifest.parents if uri != MANIFEST_URI}
    assert parents == {"long", "hourly", "windy", "joined"}
    assert MANIFEST_URI in manifest.parents


def test_a_kept_stage_has_its_versions_in_the_attempt_that_has_computed_it(spark, store, stores, day):
    first = defined(day, exchange=("long", "windy"))
    keep(first, store)
    context = StepContext(spark=spark)
    for stage in ("long", "windy"):
        run_stage(first.job(stage), first.project, context, stores=stores)
    second = replace(first, attempt=2)
    assert keep(second, store, first) == {"long", "windy"}
    run_stage(second.job("by_carrier"), second.project, context, stores=stores)
    found = {version.name: version for version in listed(second, store)}
    assert set(found) == {"input", "long", "hourly", "windy", "joined", "by_carrier"}
    assert {name: version.uri.split("/")[-3] for name, version in found.items() if name != "input"} == {
        "long": "1",
        "hourly": "1",
        "windy": "1",
        "joined": "2",
        "by_carrier": "2",
    }
    assert found["hourly"].parents == (MANIFEST_URI,)
    # A version of a step that is gone makes its stage run again.
    (file, *_) = load_manifest(found["hourly"].uri, store=store).files
    store.delete([file.uri])
    assert "windy" not in keep(replace(first, attempt=3), store, second, first)


def test_a_failed_stage_leaves_the_versions_of_the_steps_that_have_finished(spark, store, stores, day):
    rule = {"rule": "range", "column": "distance", "min": 1000}
    last = {"step": "data_quality", "depends_on": ["joined"], "with": {"rules": [rule]}}
    full = defined(day, strict=last, by_carrier={**STEPS["by_carrier"], "depends_on": ["strict"]})
    keep(full, store)
    with pytest.raises(DataError, match=r"steps\.strict: range of distance failed in 3 of 4 checked rows"):
        full.run(spark, stores)
    found = [(version.name, version.type, version.rows) for version in listed(full, store)]
    assert sorted(found[1:]) == [
        ("hourly", "step", 4),
        ("joined", "step", 4),
        ("long", "step", 4),
        ("windy", "step", 4),
    ]
    assert found[-1][0] == "joined"


def test_a_result_that_arrow_files_cannot_hold_is_refused_with_the_name_of_the_step(spark, store, stores, day):
    months = {"step": "sql", "depends_on": ["joined"], "with": {"query": "SELECT *, INTERVAL 1 MONTH AS m FROM joined"}}
    last = {**STEPS["by_carrier"], "depends_on": ["months"]}
    full = defined(day, months=months, by_carrier=last)
    with pytest.raises(DefinitionError, match=r"steps\.months: column 'm' is of type interval month"):
        full.run(spark, stores)
    once = replace(defined(day, versions="stages", months=months, by_carrier=last), attempt=2)
    assert result(spark, stores, once.run(spark, stores)["by_carrier"]) == RESULT


@pytest.mark.usefixtures("way")
def test_a_profiled_run_has_the_rows_of_one_pass_and_the_seconds_and_bytes_of_each_step(spark, store, stores, day):
    # Tests before this one may have left RDDs in the shared session.
    before = set(spark.sparkContext._jsc.getPersistentRDDs())
    once = defined(day, exchange=("windy",), versions="stages")
    profiled = Profiled(**{**vars(once), "attempt": 2})
    records, manifests = [], []
    for attempt in (once, profiled):
        done = attempt.run(spark, stores)
        assert result(spark, stores, done["by_carrier"]) == RESULT
        manifests.append([load_manifest(reference.manifest, store=store) for reference in done.values()])
        records.append({record.name: record for manifest in manifests[-1] for record in manifest.steps})
    alike = [
        {name: record.model_dump(exclude={"seconds", "bytes_in", "bytes_out"}) for name, record in of_run.items()}
        for of_run in records
    ]
    assert alike[0] == alike[1]
    plain, measured = records
    assert {record.seconds for record in plain.values()} == {None}
    assert all(record.seconds > 0 for record in measured.values())
    sizes = {name: sum(item.bytes for item in once.objects if item.source == name) for name in ("flights", "weather")}
    windy, last = manifests[0]
    known = {"checked": "flights", "hourly": "weather"}
    assert {name: plain[name].bytes_in for name in plain} == {
        **{name: {source: sizes[source]} for name, source in known.items()},
        "windy": {"hourly": None},
        "long": {"checked": None},
        "joined": {"long": None, "windy": windy.bytes},
        "by_carrier": {"joined": None},
    }
    assert {name: plain[name].bytes_out for name in plain} == {
        **dict.fromkeys(plain),
        "windy": windy.bytes,
        "by_carrier": last.bytes,
    }
    assert {name: measured[name].bytes_in for name in known} == {name: plain[name].bytes_in for name in known}
    assert measured["joined"].bytes_in["long"] == measured["long"].bytes_out > 0
    assert measured["long"].bytes_in == {"checked": measured["checked"].bytes_out}
    assert all(record.bytes_out > 0 for record in measured.values())
    assert set(spark.sparkContext._jsc.getPersistentRDDs()) <= before


def test_the_seconds_and_bytes_of_stored_steps_are_measured(spark, store, stores, day):
    full = defined(day)
    manifest = load_manifest(full.run(spark, stores)["by_carrier"].manifest, store=store)
    records = {record.name: record for record in manifest.steps}
    assert all(record.seconds > 0 for record in records.values())
    (long,) = [version for version in listed(full, store) if version.name == "long"]
    assert records["long"].bytes_out == long.bytes == records["joined"].bytes_in["long"]
    # `checked` stores no rows.
    assert records["checked"].bytes_out == records["checked"].bytes_in["flights"] == records["long"].bytes_in["checked"]


def test_a_step_whose_type_arrow_lacks_is_measured_without_its_size(spark, store, stores, day):
    months = {"step": "sql", "depends_on": ["joined"], "with": {"query": "SELECT *, INTERVAL 1 MONTH AS m FROM joined"}}
    last = {**STEPS["by_carrier"], "depends_on": ["months"]}
    full = Profiled(**vars(defined(day, versions="stages", months=months, by_carrier=last)))
    manifest = load_manifest(full.run(spark, stores)["by_carrier"].manifest, store=store)
    (record,) = [record for record in manifest.steps if record.name == "months"]
    assert (record.bytes_out, record.seconds > 0, record.rows_out) == (None, True, 4)
