"""Store the rows that steps of a stage have rejected, with the key and the retention of the source they come from."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from slackwater.arrow.exchange import StoreFactory, write_frame
from slackwater.arrow.names import quoted
from slackwater.arrow.reference import manifest_uri
from slackwater.arrow.schema import arrow_schema_of
from slackwater.errors import DefinitionError
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import sources_of
from slackwater.runs.inputs.manifest import InputManifest
from slackwater.runs.record import REJECTED, Run
from slackwater.spark.step_versions import producer_of


def store_rejected(run: Run, stage: str, step: str, frame: DataFrame, *, files: str, stores: StoreFactory) -> str:
    """Store the rows that a step has rejected below the prefix `files`, and return the URI of their manifest.

    The manifest is part of the attempt. Columns of types that Arrow files cannot have are left out.
    """
    kept = [quoted(field.name) for field in frame.schema if _has_arrow_type(field)]
    written = write_frame(frame.select(*kept), files, producer=producer_of(run, stage), stores=stores, input_bytes=0)
    uri = manifest_uri(f"{run.prefix}{REJECTED}/{step}/")
    stores().put(uri, written.manifest.model_dump_json().encode())
    return uri


def rejected_prefix(
    run: Run, pipeline: Pipeline, step: str, *, manifest: InputManifest, source_keys: Mapping[str, str]
) -> str:
    """Return the URI prefix of the Arrow files with the rows that a step has rejected.

    It is in the bucket of the source from which they come, so they have its key and its retention. Of several sources,
    it is the first one with a key of its own (`source_keys`, by source). Rows of no source lie beside the Arrow files
    of the attempt's stages, and are removed with them.
    """
    objects = manifest.by_source()
    checked = pipeline.steps[step].depends_on[0]
    sources = [source for source in sources_of(pipeline, checked) if source in objects]
    source = next((name for name in sources if name in source_keys), next(iter(sources), None))
    if source is None:
        return f"{run.arrow_prefix}{REJECTED}/{step}/"
    bucket, _, _ = objects[source][0].uri.partition(f"/raw/source={source}/")
    _, _, attempt = run.prefix.partition("/runs/")
    return f"{bucket}/{REJECTED}/source={source}/{attempt}{step}/"


def _has_arrow_type(field: StructField) -> bool:
    try:
        arrow_schema_of(StructType([field]))
    except DefinitionError:
        return False
    return True
