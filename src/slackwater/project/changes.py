"""Which definitions a project's files change in what is deployed."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.sources.definition import Source


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
    same_as: str = ""
    """For an added definition: the removed one that differs only in its name."""

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
        removed = {_content(old[name]): name for name in old.keys() - new.keys()}
        for name in sorted(new.keys() | old.keys()):
            if name not in old:
                yield DefinitionChange(Change.ADDED, folder, name, removed.get(_content(new[name]), ""))
            elif name not in new:
                yield DefinitionChange(Change.REMOVED, folder, name)
            elif _content(new[name]) != _content(old[name]):
                yield DefinitionChange(Change.CHANGED, folder, name)


def _content(definition: Pipeline | Source) -> str:
    """Return a definition without its name."""
    # JSON, because the identity of a run depends on the order of steps too.
    return definition.model_dump_json(by_alias=True, exclude={"pipeline", "source"})
