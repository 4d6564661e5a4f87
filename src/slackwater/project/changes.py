"""Which definitions a project's files change in what is deployed."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from slackwater.errors import DefinitionError
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.sources.definition import Source


class Change(StrEnum):
    """What happens to a deployed definition when the files are deployed."""

    ADDED = "added"
    RENAMED = "renamed"
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
    renamed_from: str = ""
    """For a renamed pipeline, its name before. For an added one, its stored name if that is another one."""

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
        names, former = (project.names, deployed.names) if folder == "pipelines" else ({}, {})
        removed = {_content(old[name]): former.get(name, name) for name in old.keys() - new.keys()}
        for stored in sorted(new.keys() | old.keys()):
            name, before = names.get(stored, stored), former.get(stored, stored)
            if stored not in old:
                first = stored if stored in names else ""
                yield DefinitionChange(Change.ADDED, folder, name, removed.get(_content(new[stored]), ""), first)
                continue
            if stored not in new:
                yield DefinitionChange(Change.REMOVED, folder, before)
                continue
            if name != before:
                yield DefinitionChange(Change.RENAMED, folder, name, renamed_from=before)
            if _content(new[stored]) != _content(old[stored]):
                yield DefinitionChange(Change.CHANGED, folder, name)


def check_renames(project: Project, deployed: Project) -> None:
    """Raise `DefinitionError` if files give a deployed pipeline a stored name under which its data is not.

    Then commands would not reach its table and its history any more.
    """
    problems = []
    for stored, pipeline in ((stored, project.present_name(stored)) for stored in sorted(project.pipelines)):
        before = deployed.stored_name(pipeline)
        if before != pipeline and before not in project.pipelines:
            problems.append(f"pipelines/{pipeline}.yaml: its table and history have the name {before}")
        elif stored not in deployed.pipelines and stored != (first := deployed.stored_name(stored)):
            problems.append(f"pipelines/{pipeline}.yaml: {stored} was renamed before, from {first}")
            before = first
        else:
            continue
        problems[-1] += (
            f": write `renamed_from: {before}`. To leave them, deploy without this pipeline first, then with it"
        )
    if problems:
        raise DefinitionError("\n".join(problems))


def _content(definition: Pipeline | Source) -> str:
    """Return a definition without its name."""
    # JSON, because the identity of a run depends on the order of steps too.
    return definition.model_dump_json(by_alias=True, exclude={"pipeline", "source"})
