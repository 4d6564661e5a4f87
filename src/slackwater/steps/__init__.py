"""Steps of pipelines, one module each: DataFrames in, a DataFrame out. No step depends on another."""

from __future__ import annotations

from typing import Any


def run(name: str, tables: Any = None, /, **parameters: Any) -> Any:
    """Run one step on its own, and return its rows: `run("clean_nan", table, strategy="median")`.

    `tables` is a pyarrow.Table, a pandas.DataFrame or a Spark DataFrame; or a mapping of such tables by the names of
    the step's inputs; or nothing for a step that reads its rows itself. The result has the type of the first input,
    and is a pyarrow.Table if there is none. A step that writes rows returns its input. Files are below the current
    folder. Raises what `slackwater.spark.standalone.run_step` raises, which also returns what the step did.
    """
    from slackwater.spark.standalone import run_step  # noqa: PLC0415 - starts Spark, and pipelines are checked without

    return run_step(name, tables, parameters).table
