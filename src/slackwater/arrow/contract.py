"""Print the JSON Schema of manifests, for readers that are not this library: `python -m slackwater.arrow.contract`."""

from __future__ import annotations

import sys

from slackwater.arrow.reference import ArrowManifest
from slackwater.model import json_schema

if __name__ == "__main__":
    sys.stdout.write(json_schema(ArrowManifest))
