"""Steps on their own: on tables of this process, on files from a shell, and without any cloud."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

from slackwater import steps
from slackwater.arrow.session import temporary_settings
from slackwater.cli.main import run as run_command
from slackwater.errors import DataError, DefinitionError, InputError, UnknownName
from slackwater.problems import Problems
from slackwater.spark.standalone import run_step
from slackwater.steps import registry
from slackwater.steps.step import Load, Parameters
from tests.step_package import installed_package

TABLE = pa.table(
    {
        "v": pa.array([3, 1, None, 2], pa.int64()),
        "name.ä": ["x", "y", None, "z"],
        "at": pa.array([datetime(2013, 3, 10, 2, 30)] * 4, pa.timestamp("us")),
        "price": [Decimal("1.10"), None, Decimal("3.30"), Decimal("-4.40")],
    }
)
EXPECTED = TABLE.filter(pc.greater(TABLE["v"], 1))


@pytest.fixture(autouse=True)
def session(spark):
    """The active session, which a step uses."""
    return spark


def test_an_arrow_table_gives_an_arrow_table_and_a_record():
    result = run_step("filter", TABLE, {"where": "v > 1"})
    assert result.table.combine_chunks() == EXPECTED
    record = result.record.model_dump(exclude={"seconds", "effect", "bytes_in", "bytes_out"})
    assert record == {
        "name": "filter",
        "step": "filter",
        "parameters": {"where": "v > 1"},
        "rows_in": {"rows": 4},
        "rows_out": 2,
    }
    assert result.record.seconds > 0


def test_rows_after_an_empty_chunk_count():
    chunked = pa.concat_tables([TABLE.slice(0, 2), TABLE.slice(0, 0), TABLE.slice(2)])
    assert run_step("filter", chunked, {"where": "v > 1"}).table.combine_chunks() == EXPECTED


def test_a_pandas_frame_gives_a_pandas_frame_whose_nan_are_missing_values():
    frame = pd.DataFrame({"v": [1.0, float("nan"), 3.0], "c": pd.Categorical(["a", "b", "a"])}, index=[7, 8, 9])
    result = steps.run("filter", frame, where="v IS NULL OR v > 2")
    assert isinstance(result, pd.DataFrame)
    expected = frame[frame["v"].isna() | (frame["v"] > 2)].reset_index(drop=True).astype({"c": "str"})
    pd.testing.assert_frame_equal(result, expected)


def test_a_spark_frame_gives_a_spark_frame_that_is_computed_once(spark):
    calls = spark.sparkContext.accumulator(0)

    def count(value: int) -> int:
        calls.add(1)
        return value

    spark.udf.register("count_calls", count, "long")
    frame = spark.createDataFrame(TABLE.select(["v"])).selectExpr("count_calls(v) AS v")
    result = run_step("filter", frame, {"where": "v > 1"})
    assert isinstance(result.table, DataFrame)
    assert sorted(row.v for row in result.table.collect()) == [2, 3]
    assert (result.record.rows_in, result.record.rows_out, calls.value) == ({"rows": 4}, 2, 4)


def test_several_inputs_are_named_by_their_roles_in_any_order():
    right = pa.table({"v": pa.array([3, 4], pa.int64()), "w": ["three", "four"]})
    result = steps.run("join", {"right": right, "left": TABLE.select(["v"])}, keys=["v"], how="inner")
    assert result.to_pylist() == [{"v": 3, "w": "three"}]


def test_an_extract_reads_below_the_current_folder_and_a_load_writes_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ü b.csv").write_text("id,at\n1,2013-03-10T02:30:00Z\n2,\n")
    rows = steps.run("read_csv", path="in/*.csv", fields={"id": "int64", "at": "timestamp"})
    assert rows["id"].to_pylist() == [1, 2]
    result = run_step("write_parquet", rows, {"path": "out/all.parquet"})
    assert result.table is rows
    assert (result.record.rows_in, result.record.effect["path"]) == ({"rows": 2}, "out/all.parquet")
    assert pq.read_table(tmp_path / "out" / "all.parquet").to_pylist() == rows.to_pylist()


def test_a_load_gets_the_rows_of_a_spark_frame(spark, monkeypatch):
    count = Load(name="count", parameters=Parameters, write=lambda frame, *_: {"rows": frame.count()})
    monkeypatch.setattr(registry, "registry", lambda: {"count": count})
    record = run_step("count", spark.range(3), {}).record
    assert (record.rows_in, record.rows_out, record.effect) == ({"rows": None}, None, {"rows": 3})


def test_the_session_has_the_settings_that_change_results_only_during_the_step(spark):
    with temporary_settings(spark, {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.ansi.enabled": "false"}):
        rows = steps.run("sql", TABLE, query="SELECT current_timezone() AS zone FROM input LIMIT 1")
        assert rows.to_pylist() == [{"zone": "UTC"}]
        with pytest.raises(DataError, match=r"^sql: The value 'x' "):
            steps.run("sql", TABLE, query="SELECT CAST(`name.ä` AS int) FROM input")
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (("jion", TABLE, {}), UnknownName, r"^no step 'jion' \(did you mean join\?\)$"),
        (("filter", TABLE, {"were": "v > 1"}), DefinitionError, r"filter\.with\.were: Extra inputs are not permitted"),
        (("filter", TABLE, {"where": "w > 1"}), Problems, r"^filter\.with\.where: no column 'w' in rows"),
        (("filter", None, {"where": "v > 1"}), InputError, r"^filter: no input rows \(its inputs: rows\)$"),
        (("filter", [1], {"where": "v > 1"}), InputError, r"^filter: the input rows is a list: use a pyarrow\.Table"),
        (("join", TABLE, {}), InputError, r"^join: no input right \(its inputs: left, right\)$"),
        (("join", {"left": TABLE, "rite": TABLE}, {}), InputError, r"^join: no input right "),
        (("filter", {"rows": TABLE, "more": TABLE}, {}), InputError, r"^filter: it has no input more "),
        (("read_csv", TABLE, {}), InputError, r"^read_csv: it has no input rows \(its inputs: none\)$"),
        (("sql", {"A b": TABLE}, {"query": "SELECT 1"}), InputError, r"^sql: names of inputs are such as left"),
        (("sql", {"sql": TABLE}, {"query": "SELECT 1"}), InputError, r"^sql: an input may not have the name of the"),
        (("read_csv", None, {"path": "x.csv", "fields": {"a": "string"}}), InputError, r"^read_csv: path: no file x"),
        (
            ("filter", pa.table({"u": pa.array([1], pa.uint64())}), {"where": "u > 0"}),
            InputError,
            r"rows has .* uint64",
        ),
    ],
)
def test_a_fault_names_the_step_and_the_parameter_or_the_input(call, error, message):
    with pytest.raises(error, match=message) as caught:
        run_step(*call)
    assert type(caught.value) is error


def test_an_installed_step_runs_like_those_of_the_library(tmp_path):
    with installed_package(tmp_path):
        result = run_step("in_celsius", pa.table({"temp": [32.0, None, 212.0]}), {"column": "temp"})
    assert result.table["temp"].to_pylist() == [0.0, None, 100.0]
    assert result.record.effect == {"converted": 2}


def test_the_command_runs_a_step_on_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.csv").write_text('v,name\n3,x\n1,\n2,""\n')
    arguments = ["step", "run", "filter", "--input", "in.csv", "--with", "where=v < 3"]
    assert run_command(arguments) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == ["v  name", "1", "2"]
    assert "filter: 3 rows in, 2 rows out, " in shown.err
    assert run_command([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["columns"], document["rows"]) == (["v", "name"], [[1, None], [2, ""]])
    assert document["record"]["rows_out"] == 2
    assert run_command([*arguments, "--output", "out.parquet", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == ["record"]
    assert pq.read_table("out.parquet").to_pylist() == [{"v": 1, "name": None}, {"v": 2, "name": ""}]
