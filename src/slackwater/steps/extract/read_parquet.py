"""`read_parquet`: read Parquet files of the project, whose columns have their own types.

Several files may have different columns: a column that a file lacks is null in its rows. Files in which a column has
types that do not fit together are an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slackwater.errors import InputError
from slackwater.steps.files import ProjectPattern
from slackwater.steps.io.typed_files import find_files
from slackwater.steps.step import Extract, Parameters, StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark reads these in a path as a pattern.
_PATTERN = re.compile(r"[\[\]{}*?\\]")
_CLASH = "[CANNOT_MERGE_SCHEMAS]"
# By the condition of Spark's error.
_REMEDIES = {
    _CLASH: "write the files with one type for each column, or read them by steps of their own",
    "[PARQUET_TYPE_ILLEGAL]": "write the column with a type that Spark has, such as timestamps in microseconds",
}
_OTHER_REMEDY = "correct the file, and run again"


class ReadParquet(Parameters, json_schema_extra={"examples": [{"path": "history/"}]}):
    """Parameters of `read_parquet`."""

    path: ProjectPattern
    """Path of a file below the project's files. With `*` for any string without a slash, or with a slash at the end, it
    means several files; those whose names begin with `_` or `.` are left out. A folder that a load step writes is an
    error while its `_SUCCESS` is missing. `{date}` is the day of the run."""


def read(parameters: ReadParquet, context: StepContext) -> DataFrame:
    """Return the rows of the files.

    Raises `InputError` if there is no file, for a file that is not Parquet or has no columns, and for types that Spark
    lacks or that do not fit together.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from slackwater.steps.spark_errors import explain

    uris = [item.uri for item in find_files(parameters.path, context)]
    for uri in uris:
        if _PATTERN.search(uri):
            raise InputError(f"path: {uri}: rename the file, because Spark reads characters of its name as a pattern")
    try:
        # Without `mergeSchema`, Spark takes the columns of one file, and drops those that only others have.
        frame = context.spark.read.option("mergeSchema", str(len(uris) > 1).lower()).parquet(*uris)
    except Py4JJavaError as error:  # of the job that reads the footers
        outer = " ".join(error.java_exception.getMessage().split())
        # Its cause names fewer columns if schemas clash, and the file if a footer is not readable.
        raise _refused(parameters.path, error, outer if _CLASH in outer else explain(error)[1]) from error
    except PySparkException as error:
        raise _refused(parameters.path, error, explain(error)[1]) from error
    if not frame.columns:
        raise InputError(f"path: {parameters.path}: no columns: write the files with at least one")
    return frame


def _refused(path: str, error: Exception, reason: str) -> InputError:
    remedy = next((remedy for condition, remedy in _REMEDIES.items() if condition in str(error)), _OTHER_REMEDY)
    return InputError(f"path: {path}: {reason}: {remedy}")


STEP = Extract(name="read_parquet", parameters=ReadParquet, read=read)
