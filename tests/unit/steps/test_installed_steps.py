"""A step of an installed package is found, listed, documented and checked like those of the library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.code_digest import code_digests
from slackwater.cli.main import run
from slackwater.errors import DefinitionError
from slackwater.project.project import load_project
from slackwater.steps.registry import find_step, registry
from tests.step_package import installed_package

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
PIPELINE = """
pipeline: climate
sources: [weather]
steps:
  converted: {step: in_celsius, depends_on: [weather], with: {PARAMETER: temp}}
publish: {step: converted, key: [date, origin]}
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "site-packages"
    with installed_package(folder):
        yield folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "pipelines").mkdir(parents=True)
    (folder / "sources").symlink_to(ROOT / "examples" / "nyc_flights" / "sources")
    return folder


def test_it_is_listed(capsys):
    assert run(["step", "list", "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    expected = {"name": "in_celsius", "kind": "transform", "summary": "Convert a column of degrees Fahrenheit."}
    assert [step for step in steps if step["name"] == "in_celsius"] == [expected]


def test_it_is_documented(capsys):
    assert run(["step", "show", "in_celsius"]) == 0
    shown = capsys.readouterr().out
    assert "in_celsius (transform): Convert a column of degrees Fahrenheit." in shown
    assert "Effect: `converted`, the number of converted values." in shown
    assert "column  string  required  The column to convert." in shown


def test_a_pipeline_that_uses_it_is_checked(project):
    path = project / "pipelines" / "climate.yaml"
    path.write_text(PIPELINE.replace("PARAMETER", "column"))
    assert load_project(project).pipeline("climate").steps["converted"].step == "in_celsius"
    path.write_text(PIPELINE.replace("PARAMETER", "colum"))
    with pytest.raises(DefinitionError, match=r"climate\.yaml:5:63: steps\.converted\.with\.colum: unknown key"):
        load_project(project)


def test_its_code_is_part_of_the_identity_of_runs(package):
    before = code_digests(ROOT)
    with (package / "acme_steps" / "in_celsius.py").open("a") as module:
        module.write("# changed\n")
    after = code_digests(ROOT)
    changed = {name for name in after.steps if after.steps[name] != before.steps[name]}
    assert (changed, after.job) == ({"in_celsius"}, before.job)


def test_a_step_of_the_library_cannot_be_replaced(package):
    entry_points = package / "acme_steps-1.0.dist-info" / "entry_points.txt"
    entry_points.write_text("[slackwater.steps]\njoin = acme_steps.in_celsius\n")
    (package / "acme_steps" / "in_celsius.py").write_text("from slackwater.steps.transform.join import STEP\n")
    with pytest.raises(DefinitionError, match=r"step join: there are two steps of this name; one of them is in acme"):
        registry()


@pytest.mark.parametrize(
    "module", ["import no_such_module", "STEP = 1", "from slackwater.steps.transform.sql import STEP"]
)
def test_a_module_without_the_step_is_an_error_that_names_it(package, module):
    (package / "acme_steps" / "in_celsius.py").write_text(module)
    with pytest.raises(DefinitionError, match=r"step in_celsius: the module acme_steps\.in_celsius "):
        find_step("in_celsius")


def test_an_error_in_the_code_of_a_step_is_not_taken_for_a_missing_step(package):
    (package / "acme_steps" / "in_celsius.py").write_text("{}['ACME_KEY']\n")
    with pytest.raises(KeyError, match="ACME_KEY"):
        find_step("in_celsius")
