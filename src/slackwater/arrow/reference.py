"""Arrow references: what the orchestrator sees of a dataset, and the manifest behind it.

A stage writes Arrow IPC files (file format, not stream), then the manifest, then the reference, each by one PUT.
Only the reference passes through Step Functions: a URI and totals, under 1 KB whatever the size of the data.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

REFERENCE_LIMIT = 1024
"""The largest size of a reference as JSON, in bytes. Names and URIs are limited, so no reference exceeds it."""


Checksum = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]

Codec = Literal["lz4", "zstd"]
"""How the buffers of the files are compressed."""


class _Record(BaseModel):
    """Base of the stored models: immutable, and unknown fields are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ArrowBatch(NamedTuple):
    """Where a record batch lies in its file: its metadata, then its body. In JSON an array of these numbers."""

    offset: int
    """Bytes before the metadata."""
    metadata_bytes: int
    """With the prefix of 8 bytes."""
    body_bytes: int


class ArrowFile(_Record):
    """One Arrow IPC file of a dataset. Checksums are XXH3 of 64 bits, as 16 hexadecimal digits."""

    uri: str
    rows: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=0)]
    checksum: Checksum
    """Of the whole file."""
    batches: tuple[ArrowBatch, ...]
    metadata_checksum: Checksum
    """Of the metadata of all batches, one after the other."""
    column_checksums: tuple[Checksum, ...]
    """Of the buffers of each column of the schema, in all batches one after the other."""


class StepRecord(_Record):
    """What one step of the stage did."""

    name: str
    """The name of the step in the pipeline."""
    step: str
    """The step's own name, such as `join`."""
    parameters: dict[str, Any]
    """As the pipeline states them under `with`."""
    rows_in: dict[str, int | None]
    """Rows of each input. None if Spark did not have to compute them."""
    rows_out: int | None
    """Rows that the step returned. None if Spark did not have to compute them."""
    effect: dict[str, Any] = {}
    """What the step did to the rows, by the names that the step's page lists."""
    seconds: Annotated[float, Field(ge=0)] | None
    """How long the step took. None if Spark has computed it in one pass with other steps of the stage. Datasets of
    earlier versions of this library have the seconds of the stage here."""
    bytes_in: dict[str, int | None] = {}
    """Size of each input: of a source or a table its objects, of another stage its Arrow files, of a step before it in
    the stage the rows in Arrow. None if it is unknown: the step was computed in one pass with that one."""
    bytes_out: int | None = None
    """Size of the rows that the step returned, in Arrow. None if it is unknown."""


class Producer(_Record):
    """Which stage of which run wrote a dataset."""

    pipeline: str
    date: str
    """`YYYY-MM-DD`."""
    run_id: str
    attempt: Annotated[int, Field(ge=1)]
    stage: str
    correlation_id: str = ""
    """Of the execution, as in its logs; empty in datasets of earlier versions of this library."""


class ArrowManifest(_Record):
    """A dataset: its schema, its files, and its origin."""

    version: Literal[1] = 1
    """Of this format. This library reads no other one."""
    producer: Producer
    created_at: datetime
    """UTC."""
    codec: Codec | None = None
    """None if the files are not compressed."""
    arrow_schema: str
    """The serialised Arrow schema message, in base64."""
    files: tuple[ArrowFile, ...]
    steps: tuple[StepRecord, ...] = ()
    """The steps of the stage, in order."""
    parents: tuple[str, ...] = ()
    """URIs of the manifests of the datasets that the stage has read."""

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)


class ArrowReference(_Record):
    """The URI of a manifest, and the totals of its files."""

    # Run records have it, and functions of the older version read those during a deployment.
    model_config = ConfigDict(extra="ignore")

    manifest: str
    rows: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=0)]
    files: Annotated[int, Field(ge=0)]
    seconds: Annotated[float, Field(ge=0)]
    """How long the stage read, computed and wrote, without the start of Spark."""
    is_merged: bool = False
    """Whether the stage has read only a part of its inputs, and the rest of the rows from an earlier version."""


def manifest_uri(prefix: str) -> str:
    """Return the URI of the manifest of the dataset under `prefix`."""
    return f"{prefix}manifest.json"


def reference_uri(prefix: str) -> str:
    """Return the URI of the reference of the dataset under `prefix`."""
    return f"{prefix}reference.json"
