"""A synthesised app, with its templates and files for tests."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.app import MOST_ALARMS, ROOT, add_stacks, context, create_app
from infra.artefacts import Artefacts
from infra.lint import definition, definitions, placeholder_artefacts, written
from infra.settings import Settings, load_settings
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


def settings_of(**values: Any) -> Settings:
    """The settings of the repository with these context values."""
    return load_settings({**context(), **{f"slackwater:{name}": value for name, value in values.items()}})


def synthesised(
    scratch: Path, *, most_alarms: int = MOST_ALARMS, qualifier: str | None = None, **values: Any
) -> Assembly:
    """Synthesise the app with these settings below `scratch`, for the CDK bootstrap with that qualifier."""
    folder, artefacts, settings = scratch / "cdk.out", placeholder_artefacts(scratch), settings_of(**values)
    more = {"@aws-cdk/core:bootstrapQualifier": qualifier} if qualifier else {}
    app = create_app(settings, context={**context(), **more}, folder=str(folder))
    add_stacks(app, settings=settings, artefacts=artefacts, most_alarms=most_alarms)
    return Assembly(folder, written(app, folder))


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

    def properties(self, resource_type: str, key: str = "") -> dict[str, dict[str, Any]]:
        """The properties of all resources of a type, by their logical id or by the property `key`."""
        found = {name: resource.get("Properties", {}) for name, resource in self.resources(resource_type).items()}
        return {of.get(key, name): of for name, of in found.items()}

    def types(self) -> dict[str, set[str]]:
        """The types of resources by stack."""
        return {
            stack: {resource["Type"] for resource in template["Resources"].values()}
            for stack, template in self.templates.items()
        }

    def manifest(self) -> dict[str, Any]:
        """The artifacts of the assembly. The manifest would also list what synthesis reads from the account."""
        document: dict[str, Any] = json.loads((self.folder / "manifest.json").read_text(encoding="utf-8"))
        assert "missing" not in document
        return dict(document["artifacts"])

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
