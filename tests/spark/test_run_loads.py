"""Load steps: they write the rows of a published day, and the first fault ends them."""

from __future__ import annotations

import json
from operator import itemgetter
from uuid import uuid4

import pytest

from slackwater.arrow.dataset import store_dataset
from slackwater.arrow.exchange import write_frame
from slackwater.errors import InputError, Superseded
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.attempt_files import loads_uri
from slackwater.runs.period import day_of, parse_date
from slackwater.runs.record import Loads
from slackwater.spark import run_loads as loads_module
from slackwater.spark.run_loads import run_loads
from slackwater.steps.files import ProjectFiles
from slackwater.steps.step import StepContext
from tests.fakes_runs import LONGEST_RUN
from tests.fakes_spark import PRODUCER
from tests.spark.frames import frame_of
from tests.spark.test_publish import commit_version

PREFIX = "s3://exchange/runs/p/2013-03-10/r/1/"
CSV = {"step": "write_csv", "depends_on": ["day"], "with": {"path": "{date}/rows.csv"}}
TABLE = {
    "step": "write_table",
    "depends_on": ["day"],
    "with": {"url": "postgresql://127.0.0.1:1/x", "credentials": "secretsmanager:none", "table": "t"},
}


@pytest.fixture
def load(spark, store, stores):
    frames = {
        "day": frame_of(spark, [(1, "ä,b"), (2, None)], "n long, text string"),
        "more": frame_of(spark, [(3,)], "n long"),
    }
    day = day_of(parse_date("2013-03-10"), "UTC")
    job_run = LONGEST_RUN.model_copy(update={"pipeline": "p", "date": "2013-03-10", "attempt": 1, "prefix": PREFIX})
    for name, frame in frames.items():
        stage = job_run.stage_prefix(name)
        manifest = write_frame(frame, stage, producer=PRODUCER, stores=stores, input_bytes=0).manifest
        store_dataset(manifest, stage, store=store, seconds=0)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS memory.loads")
    table = f"memory.loads.{uuid4().hex}"
    commit_version(spark, table, job_run, [("EWR", "UA", 3, 1.5)])
    context = StepContext(spark=spark, run=job_run, day=day, files=ProjectFiles("s3://files/", stores))

    def run(**steps):
        definition = {
            "pipeline": "p",
            "sources": ["a"],
            "steps": {
                name: {"step": "sql", "exchange": True, "depends_on": ["a"], "with": {"query": "SELECT * FROM a"}}
                for name in frames
            },
            "publish": {"step": "day", "key": ["date"]},
            "load": steps,
        }
        pipeline = Pipeline.model_validate(definition)
        return run_loads(pipeline, context, run=job_run, catalog_table=table, stores=stores)

    def publish_later():
        commit_version(spark, table, job_run.model_copy(update={"attempt": 2}), [("EWR", "UA", 4, 1.5)])

    run.publish_later = publish_later
    return run


@pytest.mark.usefixtures("way")
def test_what_each_step_wrote_is_recorded(store, load):
    json_lines = {**CSV, "step": "write_json", "with": {"path": "rows.ndjson"}}
    loads = load(report=CSV, lines=json_lines)
    _, *lines = store.get("s3://files/2013-03-10/rows.csv").decode().splitlines()
    # Executors read the rows in any order.
    assert sorted(lines) == ['1,"ä,b"', "2,"]
    rows = [json.loads(line) for line in store.get("s3://files/rows.ndjson").splitlines()]
    assert sorted(rows, key=itemgetter("n")) == [{"n": 1, "text": "ä,b"}, {"n": 2, "text": None}]
    assert [(step.name, step.step, step.rows_in, step.effect["rows"]) for step in loads.steps] == [
        ("report", "write_csv", {"day": 2}, 2),
        ("lines", "write_json", {"day": 2}, 2),
    ]
    assert Loads.model_validate_json(store.get(loads_uri(PREFIX))) == loads


def test_a_step_does_not_begin_after_a_later_attempt_has_published(store, load, monkeypatch):
    write = loads_module.write_rows

    def write_and_publish_later(*arguments, **named):
        record = write(*arguments, **named)
        load.publish_later()
        return record

    monkeypatch.setattr(loads_module, "write_rows", write_and_publish_later)
    with pytest.raises(Superseded, match=r"^load\.lines: attempt 2 has published 2013-03-10 already"):
        load(report=CSV, lines={**CSV, "with": {"path": "later.csv"}})
    assert [item.uri for item in store.list("s3://files/")] == ["s3://files/2013-03-10/rows.csv"]


def test_the_first_fault_names_its_step_and_ends_the_others(store, load):
    with pytest.raises(InputError, match=r"^load\.warehouse: "):
        load(report=CSV, warehouse=TABLE, lines={**CSV, "with": {"path": "later.csv"}})
    assert [item.uri for item in store.list("s3://files/")] == ["s3://files/2013-03-10/rows.csv"]


def test_several_inputs_are_files_of_their_own(store, load):
    both = {**CSV, "depends_on": ["day", "more"], "with": {"path": "{input}/{date}.csv"}}
    loads = load(report=both)
    assert sorted(store.get("s3://files/day/2013-03-10.csv").decode().splitlines()) == ['"n","text"', '1,"ä,b"', "2,"]
    assert store.get("s3://files/more/2013-03-10.csv").decode().splitlines() == ['"n"', "3"]
    (step,) = loads.steps
    assert (step.rows_in, step.rows_out) == ({"day": 2, "more": 1}, 3)
    assert step.effect == {
        "path.day": "day/2013-03-10.csv",
        "rows.day": 2,
        "bytes.day": step.effect["bytes.day"],
        "files.day": 1,
        "path.more": "more/2013-03-10.csv",
        "rows.more": 1,
        "bytes.more": 6,
        "files.more": 1,
    }


def test_each_target_keeps_what_a_later_attempt_has_loaded(store, load):
    later = {"pipeline": "p", "date": "2013-03-10", "attempt": "2"}
    store.put("s3://files/more.csv", b"later", metadata=later)
    both = {**CSV, "depends_on": ["day", "more"], "with": {"path": "{input}.csv"}}
    with pytest.raises(Superseded, match=r"^load\.report: s3://files/more\.csv: attempt 2 has loaded"):
        load(report=both)
    assert store.get("s3://files/more.csv") == b"later"
    assert store.get("s3://files/day.csv").startswith(b'"n","text"')


def test_a_later_attempt_that_publishes_meanwhile_ends_the_step_before_its_next_input(store, load, monkeypatch):
    read = loads_module.read_frame
    monkeypatch.setattr(loads_module, "read_frame", lambda *a, **n: (load.publish_later(), read(*a, **n))[1])
    both = {**CSV, "depends_on": ["day", "more"], "with": {"path": "{input}.csv"}}
    with pytest.raises(Superseded, match=r"^load\.report: attempt 2 has published 2013-03-10 already"):
        load(report=both)
    assert [item.uri for item in store.list("s3://files/")] == ["s3://files/day.csv"]
