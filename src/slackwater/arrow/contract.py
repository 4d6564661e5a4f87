"""The JSON Schema of manifests, for readers that are not this library: `python -m slackwater.arrow.contract`."""

from __future__ import annotations

import json
import sys

from slackwater.arrow.reference import ArrowManifest


def manifest_contract() -> str:
    """Return the JSON Schema of a stored manifest, as docs/contracts/arrow-manifest.schema.json holds it."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **ArrowManifest.model_json_schema(mode="serialization"),
    }
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(manifest_contract())
