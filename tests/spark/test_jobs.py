"""The jobs as processes of their own: real executors, exit codes, logs."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseServer

import pandas as pd
import pytest
from pyspark import accumulators
from pyspark.errors import ArithmeticException
from pyspark.sql import functions as sf

from glue_jobs import compare_day, run_stage
from slackwater.arrow.session import temporary_settings
from slackwater.problems import Problems
from slackwater.spark.standalone import INTERPRETED
from slackwater.steps.spark_errors import explain, located_in
from tests.independent import assert_same_table, daily_delays
from tests.spark.conftest import ROOT, WORKERS, jvm_variables
from tests.spark.frames import frame_of
from tests.spark.nyc import nyc_day

RUN = json.dumps(
    {
        "pipeline": "daily_delays", "date": "2013-03-10", "run_id": "r", "attempt": 1, "correlation_id": "c-7",
        "manifest": "s3://m/m", "prefix": "s3://p/", "files": 0, "rows": 0, "bytes": 0,
    }
)  # fmt: skip


def run(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        check=False,
        cwd=folder,
        env={**os.environ, **WORKERS, **jvm_variables(), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_day_on_executors_of_their_own(store, tmp_path):
    """Executors are separate processes with separate folders, and write every exchange."""
    nyc_day(store, "2013-03-10", tmp_path)
    done = run(
        *("-m", "tests.spark.cluster_day", str(store.root), "2013-03-10"),
        folder=tmp_path,
        SPARK_LOCAL_HOSTNAME="localhost",
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert_same_table(result["table"], daily_delays(tmp_path, "2013-03-10"))
    assert result["files"] >= 2
    assert set(result["writers"]).isdisjoint({result["driver"]})


def test_rows_are_counted_once_although_an_executor_is_lost_after_it_has_counted_them(tmp_path):
    """Spark computes the tasks of the lost executor again, and adds what it observes to the values from before."""
    events = pd.DataFrame({"carrier": ["AA", "B6", None, "QQ"] * 250, "delay": range(1000)})
    (tmp_path / "events").mkdir()
    for first in range(0, 1000, 250):
        events.iloc[first : first + 250].to_parquet(tmp_path / "events" / f"{first}.parquet")
    rules = [
        {"rule": "not_null", "column": "carrier", "severity": "reject"},
        {"rule": "range", "column": "delay", "max": 899, "severity": "warn"},
    ]
    query = "SELECT carrier, count(*) AS n FROM late GROUP BY carrier"
    steps = {
        "good": {"step": "data_quality", "depends_on": ["events"], "with": {"rules": rules}},
        "late": {"step": "filter", "depends_on": ["good"], "with": {"where": "delay >= 100"}},
        "totals": {"step": "sql", "depends_on": ["late"], "with": {"query": query}},
    }
    done = run(
        *("-m", "tests.spark.lost_executor", str(tmp_path), str(tmp_path / "events"), json.dumps(steps)),
        folder=tmp_path,
        SPARK_LOCAL_HOSTNAME="localhost",
    )
    assert done.returncode == 0, done.stderr
    good = events[events.carrier.notna()]
    late = good[good.delay >= 100]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["killed"] == 1
    assert result["rows"] == [list(total) for total in late.carrier.value_counts().sort_index().items()]
    records = result["records"]
    assert {name: (record["rows_in"], record["rows_out"]) for name, record in records.items()} == {
        "good": ({"events": len(events)}, len(good)),
        "late": ({"good": len(good)}, len(late)),
        "totals": ({"late": len(late)}, late.carrier.nunique()),
    }
    failed = {rule["rule"]: (rule["checked"], rule["failed"]) for rule in records["good"]["effect"]["results"]}
    assert failed == {
        "not_null": (len(events), events.carrier.isna().sum()),
        "range": (len(events), (events.delay > 899).sum()),
    }
    assert records["good"]["effect"]["rows_rejected"] == events.carrier.isna().sum()


class NoAccess(BaseHTTPRequestHandler):
    """S3 that refuses every request."""

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_GET  # noqa: N815

    def log_message(self, *_):
        pass


def test_a_failing_job_prints_its_error_and_exits_with_1(tmp_path):
    options = ["--project", "s3://assets/project.json", "--stage", "s", "--catalog-table", "t", "--run", RUN]
    (tmp_path / "events").mkdir()
    events = ("enabled=true", "compress=false", "rolling.enabled=false", f"dir={(tmp_path / 'events').as_uri()}")
    with ThreadingHTTPServer(("127.0.0.1", 0), NoAccess) as s3:
        thread = threading.Thread(target=s3.serve_forever)
        thread.start()
        done = run(
            *(str(ROOT / "glue_jobs" / "run_stage.py"), *options),
            folder=tmp_path,
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{s3.server_port}",
            AWS_ACCESS_KEY_ID="x",
            AWS_SECRET_ACCESS_KEY="x",
            AWS_REGION="us-east-1",
            PYSPARK_SUBMIT_ARGS=" ".join(
                [*(f"--conf spark.eventLog.{setting}" for setting in events), jvm_variables()["PYSPARK_SUBMIT_ARGS"]]
            ),
        )
        s3.shutdown()
        thread.join()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("AccessDenied: could not read s3://assets/project.json")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [line["message"] for line in lines] == ["spark started", "failed", "the failure could not be reported"]
    assert {line["correlation_id"] for line in lines} == {"c-7"}
    assert lines[0]["start_seconds"] > 0
    assert lines[1]["error"] == "AccessDenied"
    [log] = [path for path in (tmp_path / "events").iterdir() if not path.name.startswith(".")]
    [name] = [event["App Name"] for event in map(json.loads, log.read_text().splitlines()) if "App Name" in event]
    assert name == "slackwater run_stage c-7"


@pytest.mark.parametrize(("job", "argument"), [(run_stage, "--run"), (compare_day, "--comparison")])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('{"date": "2013-02-30"}', "date: Value error, '2013-02-30' is not a date such as 2013-03-10"),
        ('{"date": "2013-03-10"}', "pipeline: Field required"),
        ("{date:", "the value: Invalid JSON"),
    ],
)
def test_a_malformed_argument_is_named_with_its_faults(capsys, job, argument, value, message):
    with pytest.raises(SystemExit, match=r"^2$"):
        job.parse(["--project", "p", "--catalog-table", "t", argument, value])
    printed = capsys.readouterr().err
    assert f"argument {argument}: not a " in printed
    assert message in printed


def test_a_missing_argument_is_named(tmp_path):
    done = run(str(ROOT / "glue_jobs" / "run_stage.py"), "--project", "p", folder=tmp_path)
    assert done.returncode == 2
    assert "the following arguments are required: --run, --catalog-table" in done.stderr


def test_the_server_that_a_job_waits_for_at_its_end_has_the_default_interval():
    """`run_job` changes the default: PySpark gives none, and no class overrides the method."""
    assert [*inspect.signature(BaseServer.serve_forever).parameters] == ["self", "poll_interval"]
    assert len(BaseServer.serve_forever.__defaults__) == 1
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        assert server.serve_forever is BaseServer.serve_forever
    assert "Thread(target=server.serve_forever)" in inspect.getsource(accumulators._start_update_server)


def test_an_error_is_explained_in_one_line():
    assert explain(ValueError("a\n  b")) == ("ValueError", "a b")


def test_an_error_of_a_thread_of_the_jvm_is_explained_by_its_cause(spark):
    numbers = frame_of(spark, [(1, 0)], "a int, b int")
    with temporary_settings(spark, {**INTERPRETED, "spark.sql.ansi.enabled": "true"}):
        quotients = numbers.select("b", sf.expr("a / b").alias("c"))
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO") as failure:
            numbers.join(sf.broadcast(quotients), "b").toArrow()
    error_type, message = explain(failure.value)
    assert error_type in {"SparkArithmeticException", "ArithmeticException"}
    assert message == "Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead."
    place = r"^steps\.x\.with\.query: Division by .* \(line 1, column 8\)$"
    with pytest.raises(Problems, match=place), located_in({"x": {"query": "SELECT a / b"}}):
        raise failure.value


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            "a / b > 1",
            "steps.kept.with.where: Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL "
            "instead. (line 1, column 1)",
        ),
        ("b > 0", "Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead."),
    ],
)
def test_an_error_of_spark_is_in_the_sql_of_a_step_if_it_is_in_one_of_them(spark, where, message):
    steps = {"kept": {"where": where}, "other": {"query": "SELECT a FROM kept WHERE a > 1", "limit": 3}}
    numbers = frame_of(spark, [(1, 0)], "a int, b int")
    with (
        temporary_settings(spark, {**INTERPRETED, "spark.sql.ansi.enabled": "true"}),
        pytest.raises((ArithmeticException, Problems)) as failure,
        located_in(steps),
    ):
        spark.sql("SELECT * FROM {t} WHERE a / b > 1", t=numbers).toArrow()
    assert explain(failure.value)[1] == message
