"""A synthesised app, with its templates and files for tests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.app import ROOT
from infra.artefacts import Artefacts
from infra.lint import definition, definitions
from infra.settings import Settings
from infra.stacks.base import Parts
from slackwater.local.layout import ARCHITECTURE, PYTHON
from slackwater.project.project import CodeDigests, Project

THIS_MACHINE = Settings(lambda_python=PYTHON, spark_python=PYTHON, architecture=ARCHITECTURE)
"""The settings of artefacts that this machine can run, as a deployment to the local cloud has them."""


NO_ARTEFACTS = Artefacts(layer=Path(), archive=Path(), code=CodeDigests())


def parts_of(settings: Settings, project: Project | None = None, artefacts: Artefacts = NO_ARTEFACTS) -> Parts:
    """What one stack alone is built from."""
    project = project or Project(sources={}, pipelines={})
    return Parts(settings=settings, project=project, artefacts=artefacts, root=ROOT)


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

    def machines(self) -> dict[str, str]:
        """The definitions of all state machines, by name."""
        return {
            name: definition
            for template in self.templates.values()
            for name, definition in definitions(template, folder=self.folder).items()
        }

    def one(self, resource_type: str, start: str) -> dict[str, Any]:
        """The properties of the one resource of a type whose logical id starts so."""
        [match] = [resource for name, resource in self.resources(resource_type).items() if name.startswith(start)]
        properties: dict[str, Any] = match["Properties"]
        return properties


def submit_parameters(machine: dict[str, Any], folder: Path) -> str:
    """The Spark parameters of all jobs of a pipeline's state machine, given by its properties."""
    match = re.search(r'"spark_parameters": "([^"]+)"', definition(machine, folder=folder))
    assert match
    return match[1]


def policies(templates: dict[str, Any]) -> dict[str, Any]:
    """The permissions of all roles: policies of their own or shared, and those inside of roles, by logical id."""
    documents: dict[str, Any] = {}
    for template in templates.values():
        for name, resource in template["Resources"].items():
            if resource["Type"] in {"AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"}:
                documents[name] = resource["Properties"]["PolicyDocument"]
            for policy in resource.get("Properties", {}).get("Policies", []):
                documents[name] = policy["PolicyDocument"]
    return documents
