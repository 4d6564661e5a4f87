"""`slackwater pipeline`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from slackwater.cli.main import run
from tests.example_project import EXAMPLE

pytestmark = pytest.mark.unit


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("sources", "pipelines"):
        shutil.copytree(EXAMPLE / name, tmp_path / name)
    path = tmp_path / "pipelines" / "daily_delays.yaml"
    path.write_text(path.read_text().replace("depends_on: [checked_flights, ", "depends_on: [checked_flight, "))
    (tmp_path / "pipelines" / "other.yaml").write_text("pipeline: other\n")
    return tmp_path


PROBLEM = "steps.flights_with_weather.depends_on: no source or step 'checked_flight' (did you mean checked_flights?)"
LINE = (EXAMPLE / "pipelines" / "daily_delays.yaml").read_text().splitlines().index("    step: join") + 2


def test_each_problem_is_one_line_with_its_position(project, monkeypatch, printed_by):
    monkeypatch.chdir(project)
    first, *others = printed_by("pipeline", "validate", code=2).out.splitlines()
    assert first == f"pipelines/daily_delays.yaml:{LINE}:18  {PROBLEM}"
    assert others == [
        "pipelines/other.yaml:1:1  publish: missing (expected a mapping)",
        "pipelines/other.yaml:1:1  steps: missing (expected a mapping)",
    ]


def test_with_json_the_problems_are_one_document(project, document_of):
    first, *_ = document_of("pipeline", "validate", "--project", str(project), code=2)["problems"]
    assert first == {
        "file": str(project / "pipelines" / "daily_delays.yaml"),
        "line": LINE,
        "column": 18,
        "place": "steps.flights_with_weather.depends_on",
        "message": "no source or step 'checked_flight'",
        "expected": "",
        "suggestion": "checked_flights",
    }


def test_with_a_file_only_its_problems_are_reported(project, monkeypatch, printed_by):
    """The project is the one around the file, wherever the command is run."""
    path = project / "pipelines" / "daily_delays.yaml"
    assert printed_by("pipeline", "validate", str(path), code=2).out == f"{path}:{LINE}:18  {PROBLEM}\n"
    monkeypatch.chdir(project / "pipelines")
    assert printed_by("pipeline", "validate", path.name, code=2).out == f"{path.name}:{LINE}:18  {PROBLEM}\n"


@pytest.mark.parametrize("file", [[], [str(EXAMPLE / "pipelines" / "daily_delays.yaml")]])
def test_without_problems_it_exits_with_0(file, printed_by, document_of):
    arguments = ["pipeline", "validate", *file, "--project", str(EXAMPLE)]
    assert "valid" in printed_by(*arguments).out
    assert document_of(*arguments) == {"problems": []}


def test_a_missing_file_is_an_input_error(capsys):
    assert run(["pipeline", "validate", "nowhere.yaml", "--project", str(EXAMPLE)]) == 2
    assert "nowhere.yaml: no such file" in capsys.readouterr().err


DAILY = str(EXAMPLE / "pipelines" / "daily_delays.yaml")


def test_graph_draws_mermaid_or_svg(printed_by, document_of):
    mermaid = printed_by("pipeline", "graph", DAILY).out
    assert mermaid.startswith("flowchart LR\n")
    svg = printed_by("pipeline", "graph", DAILY, "--svg").out
    assert svg.startswith("<svg ")
    document = document_of("pipeline", "graph", DAILY)
    assert document == {"layers": [["delays_by_carrier"]], "mermaid": mermaid, "svg": svg}


def test_compile_prints_the_state_machine(printed_by):
    machine = json.loads(printed_by("pipeline", "compile", DAILY).out)
    assert machine["StartAt"] == "Freeze inputs"
    assert machine["States"]["Run delays_by_carrier"]["Next"] == "Record the publication"


@pytest.mark.parametrize("command", ["graph", "compile"])
def test_a_file_with_problems_is_neither_drawn_nor_compiled(project, capsys, command):
    assert run(["pipeline", command, str(project / "pipelines" / "daily_delays.yaml")]) == 2
    assert f"daily_delays.yaml:{LINE}:18" in capsys.readouterr().err
