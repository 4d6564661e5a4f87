"""Check the folder of a project, and report all problems of all files at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from slackwater.errors import DefinitionError
from slackwater.pipeline.definition import Late, Pipeline, Publish, Schedule, StepUse
from slackwater.pipeline.table_inputs import AnyTableInput, IcebergInput, TableInput
from slackwater.problems import Problem
from slackwater.sources.definition import Source
from slackwater.sources.file_format import Parquet
from slackwater.sources.strptime_format import strptime_format
from slackwater.validation.graph import (
    count_problems,
    graph_problems,
    rename_problems,
    table_problems,
    with_meant_names,
)
from slackwater.validation.structure import Structure, check_structure, rule_problems
from slackwater.validation.yaml_file import FileProblem, YamlFile

if TYPE_CHECKING:
    from slackwater.steps.input_columns import Columns

_Definition = TypeVar("_Definition", Source, Pipeline)
NO_PROJECT = "{folder} has no project: change into the folder of the project, or name it with --project DIR"
"""Message for a folder without `sources/`."""

# Keys of a source that its own rules compare: they are checked only if all of these could be read.
_COMPARED = ("timestamp", "event_id", "fields", "enrich")
# Keys of a pipeline without names of sources and steps.
_OPERATIONAL = ("pipeline", "description", "timezone", "spark", "schedule", "when", "late", "deadline_hours")


@dataclass(frozen=True, kw_only=True)
class CheckedProject:
    """The definitions of a project that are valid, by name, and all problems of the others."""

    sources: dict[str, Source]
    pipelines: dict[str, Pipeline]
    problems: tuple[FileProblem, ...]


@dataclass(frozen=True, kw_only=True)
class _CheckedSource:
    definition: Source | None
    columns: Columns | None


@dataclass(frozen=True, kw_only=True)
class _CheckedPipeline:
    file: YamlFile
    structure: Structure[Pipeline]
    content: Pipeline
    """The definition, or its readable parts."""


def check_project(folder: Path, *, steps: bool = True) -> CheckedProject:
    """Check all files of a project; without `steps`, everything but the parameters and columns of steps.

    Raises `DefinitionError` if the folder is no project, or defines no source.
    """
    sources, files = _check_sources(folder)
    paths = sorted((folder / "pipelines").glob("*.yaml"))
    pipelines = _check_pipelines(paths, sources, steps=steps)
    files += [pipeline.file for pipeline in pipelines.values()]
    return CheckedProject(
        sources={name: source.definition for name, source in sources.items() if source.definition},
        pipelines={
            name: one.structure.definition
            for name, one in pipelines.items()
            if one.structure.definition and not one.file.problems
        },
        problems=tuple(problem for file in files for problem in sorted(set(file.problems))),
    )


def check_pipeline(folder: Path, path: Path) -> tuple[Pipeline | None, tuple[FileProblem, ...]]:
    """Check the file of one pipeline, which may be anywhere, with the project in `folder` around it.

    The pipeline is None if it cannot be read. The problems are those of this file. Raises `DefinitionError` as
    `check_project` does, and if there is no such file.
    """
    if not path.is_file():
        raise DefinitionError(f"{path}: no such file")
    sources, _ = _check_sources(folder)
    others = [other for other in sorted((folder / "pipelines").glob("*.yaml")) if other.stem != path.stem]
    checked = _check_pipelines([*others, path], sources, steps=True)[path.stem]
    for index, name in enumerate(checked.content.sources):
        if name in sources and sources[name].definition is None:
            message = f"the source has problems: see {folder / 'sources' / name}.yaml"
            checked.file.report(Problem(path=("sources", index), message=message))
    return checked.structure.definition, tuple(sorted(set(checked.file.problems)))


def check_source(path: Path) -> tuple[Source | None, tuple[FileProblem, ...]]:
    """Check the file of one source. Raises `DefinitionError` if there is no such file."""
    if not path.is_file():
        raise DefinitionError(f"{path}: no such file")
    file = YamlFile(path, path.read_bytes())
    source = _check_source(file)
    return source.definition, tuple(sorted(set(file.problems)))


def _check_sources(folder: Path) -> tuple[dict[str, _CheckedSource], list[YamlFile]]:
    """Return the sources of a project by the names of their files, and the files."""
    if not folder.is_dir():
        raise DefinitionError(f"no project folder at {folder} (name one with --project DIR)")
    if not (folder / "sources").is_dir():
        raise DefinitionError(NO_PROJECT.format(folder=folder))
    files = [YamlFile(path, path.read_bytes()) for path in sorted((folder / "sources").glob("*.yaml"))]
    if not files:
        raise DefinitionError(f"{folder / 'sources'}: no source is defined there (add one YAML file per source)")
    return {file.path.stem: _check_source(file) for file in files}, files


def _check_source(file: YamlFile) -> _CheckedSource:
    if not _is_mapping(file):
        return _CheckedSource(definition=None, columns=None)
    structure = check_structure(file, Source)
    if not structure.rules_are_checked and all(structure.can_read_all((key,)) for key in _COMPARED):
        invalid = [path for path in structure.invalid if path != ("source",)]
        can_arrive = structure.can_read(("push",)) and structure.can_read_all(("pull",))
        for problem in rule_problems(Source, {**file.value, "source": "any"}, invalid):
            # Without its invalid `pull`, a source seems to have none.
            if problem.path or can_arrive:
                file.report(problem)
    _check_name(file, "source", structure)
    if structure.definition:
        _check_offsets(file, structure.definition)
    columns = None
    if structure.can_read_all(("fields",)) and structure.can_read_all(("enrich",)):
        columns = tuple(map(str, (*file.value.get("fields", ()), *file.value.get("enrich", ()))))
    return _CheckedSource(definition=None if file.problems else structure.definition, columns=columns)


def _check_offsets(file: YamlFile, source: Source) -> None:
    """Report a source that would reject every event, because its timestamps have no offset and it has no timezone."""
    formats = source.fields[source.timestamp.field].formats
    has_offsets = not formats or any("%" not in each or strptime_format(each).has_offset for each in formats)
    # The timestamps in Parquet files may have a type instead of a format.
    is_typed = source.pull is not None and isinstance(source.pull.format, Parquet)
    if not (has_offsets or source.timezone or is_typed):
        message = (
            f"missing: no event could be accepted, because the formats of {source.timestamp.field} have no offset "
            "(%z): add the `timezone` of its timestamps, such as `timezone: UTC`"
        )
        file.report(Problem(path=("timestamp", "timezone"), at_key=True, message=message))


def _check_pipelines(
    paths: Sequence[Path], sources: Mapping[str, _CheckedSource], *, steps: bool
) -> dict[str, _CheckedPipeline]:
    """Return the pipelines in the files, by the names of the files."""
    checked = {path.stem: _check_pipeline(YamlFile(path, path.read_bytes())) for path in paths}
    defined = {name: source.definition for name, source in sources.items() if source.definition}
    for one in checked.values():
        named, counted = _name_problems(one, sources, checked), count_problems(one.content, defined)
        for problem in (*named, *_timezone_problems(one, sources), *counted):
            one.file.report(problem)
    for name, problem in rename_problems({name: one.content for name, one in checked.items()}):
        checked[name].file.report(problem)
    for name, problem in table_problems({name: one.content for name, one in checked.items()}):
        checked[name].file.report(problem)
    if steps:
        # Imports a SQL parser, which Lambda functions lack, and which takes a third of a second.
        from slackwater.validation.columns import check_columns  # noqa: PLC0415
        from slackwater.validation.steps import check_steps  # noqa: PLC0415

        columns = {name: source.columns for name, source in sources.items()}
        types = {name: source.definition.columns for name, source in sources.items() if source.definition}
        for one in checked.values():
            content = with_meant_names(one.content, sources)
            check_columns(one.file, content, check_steps(one.file, content, one.structure), columns, types)
    return checked


def _check_pipeline(file: YamlFile) -> _CheckedPipeline:
    if not _is_mapping(file):
        unreadable = Structure[Pipeline](definition=None, invalid=((),), rules_are_checked=False)
        return _CheckedPipeline(file=file, structure=unreadable, content=readable_pipeline(None))
    structure = check_structure(file, Pipeline)
    _check_name(file, "pipeline", structure)
    content = structure.definition or readable_pipeline(file.value)
    return _CheckedPipeline(file=file, structure=structure, content=content)


def _name_problems(
    checked: _CheckedPipeline, sources: Collection[str], pipelines: Mapping[str, _CheckedPipeline]
) -> Iterator[Problem]:
    """Yield the problems of names in a pipeline, except those that only follow from values that could not be read."""
    structure, pipeline = checked.structure, checked.content
    problems = [] if structure.rules_are_checked else list(pipeline.name_problems())
    has_names = all(structure.can_read((key,)) for key in ("sources", "tables", "steps"))
    if has_names:
        is_complete = all(
            path[2:3] in (("step",), ("with",), ("exchange",))
            for path in structure.invalid
            if not path or path[0] not in _OPERATIONAL
        )
        former = {one.content.renamed_from or "" for one in pipelines.values()}
        problems += graph_problems(pipeline, sources, pipelines, is_complete=is_complete, former=former)
    for problem in problems:
        is_read = structure.can_read(problem.path) and (problem.at_key or structure.can_read_all(problem.path))
        if is_read and (has_names or problem.path == ("publish", "key")):
            yield problem


def _timezone_problems(checked: _CheckedPipeline, sources: Mapping[str, _CheckedSource]) -> Iterator[Problem]:
    """Yield the problem of a daily pipeline without a timezone whose sources have local times."""
    for name in checked.content.sources if checked.content.period == "day" else ():
        definition = sources[name].definition if name in sources else None
        if definition and "timezone" not in checked.file.value and (timezone := definition.local_timezone):
            message = (
                f"missing: {name} has times of {timezone}: add `timezone: {timezone}`, whose days are then published, "
                "or `timezone: UTC`"
            )
            yield Problem(path=("timezone",), at_key=True, message=message)
            return


def _check_name(file: YamlFile, key: str, structure: Structure[_Definition]) -> None:
    """Report a definition that has another name than its file."""
    name = file.value.get(key)
    if structure.can_read((key,)) and name != file.path.stem:
        file.report(Problem(path=(key,), message=f"it defines {name!r}: name the file {name}.yaml, or change the name"))


def _is_mapping(file: YamlFile) -> bool:
    """Return whether the file holds a definition, and report if it was readable and holds something else."""
    if isinstance(file.value, dict):
        return True
    if file.value is not None or not file.problems:
        found = "nothing" if file.value is None else "a list" if isinstance(file.value, list) else "a single value"
        file.report(Problem(message=f"a mapping of keys is expected at the top, not {found}"))
    return False


def readable_pipeline(value: Any) -> Pipeline:
    """Return a pipeline that was not validated, with all names and steps in the content of a file.

    A name that cannot be read is an empty string, and other values that cannot be read are missing.
    """
    content = _mapping(value)
    publish, late = _mapping(content.get("publish")), _mapping(content.get("late"))
    return Pipeline.model_construct(
        pipeline=_name(content.get("pipeline")),
        renamed_from=_name(content.get("renamed_from")) or None,
        period="hour" if content.get("period") == "hour" else "day",
        schedule=Schedule.model_construct(process=""),  # not the default, which hours refuse
        sources=_names(content.get("sources")),
        tables={str(name): _table(_mapping(table)) for name, table in _mapping(content.get("tables")).items()},
        steps=_uses(content.get("steps")),
        publish=Publish.model_construct(
            step=_name(publish.get("step")),
            key=_names(publish.get("key")),
            metrics={str(name): value for name, value in _mapping(publish.get("metrics")).items()},
            hour=_name(publish.get("hour")) or None,
        ),
        load=_uses(content.get("load")),
        late=Late.model_construct(
            thresholds={str(name): value for name, value in _mapping(late.get("thresholds")).items()}
        ),
    )


def _table(table: Mapping[str, Any]) -> AnyTableInput:
    if "iceberg" in table:
        return IcebergInput.model_construct(iceberg=_name(table["iceberg"]), location=_name(table.get("location")))
    try:
        return TableInput.model_validate(table)
    except ValidationError:
        # Not the default of `missing`, which hours that read days refuse.
        return TableInput.model_construct(table=_name(table.get("table")), missing="empty")


def _uses(value: Any) -> dict[str, StepUse]:
    return {str(name): _use(_mapping(use)) for name, use in _mapping(value).items()}


def _use(use: Mapping[str, Any]) -> StepUse:
    return StepUse.model_construct(
        step=_name(use.get("step")),
        depends_on=_names(use.get("depends_on")),
        parameters=dict(_mapping(use.get("with"))),
        exchange=use.get("exchange") is True,
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: Any) -> tuple[str, ...]:
    return tuple(map(_name, value)) if isinstance(value, list) else ()


def _name(value: Any) -> str:
    return value if isinstance(value, str) else ""
