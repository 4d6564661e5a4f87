"""`slackwater dev`: the same rows as a run, and only the steps run again that a change reaches."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from examples.nyc_flights.feed import make_feed
from slackwater.arrow.dataset import load_manifest
from slackwater.arrow.exchange import read_frame
from slackwater.cli.main import run as run_command
from slackwater.dev.loop import DevLoop
from slackwater.dev.samples import Samples
from slackwater.project.project import load_project
from slackwater.spark.standalone import columns_of, first_rows
from slackwater.steps.io.local_folder import files_below
from slackwater.steps.step import StepContext
from tests.independent import assert_same_table, daily_delays
from tests.spark.conftest import ROOT, jvm_variables
from tests.spark.nyc import Day
from tests.step_package import MODULE, installed_package, write_package

DATE = "2013-03-08"
STEPS = ("checked_flights", "hourly_weather", "flights_with_weather", "delays_by_carrier")
PIPELINE = """
pipeline: trial
sources: [weather]
{more}
steps:
{steps}
publish: {{step: {publish}, key: [date]}}
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, list[Path]]:
    feed = make_feed(tmp_path_factory.mktemp("feed"), [DATE])
    return {"flights": sorted(feed.flights.glob("*.csv")), "weather": [feed.weather]}


@pytest.fixture
def project(tmp_path) -> Path:
    folder = tmp_path / "project"
    for name in ("sources", "pipelines"):
        shutil.copytree(ROOT / "examples" / "nyc_flights" / name, folder / name)
    return folder


def open_loop(project, files, *, pipeline="daily_delays", rows=1000, show=1000) -> DevLoop:
    def connect(_project):
        raise AssertionError

    samples = Samples(files, rows=rows, connect=connect)
    return DevLoop(project, pipeline, DATE, samples=samples, rows=rows, show=show)


@pytest.fixture
def trial(project, files, spark, tmp_path):
    """Write the pipeline `trial` over `weather`; return its file, and a function that runs its loop."""
    path = project / "pipelines" / "trial.yaml"

    def open_trial(steps, *, publish, more="", **options):
        path.write_text(PIPELINE.format(steps=steps, publish=publish, more=more))
        loop = open_loop(project, {"weather": files["weather"]}, pipeline="trial", **options)
        return partial(loop.run, lambda: StepContext(spark=spark, files=files_below(tmp_path)))

    return path, open_trial


def change(path, before, after):
    content = path.read_text()
    assert before in content
    path.write_text(content.replace(before, after))


def states(result):
    return {step.name: step.state.value for step in result.steps}


def outcome(result, name):
    (found,) = (step for step in result.steps if step.name == name)
    return found


def test_a_whole_day_agrees_with_an_independent_computation(spark, project, files, tmp_path):
    result = open_loop(project, files).run(lambda: StepContext(spark=spark))
    assert result.succeeded
    published = outcome(result, "delays_by_carrier")
    expected = daily_delays(tmp_path, DATE)
    assert_same_table([[DATE, *row] for row in sorted(published.rows)], expected)
    flights = sum(row[3] for row in expected)
    assert (published.record.rows_in, published.record.rows_out) == ({"flights_with_weather": flights}, len(expected))
    assert published.columns[:3] == (("origin", "string"), ("carrier", "string"), ("flights", "bigint"))
    assert outcome(result, "checked_flights").record.effect["results"][0]["checked"] == flights


def test_a_sample_gives_the_rows_that_the_job_of_a_run_computes_from_it(spark, store, stores, project, files):
    loop = open_loop(project, files, rows=150)
    samples = loop.take_samples()
    assert {name: sample.table.num_rows for name, sample in samples.items()} == {"flights": 150, "weather": 72}
    result = loop.run(lambda: StepContext(spark=spark))
    day = Day(store=store, project=load_project(project), date=DATE)
    for name, sample in samples.items():
        day = day.with_events(name, sample.table.to_pylist())
    (reference,) = day.freeze().run(spark, stores).values()
    manifest = load_manifest(reference.manifest, store=store)
    computed = sorted(tuple(row) for row in read_frame(spark, manifest, stores=stores).collect())
    # Means depend on the order in which Spark adds the rows.
    tried = sorted(outcome(result, "delays_by_carrier").rows)
    assert_same_table([[DATE, *row] for row in tried], [(DATE, *row) for row in computed])
    measured = {"seconds", "bytes_in", "bytes_out"}
    expected = [record.model_dump(exclude=measured) for record in manifest.steps]
    assert [step.record.model_dump(exclude=measured) for step in result.steps] == expected


EDITS = [
    ("pipelines/daily_delays.yaml", "max: 6000", "max: 6001", [0, 2, 3]),
    ("pipelines/daily_delays.yaml", "wind_speed, precip]", "precip, wind_speed]", [1, 2, 3]),
    ("pipelines/daily_delays.yaml", "how: left", "how: inner", [2, 3]),
    ("pipelines/daily_delays.yaml", "dep_delay, 0.9", "dep_delay, 0.5", [3]),
    ("pipelines/daily_delays.yaml", "deadline_hours: 12", "deadline_hours: 13  # later", []),
    ("pipelines/daily_delays.yaml", "timezone: America/New_York", "timezone: America/Chicago", [0, 1, 2, 3]),
    ("sources/weather.yaml", 'null_values: ["", NA]', 'null_values: [""]', [1, 2, 3]),
    ("sources/weather.yaml", "silent_hours: 24", "silent_hours: 25", []),
]
"""One after the other, and which steps run again after each."""
TIMEZONE = 5
"""The edit after which all steps run again, so that no row of an earlier edit is left."""


def test_a_change_runs_again_exactly_what_it_reaches(spark, project, files):
    loop = open_loop(project, files, show=0)
    again = loop.run(lambda: StepContext(spark=spark))
    assert set(states(again).values()) == {"done"}

    def facts(result):
        return [(step.columns, step.record.model_dump(exclude={"seconds"})) for step in result.steps]

    for edits in (EDITS[:TIMEZONE], EDITS[TIMEZONE:]):
        for file, before, after, executed in edits:
            change(project / file, before, after)
            again = loop.run(lambda: StepContext(spark=spark))
            expected = {name: "done" if index in executed else "unchanged" for index, name in enumerate(STEPS)}
            assert (states(again), again.executed, again.succeeded) == (expected, len(executed), True), after
        fresh = open_loop(project, files, show=0).run(lambda: StepContext(spark=spark))
        assert facts(again) == facts(fresh)


def test_results_are_kept_while_the_definition_is_broken(spark, project, files):
    loop, path = open_loop(project, files), project / "pipelines" / "daily_delays.yaml"
    first = loop.run(lambda: StepContext(spark=spark))
    change(path, "step: join", "step: jion")
    broken = loop.run(lambda: StepContext(spark=spark))
    (problem,) = broken.problems
    assert (problem.file, problem.line, problem.suggestion) == (path, 20, "join")
    assert (broken.steps, broken.succeeded) == ((), False)
    change(path, "step: jion", "step: join")
    mended = loop.run(lambda: StepContext(spark=spark))
    assert set(states(mended).values()) == {"unchanged"}
    assert [step.rows for step in mended.steps] == [step.rows for step in first.steps]


def test_a_step_that_fails_is_named_and_only_what_reads_it_is_left_out(spark, project, files):
    loop, path = open_loop(project, files), project / "pipelines" / "daily_delays.yaml"
    change(path, "max: 6000", "max: 1")
    failed = loop.run(lambda: StepContext(spark=spark))
    assert list(states(failed).values()) == ["failed", "done", "skipped", "skipped"]
    assert not failed.succeeded
    assert failed.steps[0].error.startswith("checked_flights: range of distance failed in 979 of 979 checked rows")
    assert failed.steps[2].error == "checked_flights has no result"
    change(path, "max: 1}", "max: 6000}")
    mended = loop.run(lambda: StepContext(spark=spark))
    assert list(states(mended).values()) == ["done", "unchanged", "done", "done"]
    change(path, "avg(wind_speed) ", "avg(1 / (year - 2013))")
    failed = loop.run(lambda: StepContext(spark=spark)).steps[3]
    assert failed.error.startswith(
        "delays_by_carrier.with.query: Division by zero. Use `try_divide` to tolerate divisor"
    )
    assert failed.problem is not None
    assert (failed.problem.line, failed.problem.column) == (37, 15)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("temp + true", 'Cannot resolve "(temp + true)" due to data type mismatch'),
        ("to_date(origin)", 'The value \'EWR\' of the type "STRING" cannot be cast to "DATE" because it is malformed.'),
        ("if(origin > 3, 1, 2)", 'The value \'EWR\' of the type "STRING" cannot be cast to "BIGINT"'),
        ("raise_error(origin)", "EWR"),
    ],
)
def test_what_only_spark_finds_has_its_position_in_the_file(trial, expression, message):
    path, open_trial = trial
    query = f"|\n        SELECT temp,\n          {expression} AS made\n        FROM weather WHERE origin = 'EWR'"
    step = f"  made:\n    step: sql\n    depends_on: [weather]\n    with:\n      query: {query}\n"
    problem = outcome(open_trial(step, publish="made")(), "made").problem
    assert problem is not None
    lines = path.read_text().splitlines()
    assert problem.message.startswith(message)
    assert not re.search(r"SQLSTATE|\[[A-Z_]+\]|java|spark\.sql", problem.message)
    if expression != "raise_error(origin)":
        assert lines[problem.line - 1][problem.column - 1 :].startswith(expression.removeprefix("if("))
        assert problem.place == "steps.made.with.query"


def test_code_of_a_step_is_imported_again_and_its_errors_have_a_line(trial, tmp_path):
    _, open_trial = trial
    step = "  {name}: {{step: in_celsius, depends_on: [{read}], with: {{column: temp}}}}\n"
    with installed_package(tmp_path / "site-packages"):
        module = tmp_path / "site-packages" / "acme_steps" / "in_celsius.py"
        plain = "  plain: {step: select, depends_on: [weather], with: {columns: [origin, temp]}}\n"
        run = open_trial(plain + step.format(name="converted", read="plain"), publish="converted")
        before = outcome(run(), "converted").rows
        module.write_text(MODULE.replace("- 32) / 1.8", "- 32)"))
        again = run()
        assert states(again) == {"plain": "unchanged", "converted": "done"}
        after = outcome(again, "converted").rows
        assert [row[1] for row in after] == pytest.approx([row[1] * 1.8 for row in before])
        module.write_text(MODULE.replace("frames.values()", "frames['none']"))
        line = 1 + MODULE.partition("frames.values()")[0].count("\n")
        assert outcome(run(), "converted").error == f"KeyError: 'none' ({module}:{line})"


def test_a_step_that_looks_up_another_result_runs_again_with_it(trial, tmp_path):
    path, open_trial = trial
    lookup = (
        'return context.earlier_versions["first"].join(context.read_source("weather").limit(1).selectExpr("1 AS x"))'
    )
    steps = """
  first: {step: filter, depends_on: [weather], with: {where: temp > 30}, exchange: true}
  other: {step: select, depends_on: [weather], with: {columns: [origin]}}
  last: {step: in_celsius, depends_on: [other], with: {column: temp}}
  both: {step: sql, depends_on: [first, last], with: {query: SELECT * FROM last}}
"""
    with installed_package(tmp_path / "site-packages"):
        body = (
            MODULE.partition("    (frame,) = frames.values()")[0]
            + f"    {lookup}\n\n\nSTEP"
            + MODULE.partition("\nSTEP")[2]
        )
        (tmp_path / "site-packages" / "acme_steps" / "in_celsius.py").write_text(body)
        run = open_trial(steps, publish="both")
        first = run()
        assert first.succeeded, first
        assert outcome(first, "last").record.rows_out == outcome(first, "first").record.rows_out
        assert set(states(run()).values()) == {"unchanged"}
        change(path, "temp > 30", "temp > 35")
        again = run()
    assert states(again) == {"first": "done", "other": "unchanged", "last": "done", "both": "done"}
    assert 0 < outcome(again, "last").record.rows_out < outcome(first, "last").record.rows_out


def test_steps_that_read_get_few_rows_and_steps_that_write_do_not_run(trial, tmp_path):
    _, open_trial = trial
    (tmp_path / "in.csv").write_text("id\n" + "".join(f"{number}\n" for number in range(100)))
    steps = """
  numbers: {step: read_csv, with: {path: in.csv, fields: {id: int64}}}
  stored: {step: read_partition, with: {source: weather}}
  all: {step: sql, depends_on: [numbers, stored], with: {query: SELECT id FROM numbers}}
"""
    more = "load: {report: {step: write_csv, depends_on: [all], with: {path: out.csv}}}"
    result = open_trial(steps, publish="all", more=more, rows=7)()
    rows = {step.name: step.record.rows_out for step in result.steps}
    assert rows == {"numbers": 7, "stored": 7, "all": 7}
    assert sorted(outcome(result, "all").rows) == [(number,) for number in range(7)]
    assert result.loads == {"report": "write_csv"}
    assert not (tmp_path / "out.csv").exists()


def test_first_rows_of_any_type_are_shown(spark):
    frame = spark.sql(
        """SELECT 1.50BD AS price, true AS good, DATE'2013-03-08' AS day, TIMESTAMP'2013-03-08 12:00:00.5' AS at,
        array(1, null) AS list, named_struct('a', 'b') AS pair, repeat('x', 200) AS long, null AS nothing,
        double('-inf') AS low, parse_json('[1]') AS variant, INTERVAL '2' YEAR AS years, 1 AS twice, 2 AS twice"""
    )
    expected = ("1.50", True, "2013-03-08", "2013-03-08T12:00:00.5Z", "[1,null]", '{"a":"b"}', "x" * 97 + "...", None)
    assert first_rows(frame, 5) == [(*expected, float("-inf"), "[1]", "INTERVAL '2' YEAR", 1, 2)]
    assert columns_of(frame)[-4:] == [
        ("variant", "variant"),
        ("years", "interval year"),
        ("twice", "int"),
        ("twice", "int"),
    ]


def test_a_result_that_a_run_cannot_store_is_refused(trial):
    path, open_trial = trial
    sql = "  {name}: {{step: sql, depends_on: [{read}], with: {{query: {query}}}}}\n"
    steps = sql.format(name="aged", read="weather", query="SELECT INTERVAL '2' YEAR AS age FROM weather")
    run = open_trial(steps + sql.format(name="all", read="aged", query="SELECT age FROM aged"), publish="all")
    result = run()
    assert states(result) == {"aged": "done", "all": "failed"}
    assert "all: column 'age' is of type interval year, which does not pass between stages" in result.steps[1].error
    change(path, "SELECT age FROM", "SELECT CAST(age AS string) AS age FROM")
    assert states(run()) == {"aged": "unchanged", "all": "done"}


def options(files, project):
    named = [("--input", f"{name}={path}") for name, paths in files.items() for path in paths]
    return ["daily_delays", "--date", DATE, "--project", str(project), *(word for pair in named for word in pair)]


@pytest.mark.usefixtures("spark")
def test_the_command_prints_one_document(project, files, capsys):
    change(project / "pipelines" / "daily_delays.yaml", "percentile(dep_delay, 0.9)", "percentile(dep_delay, 9)")
    assert run_command(["dev", *options(files, project), "--once", "--json", "--show", "1"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [(item["name"], item["rows"]) for item in document["inputs"]] == [("flights", 979), ("weather", 72)]
    assert [step["state"] for step in document["steps"]] == ["done", "done", "done", "failed"]
    assert (document["problems"], document["error"], document["loads"]) == ([], "", [])
    done, failed = document["steps"][1], document["steps"][3]
    assert (done["rows_in"], done["rows_out"], done["columns"][0]) == (
        {"weather": 72},
        72,
        {"name": "origin", "type": "string"},
    )
    assert done["rows"] == [["EWR", "2013-03-08T05:00:00Z", 8.05546, 0.04]]
    assert (failed["rows_out"], failed["rows"]) == (None, [])
    assert "delays_by_carrier" in failed["error"]


@pytest.fixture
def package(tmp_path) -> Path:
    """The folder of a package whose step `in_celsius` calls a function in Spark's Python workers."""
    package = write_package(tmp_path / "site-packages")
    information = package / "acme_steps-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-steps\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[slackwater.steps]\nin_celsius = acme_steps.in_celsius\n")
    module = package / "acme_steps" / "in_celsius.py"
    change(module, "def apply", "def convert(value):\n    return value * 2\n\n\ndef apply")
    change(module, "(sf.col(parameters.column) - 32) / 1.8", "sf.udf(convert, 'double')(parameters.column)")
    return package


def test_the_command_follows_changes_until_it_is_interrupted(project, files, package, tmp_path):
    module, path = package / "acme_steps" / "in_celsius.py", project / "pipelines" / "trial.yaml"
    steps = """
  plain: {step: select, depends_on: [weather], with: {columns: [origin, wind_dir]}}
  converted: {step: in_celsius, depends_on: [plain], with: {column: wind_dir}}
"""
    path.write_text(PIPELINE.format(steps=steps, publish="converted", more=""))
    arguments = ["trial", "--date", DATE, "--project", str(project), "--input", f"weather={files['weather'][0]}"]
    errors = tmp_path / "stderr"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "slackwater.cli", "dev", *arguments, "--show", "1"],
            env={**os.environ, **jvm_variables(), "PYTHONPATH": os.pathsep.join([str(package), str(ROOT / "src")])},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
    try:
        first = read_loop(process)
        change(path, "pipeline: trial", "pipeline: trial  # the same")
        second = read_loop(process)
        change(module, "value * 2", "value * 4")
        third = read_loop(process)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.communicate()
    # Nothing else is printed, neither by Spark nor by PySpark.
    assert without_seconds(first) == [
        "",
        "plain (select): weather 57 -> 57 rows, ...",
        "  columns: origin string, wind_dir double",
        "origin  wind_dir",
        "EWR          330",
        "",
        "converted (in_celsius): plain 57 -> 57 rows, ...",
        "  converted: 57",
        "  columns: origin string, wind_dir double",
        "origin  wind_dir",
        "EWR          660",
        "loop 1: ..., 2 of 2 steps run",
    ]
    assert without_seconds(second) == [
        "",
        "changed: trial.yaml",
        "plain (select): unchanged, 57 rows",
        "converted (in_celsius): unchanged, 57 rows",
        "loop 2: ..., 0 of 2 steps run",
    ]
    assert (third[2], third[-2]) == ("plain (select): unchanged, 57 rows", "EWR         1320")
    assert errors.read_text().splitlines() == [
        f"trial for {DATE}: reading the definitions and a sample of at most 1,000 rows ...",
        f"weather: 57 rows from {files['weather'][0]}",
        "starting Spark, which takes some seconds ...",
        *["waiting for a change; Ctrl-C ends ..."] * 3,
        "interrupted",
    ]
    while group_exists(process.pid):  # the JVM ends after its parent; the test's timeout bounds the wait
        time.sleep(0.1)


def read_loop(process):
    """Return the lines of the next loop."""
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith("loop "):
            break
    return lines


def without_seconds(lines):
    return [re.sub(r"\d+\.\d\d s", "...", line) for line in lines]


def group_exists(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
