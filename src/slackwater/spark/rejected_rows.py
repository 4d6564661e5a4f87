"""Store the rows that steps of a stage have rejected, with the attempt."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from slackwater.arrow.exchange import StoreFactory, write_frame
from slackwater.arrow.names import quoted
from slackwater.arrow.reference import manifest_uri
from slackwater.arrow.schema import arrow_schema_of
from slackwater.errors import DefinitionError
from slackwater.runs.record import REJECTED, Run
from slackwater.spark.step_versions import producer_of


def store_rejected(run: Run, stage: str, stores: StoreFactory, step: str, frame: DataFrame) -> str:
    """Store the rows that a step has rejected, as part of the attempt, and return the URI of their manifest.

    The Arrow files lie beside those of the attempt's stages, and are removed with them. Columns of types that Arrow
    files cannot have are left out.
    """
    kept = [quoted(field.name) for field in frame.schema if _has_arrow_type(field)]
    files, described = (f"{prefix}{REJECTED}/{step}/" for prefix in (run.arrow_prefix, run.prefix))
    written = write_frame(frame.select(*kept), files, producer=producer_of(run, stage), stores=stores, input_bytes=0)
    uri = manifest_uri(described)
    stores().put(uri, written.manifest.model_dump_json().encode())
    return uri


def _has_arrow_type(field: StructField) -> bool:
    try:
        arrow_schema_of(StructType([field]))
    except DefinitionError:
        return False
    return True
