"""Arrow references: what the orchestrator sees of a dataset, and the manifest behind it.

A stage writes Arrow IPC files (file format, not stream), then the manifest, then the reference, each by one PUT.
The reference is all that passes through Step Functions: an address and totals, under 1 KB whatever the data's size.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

REFERENCE_LIMIT = 1024
"""Bytes that a reference may take as JSON."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ArrowFile(_Record):
    """One Arrow IPC file of a dataset."""

    uri: str
    rows: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=0)]
    sha256: str


class StepCount(_Record):
    """What one step of the stage reports of itself, in absolute terms."""

    step: str
    rows_out: Annotated[int, Field(ge=0)]


class ArrowManifest(_Record):
    """A dataset: its schema, its files, and where it comes from."""

    producer: str
    """`pipeline/date/run_id/attempt/stage`."""
    arrow_schema: str
    """The serialised Arrow schema message, base64."""
    files: tuple[ArrowFile, ...]
    steps: tuple[StepCount, ...] = ()
    earlier: tuple[str, ...] = ()
    """Addresses of the manifests this dataset was made from, oldest first."""

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.files)


class ArrowReference(_Record):
    """The address of a manifest with its totals."""

    manifest: str
    rows: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=0)]
    files: Annotated[int, Field(ge=0)]
    seconds: Annotated[float, Field(ge=0)]
    """Spark's working time of the stage, without its start."""
