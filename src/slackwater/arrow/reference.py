"""Arrow references: what the orchestrator sees of a dataset, and the manifest behind it.

A stage writes Arrow IPC files (file format, not stream), then the manifest, then the reference, each by one PUT.
Only the reference passes through Step Functions: a URI and totals, under 1 KB whatever the size of the data.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

REFERENCE_LIMIT = 1024
"""The largest size of a reference as JSON, in bytes. Names and URIs are limited, so no reference exceeds it."""


class _Record(BaseModel):
    """Base of the stored models: immutable, and unknown fields are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ArrowFile(_Record):
    """One Arrow IPC file of a dataset."""

    uri: str
    rows: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=0)]
    sha256: str
    """Of its content, in hexadecimal."""


class StepCount(_Record):
    """The number of rows that one step of the stage returned."""

    step: str
    """The name of the step in the pipeline."""
    rows_out: Annotated[int, Field(ge=0)]


class ArrowManifest(_Record):
    """A dataset: its schema, its files, and its origin."""

    producer: str
    """`pipeline/date/run_id/attempt/stage`."""
    arrow_schema: str
    """The serialised Arrow schema message, in base64."""
    files: tuple[ArrowFile, ...]
    steps: tuple[StepCount, ...] = ()
    """The steps of the stage, in order."""
    earlier: tuple[str, ...] = ()
    """URIs of the manifests that this dataset is derived from, oldest first."""

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

    manifest: str
    rows: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=0)]
    files: Annotated[int, Field(ge=0)]
    seconds: Annotated[float, Field(ge=0)]
    """How long the stage read, computed and wrote, without the start of Spark."""


def manifest_uri(prefix: str) -> str:
    """Return the URI of the manifest of the dataset under `prefix`."""
    return f"{prefix}manifest.json"


def reference_uri(prefix: str) -> str:
    """Return the URI of the reference of the dataset under `prefix`."""
    return f"{prefix}reference.json"
