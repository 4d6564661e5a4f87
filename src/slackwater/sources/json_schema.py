"""The JSON Schema of source definitions, with which editors check `sources/*.yaml`."""

from __future__ import annotations

from typing import Any

from slackwater.sources.definition import Source


def source_schema() -> dict[str, Any]:
    """Return the JSON Schema of a source definition, including the short forms of fields and file formats."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Source.model_json_schema(by_alias=True)}
