"""A project: the definitions that a user writes in `sources/*.yaml` and `pipelines/*.yaml`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from slackwater.errors import DefinitionError, UnknownName
from slackwater.model import Model
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import selected_pipelines
from slackwater.sources.definition import Source

# Keys of a pipeline that do not change its output, so that a changed schedule does not run every day again.
_OPERATIONAL_KEYS: dict[str, Any] = {
    **dict.fromkeys(
        (
            "renamed_from",
            "description",
            "team",
            "versions",
            "spark",
            "schedule",
            "when",
            "live",
            "late",
            "deadline_hours",
        ),
        True,
    ),
    # The name of a period, which is part of the identity of a run, says which kind it is.
    "period": True,
    "publish": {"metrics", "hour", "audit"},
    "tables": {"__all__": {"on_change"}},
}
# Keys of a source that change how its partitions are read.
_SHAPE_KEYS = {"timestamp", "event_id", "fields", "enrich"}


class CodeDigests(Model):
    """Digests of the code that a run executes (`infra.code_digest`). They are empty where nothing is deployed."""

    job: str = ""
    """The Spark job of a stage: its entry point, what it imports from the library, and the lock of its archive."""
    steps: dict[str, str] = {}
    """By the name of the step: the step's module and what it imports from the library."""


class Project(Model):
    """All sources and pipelines of a project. Lambda functions and Spark jobs read it from `project.json`.

    A renamed pipeline has its first name here, under which everything of it is stored (decision 40).
    """

    sources: dict[str, Source]
    pipelines: dict[str, Pipeline]
    code: CodeDigests = CodeDigests()
    names: dict[str, str] = {}
    """The present names of renamed pipelines, as their files have them, by stored name."""

    @classmethod
    def of(cls, sources: Mapping[str, Source], pipelines: Mapping[str, Pipeline]) -> Project:
        """Return the project of definitions as their files have them."""
        names = {item.renamed_from: name for name, item in pipelines.items() if item.renamed_from}
        project = cls(sources=dict(sources), pipelines={}, names=names)
        stored = map(project.with_stored_names, pipelines.values())
        return project.model_copy(update={"pipelines": {item.pipeline: item for item in stored}})

    def with_stored_names(self, pipeline: Pipeline) -> Pipeline:
        """Return a pipeline, as its file has it, with stored names: its own, and those of the tables that it reads."""
        tables = {
            name: item.model_copy(update={"table": self.stored_name(item.table)})
            for name, item in pipeline.published_tables.items()
        }
        stored = pipeline.renamed_from or self.stored_name(pipeline.pipeline)
        update = {"pipeline": stored, "renamed_from": None, "tables": {**pipeline.tables, **tables}}
        return pipeline.model_copy(update=update)

    def stored_name(self, name: str) -> str:
        """Return the name under which everything of a pipeline is stored: for most, its name."""
        return next((stored for stored, present in self.names.items() if present == name), name)

    def present_name(self, stored: str) -> str:
        """Return the name that a pipeline with this stored name has now."""
        return self.names.get(stored, stored)

    @property
    def known_names(self) -> list[str]:
        """The names that people may use for pipelines, sorted: present and stored ones."""
        return sorted({*self.pipelines, *self.names.values()})

    def source(self, name: str) -> Source:
        """Return the source with this name. Raises `UnknownName`."""
        if name not in self.sources:
            raise UnknownName(f"no source {name!r} in this project (sources: {', '.join(sorted(self.sources))})")
        return self.sources[name]

    def pipeline(self, name: str) -> Pipeline:
        """Return the pipeline with this present or stored name. Raises `UnknownName`."""
        stored = self.stored_name(name)
        if stored not in self.pipelines:
            known = ", ".join(sorted(map(self.present_name, self.pipelines)))
            raise UnknownName(f"no pipeline {name!r} in this project (pipelines: {known})")
        return self.pipelines[stored]

    @property
    def daily(self) -> dict[str, Pipeline]:
        """The pipelines whose periods are days."""
        return {name: item for name, item in self.pipelines.items() if item.period == "day"}

    def selected(self, selection: str) -> tuple[str, ...]:
        """Return the pipelines of `NAME`, `NAME+`, `+NAME` or `+NAME+`, in order. Raises `UnknownName`."""
        name = selection.removeprefix("+").removesuffix("+")
        names = [self.present_name(stored) for stored in self.pipelines]
        return selected_pipelines(selection.replace(name, self.stored_name(name), 1), self.pipelines, names=names)

    def records_removed(self, source: str) -> bool:
        """Return whether the days of any pipeline do not keep rows of files that the source's partner has removed."""
        definition = self.source(source)
        readers = (pipeline for pipeline in self.pipelines.values() if source in pipeline.sources)
        return any(pipeline.on_removed(definition) != "keep" for pipeline in readers)

    def is_waited_for(self, source: str) -> bool:
        """Return whether scheduled runs of any pipeline wait for the source."""
        return any(source in pipeline.when.inputs for pipeline in self.pipelines.values())

    def live_readers(self, source: str) -> list[Pipeline]:
        """Return the pipelines whose open period is published when windows of the source are complete."""
        live = [pipeline for pipeline in self.pipelines.values() if pipeline.live and pipeline.live.windows]
        return [pipeline for pipeline in live if source in pipeline.sources]

    def live_sources(self) -> dict[str, Source]:
        """Return the sources of the pipelines whose open period is published, by name."""
        names = {name for pipeline in self.pipelines.values() if pipeline.live for name in pipeline.sources}
        return {name: self.source(name) for name in sorted(names)}

    def source_shape(self, name: str) -> str:
        """Return everything of a source's definition that decides how its partitions are read. Raises `UnknownName`."""
        source = self.source(name)
        columns = ",".join(f"{column}:{data_type}" for column, data_type in source.columns.items())
        return f"{name}={source.model_dump_json(include=_SHAPE_KEYS)} columns {columns} by {source.id_column}"

    def definition_digest(self, pipeline: str) -> str:
        """Return the SHA-256 of everything that decides a pipeline's output, except its inputs.

        It covers the graph of steps, the columns of the sources, the code of the steps that the pipeline uses, and the
        code of the Spark job. Raises `UnknownName`.
        """
        return hashlib.sha256((self._written(pipeline) + self._code(pipeline)).encode()).hexdigest()

    def written_digest(self, pipeline: str) -> str:
        """Return the part of `definition_digest` that a user writes, as SHA-256. Raises `UnknownName`."""
        return hashlib.sha256(self._written(pipeline).encode()).hexdigest()

    def code_digest(self, pipeline: str) -> str:
        """Return the part of `definition_digest` that is code, as SHA-256. Raises `UnknownName`."""
        return hashlib.sha256(self._code(pipeline).encode()).hexdigest()

    # The digests depend on how the strings below are written: any change of them gives every day a new identity.

    def _written(self, pipeline: str) -> str:
        definition = self.pipeline(pipeline)
        # A run reads a day that it waits for in vain as one that may be missing.
        read = {
            name: item.model_copy(update={"missing": "empty"}) if item.missing == "wait" else item
            for name, item in definition.published_tables.items()
        }
        # An hour has the same rows in each timezone.
        timezone = "UTC" if definition.period == "hour" else definition.timezone
        definition = definition.model_copy(update={"tables": {**definition.tables, **read}, "timezone": timezone})
        # What definitions of earlier releases do not have must not change their digests.
        new = {name: {"hours"} for name, item in definition.published_tables.items() if item.hours is None}
        exclude = {**_OPERATIONAL_KEYS, "tables": {**_OPERATIONAL_KEYS["tables"], **new}}
        written = definition.model_dump_json(by_alias=True, exclude=exclude)
        # An hour reads days by their timezone, which the definition of another pipeline has.
        read_days = (
            f"{name}={table.timezone}"
            for name, item in sorted(definition.published_tables.items())
            if definition.period == "hour" and (table := self.pipelines[item.table]).period == "day"
        )
        return "\n".join((written, *(self.source_shape(name) for name in sorted(definition.sources)), *read_days))

    def _code(self, pipeline: str) -> str:
        definition = self.pipeline(pipeline)
        steps = sorted({use.step for use in (*definition.steps.values(), *definition.load.values())})
        return "".join(
            (f"\njob={self.code.job}", *(f"\nstep {step}={self.code.steps.get(step, '')}" for step in steps))
        )


def load_project(folder: Path, *, code: CodeDigests | None = None) -> Project:
    """Read and check a project folder.

    `code` holds the digests of the code that runs the project, where it is deployed. Raises `DefinitionError` with all
    problems, one per line: `file:line:column: place: problem (expected ...; did you mean ...?)`.
    """
    return _load(folder, steps=True).model_copy(update={"code": code or CodeDigests()})


def load_definitions(folder: Path) -> Project:
    """Read a project folder, and check everything but the parameters and columns of steps, which takes half a second.

    Raises `DefinitionError` with all problems, one per line.
    """
    return _load(folder, steps=False)


def load_pipeline(path: Path, folder: Path) -> Pipeline:
    """Read and check the file of one pipeline, which may be anywhere, with the project in `folder` around it.

    Raises `DefinitionError` with all problems, one per line.
    """
    from slackwater.validation.check_project import check_pipeline  # noqa: PLC0415

    pipeline, problems = check_pipeline(folder, path)
    if pipeline is None or problems:
        raise DefinitionError("\n".join(map(str, problems)))
    return pipeline


def load_source(path: Path) -> Source:
    """Read and check the file of one source. Raises `DefinitionError` with all problems."""
    from slackwater.validation.check_project import check_source  # noqa: PLC0415

    source, problems = check_source(path)
    if source is None or problems:
        raise DefinitionError("\n".join(map(str, problems)))
    return source


def describe_validation_error(error: ValidationError) -> str:
    """Return the problems of a definition as `field: problem`, one per line."""
    return "\n  ".join(
        f"{'.'.join(map(str, problem['loc'])) or '(whole)'}: {problem['msg'].removeprefix('Value error, ')}"
        for problem in error.errors()
    )


def _load(folder: Path, *, steps: bool) -> Project:
    # Lambda functions read a project from JSON: they need neither YAML nor the checks.
    from slackwater.validation.check_project import check_project  # noqa: PLC0415

    checked = check_project(folder, steps=steps)
    if checked.problems:
        raise DefinitionError("\n".join(map(str, checked.problems)))
    return Project.of(checked.sources, checked.pipelines)
