"""The history of definitions: what stored data was written with, also after its definition was removed."""

from __future__ import annotations

from slackwater.errors import DefinitionError
from slackwater.model import Model
from slackwater.project.project import Project
from slackwater.sources.evolution import StoredColumns, check_evolution


class DefinitionHistory(Model):
    """All sources and pipelines that were deployed and have data, with what their data depends on."""

    sources: dict[str, StoredColumns] = {}
    pipelines: dict[str, tuple[str, ...]] = {}
    """The columns of `publish.key`, by pipeline."""

    def including(self, project: Project) -> DefinitionHistory:
        """Return the history after the project was deployed."""
        sources, pipelines = dict(self.sources), dict(self.pipelines)
        for name, source in project.sources.items():
            sources[name] = sources.get(name, StoredColumns(columns={})).including(source)
        for name, pipeline in project.pipelines.items():
            pipelines[name] = tuple(dict.fromkeys([*pipelines.get(name, ()), *pipeline.publish.key]))
        return DefinitionHistory(sources=sources, pipelines=pipelines)

    def check(self, project: Project) -> None:
        """Raise `DefinitionError` when a definition does not fit its data; the message names each problem.

        The types of published columns are not defined here: the publishing job compares them with the table.
        """
        problems = []
        try:
            check_evolution(project.sources, self.sources)
        except DefinitionError as error:
            problems.append(str(error))
        for name in sorted(project.pipelines.keys() & self.pipelines.keys()):
            key = project.pipelines[name].publish.key
            if missing := [column for column in self.pipelines[name] if column not in key]:
                problems.append(
                    f"pipelines/{name}.yaml: publish.key: the rows of the published table are identified with "
                    f"{', '.join(missing)}: keep it in the key (other columns may be added), or start a pipeline with "
                    "another name"
                )
        if problems:
            raise DefinitionError("\n".join(problems))
