"""A project: the definitions that a user writes in `sources/*.yaml` and `pipelines/*.yaml`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from slackwater.errors import DefinitionError, UnknownName
from slackwater.model import Model
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import stages
from slackwater.sources.definition import Source

_Definition = TypeVar("_Definition", Source, Pipeline)

# Keys of a pipeline that do not change its output, so that a changed schedule does not run every day again.
_OPERATIONAL_KEYS = {"description", "spark", "schedule", "late", "deadline_hours"}
# Keys of a source that change how its partitions are read.
_SHAPE_KEYS = {"timestamp", "event_id", "fields", "enrich"}


class CodeDigests(Model):
    """Digests of the code that a run executes (`infra.code_digest`). They are empty where nothing is deployed."""

    job: str = ""
    """The Spark job of a stage: its entry point, what it imports from the library, and the lock of its archive."""
    steps: dict[str, str] = {}
    """By the name of the step: the step's module and what it imports from the library."""


class Project(Model):
    """All sources and pipelines of a project. Lambda functions and Spark jobs read it from `project.json`."""

    sources: dict[str, Source]
    pipelines: dict[str, Pipeline]
    code: CodeDigests = CodeDigests()

    def source(self, name: str) -> Source:
        """Return the source with this name. Raises `UnknownName`."""
        if name not in self.sources:
            raise UnknownName(f"no source {name!r} in this project (sources: {', '.join(sorted(self.sources))})")
        return self.sources[name]

    def pipeline(self, name: str) -> Pipeline:
        """Return the pipeline with this name. Raises `UnknownName`."""
        if name not in self.pipelines:
            raise UnknownName(f"no pipeline {name!r} in this project (pipelines: {', '.join(sorted(self.pipelines))})")
        return self.pipelines[name]

    def definition_digest(self, pipeline: str) -> str:
        """Return the SHA-256 of everything that decides a pipeline's output, except its inputs.

        It covers the graph of steps, the columns of the sources, the code of the steps that the pipeline uses, and the
        code of the Spark job. Raises `UnknownName`.
        """
        # The digest also depends on how the strings below are written: any change of them runs every day again.
        definition = self.pipeline(pipeline)
        digest = hashlib.sha256(definition.model_dump_json(by_alias=True, exclude=_OPERATIONAL_KEYS).encode())
        for name in sorted(definition.sources):
            source = self.sources[name]
            columns = ",".join(f"{column}:{data_type}" for column, data_type in source.columns.items())
            shape = source.model_dump_json(include=_SHAPE_KEYS)
            digest.update(f"\n{name}={shape} columns {columns} by {source.id_column}".encode())
        digest.update(f"\njob={self.code.job}".encode())
        for step in sorted({use.step for use in (*definition.steps.values(), *definition.load.values())}):
            digest.update(f"\nstep {step}={self.code.steps.get(step, '')}".encode())
        return digest.hexdigest()


def load_project(folder: Path, *, code: CodeDigests | None = None) -> Project:
    """Read and check a project folder. Raises `DefinitionError` that names file and field.

    `code` holds the digests of the code that runs the project, where it is deployed.
    """
    from slackwater.steps.registry import check  # noqa: PLC0415 - imports a SQL parser that Lambda functions lack

    project = load_definitions(folder)
    for name, pipeline in project.pipelines.items():
        try:
            check(pipeline)
        except DefinitionError as error:
            raise DefinitionError(f"{folder / 'pipelines' / name}.yaml: {error}") from error
    return project.model_copy(update={"code": code or CodeDigests()})


def load_definitions(folder: Path) -> Project:
    """Read a project folder, and check everything but the parameters of steps, which takes half a second.

    Raises `DefinitionError` that names file and field.
    """
    if not folder.is_dir():
        raise DefinitionError(f"no project folder at {folder} (name one with --project DIR)")
    sources = _load_folder(folder / "sources", Source)
    pipelines = _load_folder(folder / "pipelines", Pipeline)
    if not sources:
        raise DefinitionError(f"{folder / 'sources'}: no source is defined there (add one YAML file per source)")
    for name, pipeline in pipelines.items():
        for source in pipeline.sources:
            if source not in sources:
                raise DefinitionError(
                    f"{folder / 'pipelines' / name}.yaml: sources: no source {source!r} "
                    f"(sources: {', '.join(sorted(sources))})"
                )
        stages(pipeline)
    return Project(sources=sources, pipelines=pipelines)


def load_source(path: Path) -> Source:
    """Read and check the file of one source. Raises `DefinitionError` that names file and field."""
    if not path.is_file():
        raise DefinitionError(f"{path}: no such file")
    return _load_file(path, Source)


def describe_validation_error(error: ValidationError) -> str:
    """Return the problems of a definition as `field: problem`, one per line."""
    return "\n  ".join(
        f"{'.'.join(map(str, problem['loc'])) or '(whole)'}: {problem['msg'].removeprefix('Value error, ')}"
        for problem in error.errors()
    )


def _load_folder(folder: Path, model: type[_Definition]) -> dict[str, _Definition]:
    return {path.stem: _load_file(path, model) for path in sorted(folder.glob("*.yaml"))}


def _load_file(path: Path, model: type[_Definition]) -> _Definition:
    try:
        # `safe_load` creates only plain values; `load` would let a file create any Python object.
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{path}: not readable as YAML: {error}") from error
    if not isinstance(content, dict):
        raise DefinitionError(f"{path}: a mapping of keys is expected at the top, not {type(content).__name__}")
    try:
        definition = model.model_validate(content)
    except ValidationError as error:
        raise DefinitionError(f"{path}: {describe_validation_error(error)}") from error
    name = definition.source if isinstance(definition, Source) else definition.pipeline
    if name != path.stem:
        raise DefinitionError(f"{path}: it defines {name!r}: name the file {name}.yaml, or change the name")
    return definition
