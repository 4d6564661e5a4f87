"""The steps of a pipeline together: what each of them did is counted in the pass that computes the result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as sf

from slackwater.arrow.exchange import observed_values, write_frame
from slackwater.errors import DataError, DefinitionError
from slackwater.pipeline.definition import StepUse
from slackwater.spark.run_steps import AppliedSteps
from slackwater.steps import columns, registry, sql_functions
from slackwater.steps.spark_errors import explain
from slackwater.steps.step import Effect, Parameters, StepContext, Transform
from tests.fakes_spark import PRODUCER
from tests.spark.frames import frame_of

STEPS = Path(columns.__file__).parent


class NoNegative(Parameters):
    limit: int = 0


def drop_negative(frames, _parameters: NoNegative, context: StepContext):
    (frame,) = frames.values()
    is_negative = sf.col("v") < 0
    return context.observe(frame, {"negative": sf.count_if(is_negative)}).where(~is_negative)


def refuse_many(parameters: NoNegative, effect: Effect) -> None:
    if effect["negative"] > parameters.limit:
        raise DataError(f"{effect['negative']} negative rows, and at most {parameters.limit} are allowed")


DROP_NEGATIVE = Transform(name="drop_negative", parameters=NoNegative, apply=drop_negative, verify=refuse_many)


@pytest.fixture(autouse=True)
def steps(monkeypatch):
    """Add a step that observes its rows and refuses them."""
    known = {**registry.registry(), "drop_negative": DROP_NEGATIVE}
    monkeypatch.setattr(registry, "registry", lambda: known)


@pytest.fixture
def sides(spark):
    left = frame_of(spark, [(1, "a"), (2, "b"), (None, "c")], "k int, l string")
    right = frame_of(spark, [(1, 10.0), (3, -30.0), (None, 0.0)], "k int, v double")
    return {"left": left, "right": right}


def use(step: str, *inputs: str, **parameters: Any) -> StepUse:
    return StepUse.model_validate({"step": step, "depends_on": inputs, "with": parameters})


def sql(query: str, *inputs: str) -> StepUse:
    return use("sql", *inputs, query=query)


@pytest.fixture
def run(spark, stores, sides):
    def run_steps(known_rows: Mapping[str, int] | None = None, **uses: StepUse):
        """Compute the last step; return the records of all steps by name."""
        applied = AppliedSteps(uses, sides, StepContext(spark=spark), known_rows=known_rows)
        applied.compute_ahead()
        last = list(uses)[-1]
        written = write_frame(applied[last], "s3://x/", producer=PRODUCER, stores=stores, input_bytes=0)
        records = applied.records(written.observed, rows={last: written.manifest.rows}, seconds=0.5)
        applied.release()
        return {record.name: record for record in records}

    return run_steps


def test_rows_in_and_out_parameters_and_effect_of_each_step_are_recorded(run):
    records = run(
        positive=use("drop_negative", "right", limit=1),
        joined=use("join", "left", "positive", keys=["k"], how="left"),
        total=sql("SELECT sum(v) AS v FROM joined WHERE k IS NOT NULL", "joined"),
    )
    assert [record.model_dump(exclude={"name"}) for record in records.values()] == [
        {
            "step": "drop_negative",
            "parameters": {"limit": 1},
            "rows_in": {"right": 3},
            "rows_out": 2,
            "effect": {"negative": 1},
            "seconds": None,
            "bytes_in": {"right": None},
            "bytes_out": None,
        },
        {
            "step": "join",
            "parameters": {"keys": ["k"], "how": "left"},
            "rows_in": {"left": 3, "positive": 2},
            "rows_out": 3,
            "effect": {"left_unmatched": 2},
            "seconds": None,
            "bytes_in": {"left": None, "positive": None},
            "bytes_out": None,
        },
        {
            "step": "sql",
            "parameters": {"query": "SELECT sum(v) AS v FROM joined WHERE k IS NOT NULL"},
            "rows_in": {"joined": 3},
            "rows_out": 1,
            "effect": {},
            "seconds": None,
            "bytes_in": {"joined": None},
            "bytes_out": None,
        },
    ]


def test_the_rows_of_an_input_that_are_known_are_not_counted(run):
    assert run({"left": 17, "right": 4}, all=sql("SELECT * FROM left", "left"))["all"].rows_in == {"left": 17}


def test_a_frame_that_several_steps_read_is_computed_once(spark, run, monkeypatch):
    calls = spark.sparkContext.accumulator(0)

    def count(value: float) -> float:
        calls.add(1)
        return value

    spark.udf.register("count_calls", count, "double")
    monkeypatch.setitem(sql_functions.spark_arities(), "count_calls", None)
    records = run(
        one=sql("SELECT k, count_calls(v) AS v FROM right", "right"),
        low=sql("SELECT * FROM one WHERE v < 5", "one"),
        high=sql("SELECT * FROM one WHERE v >= 5", "one"),
        both=sql("SELECT * FROM low UNION ALL SELECT * FROM high", "low", "high"),
    )
    assert {name: record.rows_out for name, record in records.items()} == {"one": 3, "low": 2, "high": 1, "both": 3}
    assert calls.value == 3
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()


def test_the_rows_of_a_step_that_spark_need_not_compute_are_unknown(run):
    records = run(all=sql("SELECT * FROM left", "left"), none=sql("SELECT * FROM all WHERE false", "all"))
    assert (records["all"].rows_out, records["none"].rows_out) == (None, 0)


def test_a_step_that_spark_need_not_compute_checks_its_rows_nevertheless(run):
    none = sql("SELECT * FROM positive WHERE false", "positive")
    assert run(positive=use("drop_negative", "right", limit=1), none=none)["positive"].effect == {"negative": 1}
    with pytest.raises(DataError, match=r"^steps\.positive: 1 negative rows, and at most 0 are allowed$"):
        run(positive=use("drop_negative", "right"), none=none)


def test_each_problem_names_the_step_and_its_parameter_in_one_line(run):
    with pytest.raises(DefinitionError) as raised:
        run(wrong=use("delete_columns", "left", columns=["x", "y"]))
    assert re.fullmatch(
        r"steps\.wrong\.with\.columns\.0: no column 'x' in left .*; steps\.wrong\.with\.columns\.1: no column 'y' .*",
        explain(raised.value)[1],
    )


def test_a_problem_of_a_query_names_the_step_and_its_parameter(run):
    with pytest.raises(DefinitionError, match=r"^steps\.wrong\.with\.query: no column 'nothing' in left"):
        run(wrong=sql("SELECT nothing FROM left", "left"))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM checked LIMIT 1",
        "SELECT * FROM checked WHERE EXISTS (SELECT 1 FROM checked LIMIT 1)",
        "SELECT * FROM checked ORDER BY v",
        "SELECT checked.v FROM checked JOIN few ON checked.v = few.v",
    ],
)
def test_a_check_sees_every_row_once_whatever_later_steps_need(spark, store, stores, query):
    """Spark stops reading at a limit, and reads twice to sort: what it observes then is not the rows of the day."""
    many = spark.range(0, 1000, 1, 1).select((500 - sf.col("id")).alias("v"))
    uses = {"checked": use("drop_negative", "many", limit=499), "last": sql(query, "checked", "few")}
    if "few" not in query:
        uses["last"] = sql(query, "checked")
    steps = AppliedSteps(uses, {"many": many, "few": spark.range(1, 2).toDF("v")}, StepContext(spark=spark))
    steps.compute_ahead()
    written = write_frame(steps["last"], "s3://exchange/last/", producer=PRODUCER, stores=stores, input_bytes=0)
    checked = steps.records(written.observed, seconds=0, rows={})[0]
    assert (checked.effect["negative"], checked.rows_in["many"], checked.rows_out) == (499, 1000, 501)
    steps.release()


@pytest.mark.parametrize("how", ["left", "full"])
def test_checked_rows_are_not_cached_when_the_later_steps_read_all_of_them(spark, store, stores, how):
    many = spark.range(0, 1000, 1, 2).select((500 - sf.col("id")).alias("v"))
    none = spark.range(0).toDF("v")
    uses = {
        "checked": use("drop_negative", "many", limit=499),
        "even": use("filter", "checked", where="v % 2 = 0"),
        "joined": use("join", "even", "none", keys=["v"], how=how),
        "last": sql("SELECT count(*) AS n FROM joined", "joined"),
    }
    steps = AppliedSteps(uses, {"many": many, "none": none}, StepContext(spark=spark))
    steps.compute_ahead()
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty()
    written = write_frame(steps["last"], "s3://exchange/all/", producer=PRODUCER, stores=stores, input_bytes=0)
    checked, even, *_ = steps.records(written.observed, seconds=0, rows={})
    assert (checked.effect["negative"], checked.rows_in["many"], checked.rows_out) == (499, 1000, 501)
    assert even.rows_out == 251


@pytest.mark.parametrize("how", ["inner", "right", "semi"])
def test_checked_rows_are_cached_when_a_join_may_leave_them_unread(spark, how):
    many = spark.range(0, 1000, 1, 2).select((500 - sf.col("id")).alias("v"))
    uses = {
        "checked": use("drop_negative", "many", limit=499),
        "joined": use("join", "checked", "none", keys=["v"], how=how),
    }
    steps = AppliedSteps(uses, {"many": many, "none": spark.range(0).toDF("v")}, StepContext(spark=spark))
    steps.compute_ahead()
    steps["joined"].toArrow()
    checked = steps.records(observed_values(steps["joined"]), seconds=0, rows={})[0]
    assert (checked.effect["negative"], checked.rows_out) == (499, 501)
    steps.release()


def test_the_count_of_a_step_itself_is_the_number_of_its_rows(run):
    """`data_quality` counts its rows with its rules."""
    rules = [{"rule": "range", "column": "v", "min": 0, "severity": "reject"}]
    record = run(good=use("data_quality", "right", rules=rules, key=["k"]), last=sql("SELECT * FROM good", "good"))
    assert (record["good"].rows_in, record["good"].rows_out) == ({"right": 3}, 2)
    assert record["good"].effect["rows_rejected"] == 1
    assert record["good"].effect["results"][0]["examples"] == [{"k": 3, "v": -30.0}]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM plain LIMIT 1",
        "SELECT * FROM plain LIMIT 1 OFFSET 2",
        "SELECT * FROM (SELECT * FROM plain ORDER BY v LIMIT 3)",
        "SELECT * FROM plain ORDER BY v",
        "SELECT a.v FROM plain a JOIN plain b ON a.v = b.v",
        "SELECT * FROM plain WHERE v > (SELECT avg(v) FROM plain)",
        "SELECT v FROM plain UNION ALL SELECT v FROM plain",
        "SELECT v, rank() OVER (ORDER BY v) AS r FROM plain",
    ],
)
def test_the_rows_that_a_query_reads_are_counted_once(spark, query):
    many = spark.range(0, 1000, 1, 2).select((500 - sf.col("id")).alias("v"))
    plain = use("filter", "many", where="v > 0")
    steps = AppliedSteps({"plain": plain, "last": sql(query, "plain")}, {"many": many}, StepContext(spark=spark))
    steps.compute_ahead()
    rows = steps["last"].toArrow().num_rows
    first, last = steps.records(observed_values(steps["last"]), seconds=0, rows={"last": rows})
    assert (first.rows_in, first.rows_out, last.rows_in) == ({"many": 1000}, 500, {"plain": 500})
    steps.release()


def test_the_rows_of_an_input_that_a_query_sorts_are_counted_once(spark):
    many = spark.range(0, 1000, 1, 2).toDF("v")
    steps = AppliedSteps(
        {"last": sql("SELECT * FROM many ORDER BY v", "many")}, {"many": many}, StepContext(spark=spark)
    )
    steps.compute_ahead()
    steps["last"].toArrow()
    (record,) = steps.records(observed_values(steps["last"]), seconds=0, rows={"last": 1000})
    assert record.rows_in == {"many": 1000}
    steps.release()


def test_columns_of_underscores_are_kept_when_rows_are_counted(spark):
    rows = frame_of(spark, [(1, 2), (3, 4)], "_ int, __ int")
    steps = AppliedSteps({"last": use("filter", "rows", where="_ < 3")}, {"rows": rows}, StepContext(spark=spark))
    assert steps["last"].toArrow().to_pylist() == [{"_": 1, "__": 2}]
    (record,) = steps.records(observed_values(steps["last"]), seconds=0, rows={})
    assert (record.rows_in, record.rows_out) == ({"rows": 2}, 1)


def test_the_names_that_steps_give_to_their_own_columns_are_reserved():
    code = "".join(path.read_text() for path in [*STEPS.glob("transform/*.py"), *STEPS.glob("*.py")])
    names = set(re.findall(r"""["'](__[a-z][a-z_]*(?:\{\w+\})?)""", code)) - {"__name__", "__main__"}
    assert {"__position", "__failed_{index}", "__rows_per_key", "__statistic_{name}"} <= names
    assert [name for name in names if not columns._RESERVED.fullmatch(name.replace("{index}", "0"))] == []


@pytest.mark.parametrize("name", ["__position", "__FAILED_0", "__value_k", "__low_x\ny"])
def test_a_column_with_the_name_of_a_steps_own_is_refused(spark, name):
    """Otherwise the step would replace it, and remove it at the end."""
    frame = spark.createDataFrame([(1, 2)], ["k", name])
    uses = {"latest": use("deduplicate", "rows", keys=["k"], order_by=["k2"])}
    with pytest.raises(DefinitionError, match=r"(?s)steps.latest.depends_on: rows has a column __.*: rename it"):
        AppliedSteps(uses, {"rows": frame}, StepContext(spark=spark))
