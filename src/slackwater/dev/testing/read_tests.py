"""Find the tests of a project, and check them against its pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slackwater.dev.testing.definition import PipelineTest
from slackwater.errors import InputError, UnknownName
from slackwater.pipeline.definition import Pipeline
from slackwater.problems import Problem, closest, hint, listed, unknown_name
from slackwater.validation.check_project import CheckedProject, check_project
from slackwater.validation.structure import check_structure
from slackwater.validation.yaml_file import FileProblem, YamlFile


@dataclass(frozen=True, kw_only=True)
class WrittenTest:
    """A test that can run."""

    name: str
    file: YamlFile
    definition: PipelineTest


@dataclass(frozen=True, kw_only=True)
class ReadTests:
    """The tests of a project."""

    tests: tuple[WrittenTest, ...]
    """Those without a problem."""
    problems: tuple[FileProblem, ...]
    """Of all other files, ordered by file and position."""
    checked: CheckedProject
    """The definitions that the tests were checked against."""


def read_tests(folder: Path, names: Sequence[str] = ()) -> ReadTests:
    """Read and check tests of the project in `folder`: those with the given names, or all.

    Raises `InputError` if there are no tests, `UnknownName` for a name without a file, and `DefinitionError` if the
    folder defines no source.
    """
    paths = {path.stem: path for path in sorted((folder / "tests").glob("*.yaml"))}
    if not paths:
        raise InputError(
            f"no tests in {folder / 'tests'}: write one as tests/NAME.yaml (`slackwater init` writes a project with a "
            "test)"
        )
    for name in names:
        if name not in paths:
            similar = closest(name, paths)
            raise UnknownName(f"no test {name!r} in this project{hint('' if similar else listed(paths), similar)}")
    checked = check_project(folder)
    known = [path.stem for path in sorted((folder / "pipelines").glob("*.yaml"))]
    tests, problems = list[WrittenTest](), list[FileProblem]()
    for name, path in paths.items():
        if names and name not in names:
            continue
        file = YamlFile(path, path.read_bytes(), times_as_text=True)
        definition = _check(file, known, checked.pipelines)
        problems += sorted(set(file.problems))
        if definition and not file.problems:
            tests.append(WrittenTest(name=name, file=file, definition=definition))
    return ReadTests(tests=tuple(tests), problems=tuple(problems), checked=checked)


def _check(file: YamlFile, known: Iterable[str], pipelines: Mapping[str, Pipeline]) -> PipelineTest | None:
    """Return the test in a file, and report the problems to the file; None if it cannot be read."""
    if file.value is None and file.problems:
        return None
    definition = check_structure(file, PipelineTest).definition
    if definition is None:
        return None
    name = definition.pipeline
    if name not in known:
        file.report(unknown_name(f"no pipeline {name!r} in this project", name, known, path=("pipeline",)))
    # Problems of the pipeline itself are reported when the test runs.
    elif pipeline := pipelines.get(name):
        for problem in _name_problems(definition, pipeline):
            file.report(problem)
    for name, rows in definition.inputs.items():
        if isinstance(rows, str) and not (path := file.path.parent / rows).is_file():
            file.report(Problem(path=("inputs", name), message=f"no such file: {path}"))
    return definition


def _name_problems(test: PipelineTest, pipeline: Pipeline) -> Iterator[Problem]:
    """Yield the problems of names of inputs and steps."""
    of = f"of {pipeline.pipeline}"
    for key, given, known, noun in (
        ("inputs", test.inputs, pipeline.inputs, "input"),
        ("rejected", test.rejected, pipeline.sources, "source"),
        ("expect", test.expect, pipeline.steps, "step"),
    ):
        for name in given:
            if name not in known:
                yield unknown_name(f"{name} is no {noun} {of}", name, known, path=(key, name), at_key=True)
    if missing := [name for name in pipeline.inputs if name not in test.inputs]:
        message = f"{', '.join(missing)} missing: give rows of each input {of} (`[]` for none)"
        yield Problem(path=("inputs",), message=message, at_key=True)
