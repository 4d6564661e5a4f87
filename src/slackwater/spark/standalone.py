"""Run one step on its own, on tables of this process: without a pipeline, and without any cloud.

`run_step` runs a step once. `slackwater.dev` computes the steps of a pipeline one after the other with `compute_step`,
in a session that stays open.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pydantic import ValidationError
from pyspark.errors import AnalysisException, PySparkException, PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from slackwater import errors
from slackwater.arrow.exchange import frame_of, observed_values
from slackwater.arrow.reference import StepRecord
from slackwater.arrow.schema import arrow_schema_of
from slackwater.arrow.session import temporary_settings
from slackwater.errors import DataError, DefinitionError, InputError, SlackwaterError
from slackwater.pipeline.definition import StepUse
from slackwater.spark.job import RESULT_SETTINGS
from slackwater.spark.run_loads import write_rows
from slackwater.spark.run_steps import AppliedSteps
from slackwater.steps.io.local_folder import files_below
from slackwater.steps.registry import find_step, parameters_of
from slackwater.steps.spark_errors import explain, located_in, silence_query_logger
from slackwater.steps.step import Extract, Load, Step, StepContext
from slackwater.steps.values import readable

_LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # The default, 200, is for clusters.
    "spark.sql.shuffle.partitions": "8",
}
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}
"""Spark interprets expressions, and plans the whole query before it runs: a new step on few rows starts sooner."""
# A session in which steps run again and again on few rows.
_LOOP_SETTINGS = {
    **INTERPRETED,
    # The second compiler's threads cost more than their code saves.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # A worker that is used again would keep the modules of steps as it imported them first.
    "spark.python.worker.reuse": "false",
}
_LOOP_CORES = 2
_CELL_LENGTH = 100


class StepResult(NamedTuple):
    """The rows of a step, and what it did."""

    table: Any
    """Of the type of the first input. A step that writes rows returns its first input."""
    record: StepRecord


def run_step(name: str, tables: Any, parameters: Mapping[str, Any], *, folder: Path | None = None) -> StepResult:
    """Run one step on its own, in the active Spark session or a new local one.

    `tables` is what `slackwater.steps.run` accepts, and `folder` holds the files that the step may read and write; the
    default is the current folder. The frame that is returned for a Spark DataFrame is computed, and Spark keeps its
    rows as long as the frame exists.

    Raises `UnknownName` for an unknown step, `InputError` for an input that is missing, unknown or of another type,
    `DefinitionError` naming the parameter that is wrong or does not fit the input, and `DataError` for rows that the
    step or Spark refuses.
    """
    step = find_step(name)
    inputs = _inputs_of(step, tables)
    try:
        use = StepUse.model_validate({"step": name, "depends_on": list(inputs), "with": dict(parameters)})
    except ValidationError as error:
        raise InputError(
            f"{name}: names of inputs are such as left or flights_2013, not {', '.join(inputs)}"
        ) from error
    parameters_of(name, use)  # before Spark starts
    spark = next((table.sparkSession for table in inputs.values() if isinstance(table, DataFrame)), None) or _session()
    context = StepContext(spark=spark, files=files_below(folder or Path.cwd()))
    began = time.monotonic()
    with temporary_settings(spark, RESULT_SETTINGS), _explained(name):
        frames = {role: _frame_of(spark, role, table) for role, table in inputs.items()}
        rows = {role: len(table) for role, table in inputs.items() if not isinstance(table, DataFrame)}
        if isinstance(step, Load):
            record = write_rows(name, use, frames, context, rows=rows)
            return StepResult(next(iter(inputs.values())), record)
        applied = AppliedSteps({name: use}, frames, context, known_rows=rows)
        result = applied[name]
        like = next(iter(inputs.values()), None)
        table: Any
        if isinstance(like, DataFrame):
            table, rows_out = result.localCheckpoint(), {}
        else:
            table = result.toArrow()
            rows_out = {name: table.num_rows}
        (record,) = applied.records(observed_values(result), rows=rows_out, seconds=time.monotonic() - began)
    return StepResult(table.to_pandas() if _is_pandas(like) else table, record)


class ComputedFrame(NamedTuple):
    """Rows that Spark keeps as long as the frame exists."""

    frame: DataFrame
    rows: int


def frame_of_table(spark: SparkSession, name: str, table: pa.Table) -> ComputedFrame:
    """Return the rows of the input `name`. Raises `InputError` for a column of a type that Spark lacks."""
    return ComputedFrame(_frame_of(spark, name, table), table.num_rows)


def compute_step(
    name: str,
    use: StepUse,
    inputs: Mapping[str, ComputedFrame],
    context: StepContext,
    *,
    max_extracted: int,
    is_stored: bool,
) -> tuple[ComputedFrame, StepRecord]:
    """Run the step `name` of a pipeline, and return its rows and what it did.

    Of a step that reads its rows itself, only `max_extracted` rows count. `is_stored` states that a run stores the
    result, which refuses some types of columns. Raises `DefinitionError` and `DataError` that name the step, as a run
    does.
    """
    began = time.monotonic()
    settings = {**RESULT_SETTINGS, **INTERPRETED}
    with temporary_settings(context.spark, settings), _explained(name), located_in({name: use.parameters}):
        rows = {read: inputs[read].rows for read in use.depends_on}
        frames = {read: inputs[read].frame for read in use.depends_on}
        applied = AppliedSteps({name: use}, frames, context, known_rows=rows, in_one_process=True)
        result = applied[name]
        if is_stored:
            arrow_schema_of(result.schema)
        is_extract = isinstance(find_step(use.step), Extract)
        kept = (result.limit(max_extracted) if is_extract else result).localCheckpoint()
        # Below a limit, Spark counts the rows that it has read.
        rows_out = {name: kept.count()} if is_extract else {}
        seconds = time.monotonic() - began
        (record,) = applied.records(observed_values(result), rows=rows_out, seconds=seconds)
    return ComputedFrame(kept, record.rows_out or 0), record


def columns_of(frame: DataFrame) -> list[tuple[str, str]]:
    """Return the names and Spark's types of the columns."""
    return [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]


def first_rows(frame: DataFrame, count: int) -> list[tuple[Any, ...]]:
    """Return the first rows for people: booleans, numbers, and strings of at most 100 characters."""
    # Two columns may have the same name.
    named = frame.limit(count).toDF(*(f"c{index}" for index in range(len(frame.columns))))
    columns = [readable(sf.col(field.name), field.dataType, _CELL_LENGTH) for field in named.schema.fields]
    return [tuple(row) for row in named.select(*columns).collect()]


def all_rows(name: str, frame: DataFrame) -> pa.Table:
    """Return all rows of the step `name`. Raises `DataError` for a column of a type that Arrow lacks."""
    with _explained(name):
        return frame.toArrow()


@contextmanager
def loop_session() -> Iterator[SparkSession]:
    """Yield the active session, or a local one for few rows, which is stopped afterwards.

    Raises `InputError` without Java.
    """
    active = SparkSession.getActiveSession()
    spark = active or _session(cores=_LOOP_CORES, settings=_LOOP_SETTINGS)
    try:
        yield spark
    finally:
        if active is None:
            spark.stop()


def _inputs_of(step: Step, tables: Any) -> dict[str, Any]:
    """Return the tables by the names of the step's inputs, in their order."""
    if tables is None:
        named = {}
    elif isinstance(tables, Mapping):
        named = dict(tables)
    else:
        named = {step.inputs[0] if step.inputs else "rows": tables}
    roles = (*step.inputs, *step.optional_inputs)
    if step.many_inputs and named:
        roles = tuple(named)
    missing = [role for role in step.inputs if role in roles and role not in named]
    unknown = [role for role in named if role not in roles]
    if missing or unknown or step.name in named:
        expected = ", ".join([*step.inputs, *(f"{role} (optional)" for role in step.optional_inputs)]) or "none"
        fault = f"no input {', '.join(missing)}" if missing else f"it has no input {', '.join(unknown)}"
        if step.name in named:
            fault = "an input may not have the name of the step"
        raise InputError(f"{step.name}: {fault} (its inputs: {expected})")
    for role, table in named.items():
        if not (isinstance(table, pa.Table | DataFrame) or _is_pandas(table)):
            raise InputError(
                f"{step.name}: the input {role} is a {type(table).__name__}: use a pyarrow.Table, a pandas.DataFrame "
                "or a Spark DataFrame"
            )
    return {role: named[role] for role in roles if role in named}


def _is_pandas(table: Any) -> bool:
    """Return whether the table is a DataFrame of pandas, which is no dependency of this library."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(table, pandas.DataFrame)


def _frame_of(spark: SparkSession, role: str, table: Any) -> DataFrame:
    """Return a table as a frame. Raises `InputError` for a column of a type that Spark lacks."""
    if isinstance(table, DataFrame):
        return table
    try:
        # NaN of pandas is null here: pandas uses it for missing values.
        arrow = pa.Table.from_pandas(table, preserve_index=False) if _is_pandas(table) else table
        fields = [
            pa.field(field.name, field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in arrow.schema
        ]
        return frame_of(spark, arrow.cast(pa.schema(fields)).to_batches(), pa.schema(fields))
    except (pa.ArrowException, PySparkException) as error:
        raise InputError(f"the input {role} has a column that Spark cannot read: {_first_line(error)}") from error


def _session(*, cores: int | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the active session, or start a local one. Raises `InputError` without Java."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        pass
    # Otherwise workers run the `python3` of the search path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("slackwater step").master(f"local[{cores or '*'}]")
    try:
        spark = builder.config(map={**_LOCAL_SETTINGS, **RESULT_SETTINGS, **(settings or {})}).getOrCreate()
    except PySparkRuntimeError as error:
        raise InputError(f"Spark does not start ({_first_line(error)}): it needs Java 17 or later") from error
    spark.sparkContext.setLogLevel("ERROR")
    silence_query_logger()
    return spark


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Raise errors with the name of the step and without Spark's stack traces."""
    try:
        yield
    except SlackwaterError as error:
        message = str(error).removeprefix("steps.")
        raise type(error)(message if message.startswith(name) else f"{name}: {message}") from error
    except (Py4JJavaError, PySparkException) as error:
        error_type, message = explain(error)
        # A query that does not fit the columns is found before any row is read.
        default = DefinitionError if isinstance(error, AnalysisException) else DataError
        raise getattr(errors, error_type, default)(f"{name}: {message}") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
