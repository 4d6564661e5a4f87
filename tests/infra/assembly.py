"""A synthesised app, with its templates and files for tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Assembly:
    """A synthesised app."""

    folder: Path
    templates: dict[str, Any]

    def resources(self, resource_type: str) -> dict[str, Any]:
        """All resources of a type, by logical id, in all stacks."""
        return {
            name: resource
            for template in self.templates.values()
            for name, resource in template["Resources"].items()
            if resource["Type"] == resource_type
        }

    def one(self, resource_type: str, start: str) -> dict[str, Any]:
        """The properties of the one resource of a type whose logical id starts so."""
        [match] = [resource for name, resource in self.resources(resource_type).items() if name.startswith(start)]
        properties: dict[str, Any] = match["Properties"]
        return properties
