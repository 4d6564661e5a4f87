"""The rows between two versions: all stages of the earlier definition, compared with both versions."""

from __future__ import annotations

import json

import pytest

from glue_jobs import run_stage
from slackwater.arrow.dataset import load_manifest, store_dataset
from slackwater.arrow.exchange import read_frame, write_frame
from slackwater.arrow.reference import Producer
from slackwater.errors import DataError, DefinitionError, ObjectMissing
from slackwater.late.changes.pairs import comparison_uri, split_run_prefix, split_uri
from slackwater.late.comparison import RowCounts, Split
from slackwater.pipeline.definition import StepUse
from slackwater.runs.attempt_files import publication_uri, unpublished_uri
from slackwater.spark.compare.split import split_versions
from slackwater.spark.stage import StageJob, store_unpublished
from tests.independent import assert_same_table, daily_delays
from tests.spark.compared_day import JOB, PREFIX, Day
from tests.spark.frames import frame_of
from tests.spark.nyc import PROJECT_URI, nyc_day

SPLIT = JOB.model_copy(update={"job": "s" * 32})
PRODUCER = Producer(pipeline="p", date="2013-03-08", run_id="r", attempt=2, stage="s", correlation_id="c")
SCHEMA = "origin string, carrier string, flights bigint, delay double"


def test_all_stages_are_stored_as_a_run_computes_them_and_nothing_is_published(spark, store, stores, tmp_path):
    nyc = nyc_day(store, "2013-03-08", tmp_path)
    job = StageJob(run=nyc.identity, stage="", project=PROJECT_URI, catalog_table="warehouse.days.none")
    reference = store_unpublished(spark, job, stores=stores)
    assert json.loads(store.get(unpublished_uri(nyc.prefix))) == reference.model_dump()
    frame = read_frame(spark, load_manifest(reference.manifest, store=store), stores=stores)
    rows = [["2013-03-08", *row] for row in frame.orderBy("origin", "carrier").collect()]
    assert_same_table(rows, daily_delays(tmp_path, "2013-03-08"))
    with pytest.raises(ObjectMissing):
        store.get(publication_uri(nyc.prefix))
    assert not spark.catalog.tableExists("warehouse.days.none")


def test_a_pipeline_whose_steps_read_rows_themselves_is_not_computed_again(spark, store, stores, tmp_path):
    nyc = nyc_day(store, "2013-03-08", tmp_path)
    pipeline = nyc.project.pipelines["daily_delays"]
    rates = StepUse.model_validate({"step": "read_csv", "with": {"path": "rates.csv"}})
    changed = pipeline.model_copy(update={"steps": {"rates": rates, **pipeline.steps}})
    project = nyc.project.model_copy(update={"pipelines": {"daily_delays": changed}})
    store.put(PROJECT_URI, project.model_dump_json(by_alias=True).encode())
    job = StageJob(run=nyc.identity, stage="", project=PROJECT_URI, catalog_table="warehouse.days.none")
    with pytest.raises(DefinitionError, match=r"^steps.rates: it reads its rows itself"):
        store_unpublished(spark, job, stores=stores)


def test_a_job_has_a_stage_or_publishes_nothing(capsys):
    run = json.dumps(
        {
            "pipeline": "p", "date": "2013-03-10", "run_id": "r", "attempt": 1, "correlation_id": "c",
            "manifest": "s3://m/m", "prefix": "s3://p/", "files": 0, "rows": 0, "bytes": 0,
        }
    )  # fmt: skip
    arguments = ["--project", "s3://p", "--run", run, "--catalog-table", "t"]
    assert run_stage.parse([*arguments, "--unpublished"]).unpublished
    for wrong in ([], ["--stage", "s", "--unpublished"]):
        with pytest.raises(SystemExit):
            run_stage.parse([*arguments, *wrong])
    assert "--stage" in capsys.readouterr().err


def store_between(day: Day, rows: list, schema: str = SCHEMA) -> None:
    """Store rows as the job of the earlier version does."""
    prefix = split_run_prefix(PREFIX, SPLIT.job)
    written = write_frame(
        frame_of(day.spark, rows, schema), f"{prefix}arrow/", producer=PRODUCER, stores=day.stores, input_bytes=0
    )
    reference = store_dataset(written.manifest, f"{prefix}s/", store=day.store, seconds=1.0)
    day.store.put(unpublished_uri(prefix), reference.model_dump_json().encode())


def split(day: Day) -> Split:
    return split_versions(day.spark, SPLIT, project=PROJECT_URI, catalog_table=day.table, stores=day.stores)


@pytest.mark.usefixtures("interpreted")
def test_both_parts_are_counted_and_add_up(day, store):
    day.metrics = {"flights": "sum", "delay": "mean", "gates": "sum"}
    day.publish([("EWR", "UA", 3, 1.0), ("JFK", "B6", 2, 2.0), ("LGA", "DL", 5, 3.0)])
    # The definition adds a column, and halves the flights; the data has added a row and changed one.
    day.publish(
        [("EWR", "UA", 2, 1.0, 7), ("JFK", "B6", 1, 2.5, 7), ("LGA", "DL", 2, 3.0, 7), ("LGA", "AA", 4, 9.0, 7)],
        f"{SCHEMA}, gates int",
    )
    day.compare()
    between = [("EWR", "UA", 4, 1.0), ("JFK", "B6", 2, 2.0), ("LGA", "DL", 5, 3.0), ("LGA", "AA", 8, 10.0)]
    store_between(day, between, SCHEMA.replace("bigint", "smallint"))
    found = split(day)
    assert Split.model_validate_json(store.get(split_uri(PREFIX))) == found
    assert found.data == RowCounts(before=3, after=4, added=1, removed=0, changed=1)
    assert found.definition == RowCounts(before=4, after=4, added=0, removed=0, changed=4)
    assert [(m.metric, m.before, m.between, m.after, m.data, m.definition) for m in found.metrics] == [
        ("flights", 10, 19, 9, 9, -10),
        ("delay", 2.0, 4.0, 3.875, 2.0, -0.125),
        ("gates", None, None, 28, None, None),
    ]


@pytest.mark.usefixtures("interpreted")
def test_rows_that_could_not_have_been_published_are_refused(day):
    day.publish([("EWR", "UA", 3, 1.0)])
    day.publish([("EWR", "UA", 4, 1.0)])
    day.compare()
    store_between(day, [("EWR", "UA", 3, 1.0), ("EWR", "UA", 4, 1.0)])
    with pytest.raises(DataError, match="the definition of version 1 gives rows that cannot be published"):
        split(day)
    with pytest.raises(ObjectMissing):
        day.store.get(split_uri(PREFIX))
    assert day.store.get(comparison_uri(PREFIX))
