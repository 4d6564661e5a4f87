"""`read_parquet`: read Parquet files of the project, whose columns have their own types.

Several files may have different columns: a column that a file lacks is null in its rows. Files in which a column has
types that do not fit together are an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from slackwater.errors import InputError
from slackwater.steps.files import ProjectPattern
from slackwater.steps.io.typed_files import files_of
from slackwater.steps.step import Extract, Parameters, StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark reads these in a path as a pattern.
_PATTERN = re.compile(r"[\[\]{}*?\\]")


class ReadParquet(Parameters, json_schema_extra={"examples": [{"path": "history/"}]}):
    """Parameters of `read_parquet`."""

    path: ProjectPattern
    """Path of a file below the project's files. With `*` for any string without a slash, or with a slash at the end, it
    means several files; those whose names begin with `_` or `.` are left out. `{date}` is the day of the run."""


def read(parameters: ReadParquet, context: StepContext) -> DataFrame:
    """Return the rows of the files.

    Raises `InputError` for no file, for one that is not Parquet, and for types that do not fit together.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from slackwater.steps.spark.job import explain

    found = files_of(context).find(parameters.path, context.day.date if context.day else None)
    uris = [item.uri for item in found]
    for uri in uris:
        if _PATTERN.search(uri):
            raise InputError(f"path: {uri}: rename the file, because Spark reads characters of its name as a pattern")
    try:
        # Without `mergeSchema`, Spark takes the columns of one file, and drops those that only others have.
        return context.spark.read.option("mergeSchema", str(len(uris) > 1).lower()).parquet(*uris)
    except Py4JJavaError as error:  # of the job that reads the footers
        raise InputError(f"path: {parameters.path}: {' '.join(error.java_exception.getMessage().split())}") from error
    except PySparkException as error:
        raise InputError(f"path: {parameters.path}: {explain(error)[1]}") from error


STEP = Extract(name="read_parquet", parameters=ReadParquet, read=read)
