"""Read an Arrow dataset, and compare its files with what its manifest says: checksums, schema, rows. Without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from slackwater.arrow.files import read_batches
from slackwater.arrow.messages import decode_schema
from slackwater.arrow.reference import ArrowManifest, ArrowReference
from slackwater.errors import ObjectInvalid, ObjectMissing
from slackwater.storage import ObjectStore


def dataset_problems(reference: ArrowReference, manifest: ArrowManifest, *, store: ObjectStore) -> Iterator[str]:
    """Generate what is wrong with a dataset: nothing if each file has the rows that were written.

    All files are read, one after the other. Raises `CloudError` if the store refuses or fails.
    """
    totals = manifest.rows, manifest.bytes, len(manifest.files)
    named = reference.rows, reference.bytes, reference.files
    if totals != named:
        yield "{} has {} rows, {} bytes, {} files; its reference says {}, {}, {}".format(
            reference.manifest, *totals, *named
        )
    schema = decode_schema(manifest.arrow_schema)
    for file in manifest.files:
        try:
            rows = 0
            for batch in read_batches(file, schema=schema, store=store):
                if not batch.schema.equals(schema):
                    yield f"{file.uri} has the columns {_described(batch.schema)}, not {_described(schema)}"
                    break
                batch.validate(full=True)
                rows += batch.num_rows
            else:
                if rows != file.rows:
                    yield f"{file.uri} has {rows} rows; its manifest says {file.rows}"
        except (ObjectMissing, ObjectInvalid) as error:
            yield str(error)
        except pa.ArrowException as error:
            yield f"{file.uri} is no Arrow file: {error}"


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
