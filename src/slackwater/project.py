"""A project folder as a user writes it: `sources/*.yaml` and `pipelines/*.yaml`."""

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

_OF_OPERATION = {"description", "schedule", "late", "deadline_hours"}
"""What a pipeline says of when it is run, not of what it makes."""


_SHAPE = {"timestamp", "event_id", "fields", "enrich"}
"""What of a source decides how its partitions are read."""


class Project(Model):
    """All sources and pipelines, checked, in the form in which Lambdas and Spark jobs read them (`project.json`)."""

    sources: dict[str, Source]
    pipelines: dict[str, Pipeline]
    code: str = ""
    """Digest of the library that runs it, so that new code means a new definition."""

    def source(self, name: str) -> Source:
        """Return the source of that name. Raises `UnknownName`."""
        if name not in self.sources:
            raise UnknownName(f"no source {name!r} in this project (it has: {', '.join(sorted(self.sources))})")
        return self.sources[name]

    def pipeline(self, name: str) -> Pipeline:
        """Return the pipeline of that name. Raises `UnknownName`."""
        if name not in self.pipelines:
            raise UnknownName(f"no pipeline {name!r} in this project (it has: {', '.join(sorted(self.pipelines))})")
        return self.pipelines[name]

    def definition_digest(self, pipeline: str) -> str:
        """SHA-256 of all that decides a pipeline's output but its inputs: graph, shapes of sources, code."""
        definition = self.pipeline(pipeline)
        digest = hashlib.sha256(definition.model_dump_json(by_alias=True, exclude=_OF_OPERATION).encode())
        for name in sorted(definition.sources):
            shape = self.sources[name].model_dump_json(include=_SHAPE)
            digest.update(f"\n{name}={shape} by {self.sources[name].id_column}".encode())
        digest.update(f"\ncode={self.code}".encode())
        return digest.hexdigest()


def load_project(folder: Path, *, code: str = "") -> Project:
    """Read and check a project folder. Raises `DefinitionError` naming file and field."""
    from slackwater.steps.registry import check  # noqa: PLC0415 - parses SQL, which Lambda functions do without

    if not folder.is_dir():
        raise DefinitionError(f"no project folder at {folder} (name one with --project DIR)")
    sources = _load_all(folder / "sources", Source)
    pipelines = _load_all(folder / "pipelines", Pipeline)
    if not sources:
        raise DefinitionError(f"{folder / 'sources'}: no source is defined there (one YAML file each)")
    for name, pipeline in pipelines.items():
        for source in pipeline.sources:
            if source not in sources:
                raise DefinitionError(
                    f"{folder / 'pipelines' / name}.yaml: sources: no source {source!r} "
                    f"(there are: {', '.join(sorted(sources))})"
                )
        stages(pipeline)
        try:
            check(pipeline)
        except DefinitionError as error:
            raise DefinitionError(f"{folder / 'pipelines' / name}.yaml: {error}") from error
    return Project(sources=sources, pipelines=pipelines, code=code)


def load_source(path: Path) -> Source:
    """Read and check one source's file. Raises `DefinitionError` naming file and field."""
    if not path.is_file():
        raise DefinitionError(f"{path}: there is no such file")
    return _named(_load(path, Source), path)


def source_schema() -> dict[str, Any]:
    """Return the JSON Schema of a source's file, its short forms included."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Source.model_json_schema(by_alias=True)}


def _load_all(folder: Path, kind: type[_Definition]) -> dict[str, _Definition]:
    found: dict[str, _Definition] = {}
    for path in sorted(folder.glob("*.yaml")):
        found[path.stem] = _named(_load(path, kind), path)
    return found


def _named(definition: _Definition, path: Path) -> _Definition:
    name = definition.source if isinstance(definition, Source) else definition.pipeline
    if name != path.stem:
        raise DefinitionError(f"{path}: it defines {name!r}; name the file {name}.yaml or change the name")
    return definition


def _load(path: Path, kind: type[_Definition]) -> _Definition:
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{path}: not readable as YAML: {error}") from error
    if not isinstance(content, dict):
        raise DefinitionError(f"{path}: a mapping of keys is expected at the top, not {type(content).__name__}")
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise DefinitionError(f"{path}: {describe(error)}") from error


def describe(error: ValidationError) -> str:
    """Every fault of a definition as `field: what is wrong`, on a line each."""
    return "\n  ".join(
        f"{'.'.join(str(part) for part in fault['loc']) or '(whole)'}: {fault['msg']}" for fault in error.errors()
    )
