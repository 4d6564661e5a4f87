"""`slackwater pipeline`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from slackwater.cli.main import run

pytestmark = pytest.mark.unit

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "nyc_flights"


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


def test_each_problem_is_one_line_with_its_position(project, monkeypatch, capsys):
    monkeypatch.chdir(project)
    assert run(["pipeline", "validate"]) == 2
    first, *others = capsys.readouterr().out.splitlines()
    assert first == f"pipelines/daily_delays.yaml:{LINE}:18  {PROBLEM}"
    assert others == [
        "pipelines/other.yaml:1:1  publish: missing (expected a mapping)",
        "pipelines/other.yaml:1:1  steps: missing (expected a mapping)",
    ]


def test_with_json_the_problems_are_one_document(project, capsys):
    assert run(["pipeline", "validate", "--project", str(project), "--json"]) == 2
    first, *_ = json.loads(capsys.readouterr().out)["problems"]
    assert first == {
        "file": str(project / "pipelines" / "daily_delays.yaml"),
        "line": LINE,
        "column": 18,
        "place": "steps.flights_with_weather.depends_on",
        "message": "no source or step 'checked_flight'",
        "expected": "",
        "suggestion": "checked_flights",
    }


def test_with_a_file_only_its_problems_are_reported(project, monkeypatch, capsys):
    """The project is the one around the file, wherever the command is run."""
    path = project / "pipelines" / "daily_delays.yaml"
    assert run(["pipeline", "validate", str(path)]) == 2
    assert capsys.readouterr().out == f"{path}:{LINE}:18  {PROBLEM}\n"
    monkeypatch.chdir(project / "pipelines")
    assert run(["pipeline", "validate", path.name]) == 2
    assert capsys.readouterr().out == f"{path.name}:{LINE}:18  {PROBLEM}\n"


@pytest.mark.parametrize("file", [[], [str(EXAMPLE / "pipelines" / "daily_delays.yaml")]])
def test_without_problems_it_exits_with_0(file, capsys):
    arguments = ["pipeline", "validate", *file, "--project", str(EXAMPLE)]
    assert run(arguments) == 0
    assert "valid" in capsys.readouterr().out
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"problems": []}


def test_a_missing_file_is_an_input_error(capsys):
    assert run(["pipeline", "validate", "nowhere.yaml", "--project", str(EXAMPLE)]) == 2
    assert "nowhere.yaml: no such file" in capsys.readouterr().err


DAILY = str(EXAMPLE / "pipelines" / "daily_delays.yaml")


def test_graph_draws_mermaid_or_svg(capsys):
    assert run(["pipeline", "graph", DAILY]) == 0
    mermaid = capsys.readouterr().out
    assert mermaid.startswith("flowchart LR\n")
    assert run(["pipeline", "graph", DAILY, "--svg"]) == 0
    svg = capsys.readouterr().out
    assert svg.startswith("<svg ")
    assert run(["pipeline", "graph", DAILY, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {"layers": [["delays_by_carrier"]], "mermaid": mermaid, "svg": svg}


def test_compile_prints_the_state_machine(capsys):
    assert run(["pipeline", "compile", DAILY]) == 0
    machine = json.loads(capsys.readouterr().out)
    assert machine["StartAt"] == "Freeze inputs"
    assert machine["States"]["Run delays_by_carrier"]["Next"] == "Record the publication"


@pytest.mark.parametrize("command", ["graph", "compile"])
def test_a_file_with_problems_is_neither_drawn_nor_compiled(project, capsys, command):
    assert run(["pipeline", command, str(project / "pipelines" / "daily_delays.yaml")]) == 2
    assert f"daily_delays.yaml:{LINE}:18" in capsys.readouterr().err
