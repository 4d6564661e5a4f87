"""Which definitions a project's files change in what is deployed."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from slackwater.project.project import Project


class Change(StrEnum):
    """What happens to a deployed definition when the files are deployed."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


class DefinitionChange(NamedTuple):
    """A definition that differs from the deployed one."""

    change: Change
    folder: str
    """`pipelines` or `sources`."""
    name: str

    @property
    def file(self) -> str:
        """The file of the definition, relative to the project's folder."""
        return f"{self.folder}/{self.name}.yaml"


def changed_definitions(project: Project, deployed: Project) -> Iterator[DefinitionChange]:
    """Yield each pipeline, then each source, of `project` that differs from the deployed one, by name."""
    for folder, new, old in (
        ("pipelines", project.pipelines, deployed.pipelines),
        ("sources", project.sources, deployed.sources),
    ):
        for name in sorted(new.keys() | old.keys()):
            if name not in old:
                yield DefinitionChange(Change.ADDED, folder, name)
            elif name not in new:
                yield DefinitionChange(Change.REMOVED, folder, name)
            # As JSON, because the identity of a run depends on the order of steps too.
            elif new[name].model_dump_json(by_alias=True) != old[name].model_dump_json(by_alias=True):
                yield DefinitionChange(Change.CHANGED, folder, name)
