"""`slackwater dev` as far as it needs no Spark: options, problems of definitions, changed files and code."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slackwater.dev.loop import DevLoop, InvalidDefinitions
from slackwater.dev.samples import Samples
from slackwater.dev.step_code import StepCode
from slackwater.errors import UnknownName
from slackwater.steps.registry import find_step
from tests.example_project import EXAMPLE
from tests.step_package import MODULE, installed_package

pytestmark = pytest.mark.unit

DEV = ["dev", "daily_delays", "--date", "2013-03-08"]


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """The example's project. No cloud listens at the endpoint."""
    folder = tmp_path / "project"
    for name in ("sources", "pipelines"):
        shutil.copytree(EXAMPLE / name, folder / name)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return folder


def replace(path: Path, before: str, after: str) -> None:
    content = path.read_text()
    assert before in content
    path.write_text(content.replace(before, after))


def loop(project: Path, pipeline: str = "daily_delays") -> DevLoop:
    def connect(_project):
        raise AssertionError

    return DevLoop(project, pipeline, "2013-03-08", samples=Samples({}, rows=1, connect=connect), rows=1, show=0)


def problems(project: Path) -> list[str]:
    with pytest.raises(InvalidDefinitions) as error:
        loop(project).take_samples()
    return [problem.position for problem in error.value.problems]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*DEV, "--json"], "--json: it prints one document: add --once"),
        ([*DEV, "--input", "flights.csv"], "--input: 'flights.csv' is not of the form INPUT=FILE"),
        (["dev", "daily_delay", "--date", "2013-03-08"], "no pipeline 'daily_delay' in this project (pipelines: daily"),
        (["dev", "daily_delays", "--date", "today"], "--date: 'today' is not a date"),
        ([*DEV, "--input", "flights=none.csv"], "--input: flights: none.csv: no such file"),
        ([*DEV, "--input", "fligths=none.csv"], "--input: fligths is no input of daily_delays (its inputs: flights, w"),
        ([*DEV, "--rows", "0"], "Invalid value for '--rows'"),
        (DEV, "flights: no rows to try the pipeline on: name a file with --input flights=FILE, or deploy the project"),
    ],
)
def test_wrong_arguments_and_missing_rows_end_the_command(project, printed_by, arguments, message):
    assert message in "".join(printed_by(*arguments, code=2))


def test_invalid_definitions_are_reported_without_spark(project, printed_by, document_of):
    path = project / "pipelines" / "daily_delays.yaml"
    replace(path, "columns: [origin, time_hour", "columns: [orgin, time_hour")
    document = document_of(*DEV, "--once", code=1)
    assert [(problem["line"], problem["suggestion"]) for problem in document["problems"]] == [(18, "origin")]
    assert document["steps"] == []
    assert "daily_delays.yaml:18:" in printed_by(*DEV, "--once", code=1).out


def test_only_problems_of_the_pipeline_and_its_sources_stop_it(project):
    replace(project / "pipelines" / "weekly_delays.yaml", "step: aggregate", "step: agregate")
    with pytest.raises(AssertionError):  # it goes on to the samples
        loop(project).take_samples()
    replace(project / "sources" / "weather.yaml", "push: {}", "push: [")
    (position,) = problems(project)
    assert position.startswith(str(project / "sources" / "weather.yaml"))
    (project / "pipelines" / "daily_delays.yaml").unlink()
    (project / "sources" / "weather.yaml").write_text((EXAMPLE / "sources" / "weather.yaml").read_text())
    with pytest.raises(UnknownName, match="no pipeline 'daily_delays'"):
        loop(project).take_samples()


def test_changes_are_those_of_the_pipeline_and_of_sources(project):
    trying = loop(project)
    pipeline, source = project / "pipelines" / "daily_delays.yaml", project / "sources" / "new.yaml"
    before = trying.snapshot()
    replace(project / "pipelines" / "weekly_delays.yaml", "step:", "step :")
    assert trying.snapshot() == before
    replace(pipeline, "max: 6000", "max: 60000")
    source.touch()
    assert trying.wait_for_change(before, check=lambda: None) == [pipeline, source]
    before = trying.snapshot()
    pipeline.unlink()
    assert trying.wait_for_change(before, check=lambda: None) == [pipeline]


def test_waiting_ends_with_what_the_check_raises(project):
    def interrupt():
        raise KeyboardInterrupt

    trying = loop(project)
    with pytest.raises(KeyboardInterrupt):
        trying.wait_for_change(trying.snapshot(), check=interrupt)


@pytest.fixture
def package(tmp_path) -> Iterator[Path]:
    """The module of a step in an installed package, which adds `in_celsius`."""
    with installed_package(tmp_path / "site-packages"):
        yield tmp_path / "site-packages" / "acme_steps" / "in_celsius.py"


def test_a_changed_package_is_imported_again_and_an_unchanged_one_is_not(project, package):
    code = StepCode()
    assert package in code.files()
    step, digest = find_step("in_celsius"), code.digest_of("in_celsius")
    assert code.digest_of("join") == ""
    code.reload()
    assert find_step("in_celsius") is step
    # A helper module of the package may decide what the step does.
    (package.parent / "helper.py").write_text("FACTOR = 1.8\n")
    code.reload()
    assert find_step("in_celsius") is not step
    assert code.digest_of("in_celsius") != digest
    (package.parent / "helper.py").unlink()
    code.reload()
    assert code.digest_of("in_celsius") == digest


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def (", "SyntaxError: invalid syntax ({path}:1)"),
        ("\nraise KeyError('x')", "KeyError: 'x' ({path}:2)"),
        ("import no_such_module", "the module acme_steps.in_celsius cannot be imported: No module named"),
        ("STEP = 1", "the module acme_steps.in_celsius has no variable STEP"),
    ],
)
def test_code_that_cannot_be_imported_is_a_problem_until_it_is_mended(project, package, code, message):
    path = project / "pipelines" / "daily_delays.yaml"
    replace(path, "step: select\n", "step: in_celsius\n")
    replace(path, "with: {columns: [origin, time_hour, wind_speed, precip]}", "with: {column: temp}")
    trying = loop(project)
    package.write_text(code)
    result = trying.run(lambda: None)
    assert message.format(path=package) in f"{result.error}{result.problems}"
    assert not result.succeeded
    package.write_text(MODULE)
    with pytest.raises(AssertionError):  # it goes on to the samples
        trying.run(lambda: None)
