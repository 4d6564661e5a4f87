"""The resources with data in synthesised templates, and those of their properties that CloudFormation cannot update.

A key counts as one: what it has encrypted cannot be read without it.

`scripts/record-stateful` records those of a commit. CloudFormation replaces a resource, and so loses its data or its
messages, if such a property, the logical id or the stack changes. The properties are those of AWS's resource schemas,
which cfn-lint contains.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

STATEFUL = (
    *("AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::SNS::Topic"),
    *("AWS::Glue::Database", "AWS::Logs::LogGroup", "AWS::KMS::Key"),
)


def stateful(templates: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The stateful resources by stack and logical id: the type, and the properties that cannot be updated."""
    return {
        stack: {
            name: {
                "Type": resource["Type"],
                "Fixed": {
                    path: value
                    for path in _fixed_paths(resource["Type"])
                    if (value := _at(resource.get("Properties", {}), path)) is not None
                },
            }
            for name, resource in sorted(template["Resources"].items())
            if resource["Type"] in STATEFUL
        }
        for stack, template in sorted(templates.items())
    }


def replaced(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> list[str]:
    """What CloudFormation would delete or replace in an update, as `stack: logical id: change`.

    Without the Hive tables of version 0.2.0, which hold no data: an Iceberg table takes the place of each.
    """
    return [
        f"{stack}: {name}: {resource} becomes {after.get(stack, {}).get(name)}"
        for stack, resources in before.items()
        for name, resource in resources.items()
        if after.get(stack, {}).get(name) != resource and resource["Type"] != "AWS::Glue::Table"
    ]


def _fixed_paths(resource_type: str) -> list[str]:
    from cfnlint.schema import PROVIDER_SCHEMA_MANAGER  # noqa: PLC0415 - its import takes two seconds

    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", resource_type).schema
    # Whether a change of a conditional one replaces the resource depends on the values.
    paths = [*schema.get("createOnlyProperties", []), *schema.get("conditionalCreateOnlyProperties", [])]
    return sorted(path.removeprefix("/properties/") for path in paths)


def _at(properties: Any, path: str) -> Any:
    for key in path.split("/"):
        properties = properties.get(key) if isinstance(properties, dict) else None
    return properties


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    files = {path.name.removesuffix(".template.json"): path for path in sorted(folder.glob("*.template.json"))}
    recorded = stateful({stack: json.loads(path.read_text(encoding="utf-8")) for stack, path in files.items()})
    sys.stdout.write(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
