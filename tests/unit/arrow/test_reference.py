"""References and manifests: totals, size, format, and the JSON Schema for other readers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest
from pydantic import ValidationError

from slackwater.arrow.contract import manifest_contract
from slackwater.arrow.reference import (
    REFERENCE_LIMIT,
    ArrowBatch,
    ArrowFile,
    ArrowManifest,
    ArrowReference,
)
from tests.fakes_spark import PRODUCER

pytestmark = pytest.mark.unit

CONTRACT = Path(__file__).parents[3] / "docs" / "contracts" / "arrow-manifest.schema.json"


def manifest(**changes) -> ArrowManifest:
    files = tuple(
        ArrowFile(
            uri=f"s3://b/{n}.arrow",
            rows=n,
            bytes=10 * n,
            checksum="0" * 16,
            batches=(ArrowBatch(8, 16, 24),),
            metadata_checksum="0" * 16,
            column_checksums=("f" * 16,),
        )
        for n in range(4)
    )
    fields = {"producer": PRODUCER, "created_at": datetime(2013, 3, 10, tzinfo=UTC), "arrow_schema": "", "files": files}
    return ArrowManifest.model_validate({**fields, **changes})


def test_a_manifest_adds_up_its_files():
    assert (manifest().rows, manifest().bytes) == (6, 60)


def test_a_reference_stays_small():
    longest = ArrowReference(
        manifest="s3://" + "b" * 63 + "/" + "k" * 512, rows=2**62, bytes=2**62, files=10**9, seconds=1e9
    )
    assert len(longest.model_dump_json()) < REFERENCE_LIMIT


def test_a_manifest_of_another_version_is_refused():
    with pytest.raises(ValidationError, match="version"):
        manifest(version=2)


def test_the_contract_is_the_schema_of_the_model():
    assert CONTRACT.read_text(encoding="utf-8") == manifest_contract(), (
        "write it again: python -m slackwater.arrow.contract > docs/contracts/arrow-manifest.schema.json"
    )


def test_a_stored_manifest_fits_the_contract():
    stored = json.loads(manifest(codec="lz4", parents=["s3://b/m.json"]).model_dump_json())
    assert stored["files"][0]["batches"] == [[8, 16, 24]]
    contract = json.loads(CONTRACT.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(contract)
    jsonschema.validate(stored, contract)
    for changed in ({"codec": "snappy"}, {"version": 2}, {"surprise": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(stored | changed, contract)
