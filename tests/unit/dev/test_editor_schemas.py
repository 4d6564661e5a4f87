"""The schemas that commands keep in a project, with which editors check its files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest
import yaml

from slackwater.cli.main import run
from slackwater.dev import editor_schemas
from slackwater.dev.editor_schemas import keep_schemas, schema_comment
from slackwater.project.project import load_definitions
from tests.step_package import installed_package

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "nyc_flights"


@pytest.fixture
def project(tmp_path):
    for name in ("sources", "pipelines"):
        shutil.copytree(EXAMPLE / name, tmp_path / "project" / name)
    return tmp_path / "project"


def schema(project, name):
    path = project / ".slackwater" / "schemas" / f"{name}.schema.json"
    return jsonschema.Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))


def test_the_first_command_writes_the_schemas_and_the_files_are_valid(project, capsys):
    assert run(["source", "validate", "--project", str(project)]) == 0
    files = sorted(project.glob("*/*.yaml"))
    assert len(files) == 4
    for file in files:
        schema(project, file.parent.name.removesuffix("s")).validate(yaml.safe_load(file.read_text()))
    assert (project / ".slackwater" / ".gitignore").read_text() == "*\n"
    # What the comment names, seen from a file.
    comment = schema_comment("source").partition("$schema=")[2]
    assert (project / "sources" / comment).resolve() == project / ".slackwater" / "schemas" / "source.schema.json"


@pytest.mark.parametrize(
    ("file", "right", "wrong", "path"),
    [
        ("sources/flights.yaml", "timestamp:", "timestmp:", []),
        (
            "pipelines/daily_delays.yaml",
            "step: data_quality",
            "step: data_qualiti",
            ["steps", "checked_flights", "step"],
        ),
        ("pipelines/daily_delays.yaml", "timezone: America/New_York", "timezone: 5", ["timezone"]),
    ],
)
def test_a_mistake_is_found(project, file, right, wrong, path):
    keep_schemas(project)
    text = (project / file).read_text()
    assert text.count(right) == 1
    validator = schema(project, file.partition("s/")[0])
    errors = list(validator.iter_errors(yaml.safe_load(text.replace(right, wrong))))
    assert path in [list(error.absolute_path) for error in errors]


def test_schemas_are_written_again_only_for_another_installation(project, monkeypatch, tmp_path):
    keep_schemas(project)
    folder = project / ".slackwater" / "schemas"
    (folder / "source.schema.json").write_text("{}")
    with monkeypatch.context() as patch:
        patch.setattr(editor_schemas, "editor_schemas", lambda: pytest.fail("they are made again"))
        keep_schemas(project)
    assert (folder / "source.schema.json").read_text() == "{}"
    pipeline, before = folder / "pipeline.schema.json", schema(project, "pipeline").schema
    written = pipeline.stat().st_mtime_ns
    monkeypatch.setattr(editor_schemas, "__version__", "another")
    keep_schemas(project)
    assert schema(project, "source").schema["title"] == "Source"
    assert pipeline.stat().st_mtime_ns == written  # its content is the same
    (folder / "version").unlink()
    with installed_package(tmp_path / "package"):
        keep_schemas(project)
    assert "in_celsius" in json.dumps(schema(project, "pipeline").schema)
    assert "in_celsius" not in json.dumps(before)


def test_a_folder_that_is_no_project_and_one_that_cannot_be_written_stay_as_they_are(project, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    keep_schemas(tmp_path / "other")
    assert list((tmp_path / "other").iterdir()) == []

    def refuse(*_, **__):
        raise PermissionError

    monkeypatch.setattr(Path, "mkdir", refuse)
    keep_schemas(project)
    assert not (project / ".slackwater").exists()


def test_an_inferred_source_names_its_schema_and_is_valid_by_it(project, tmp_path, monkeypatch, printed_by):
    monkeypatch.chdir(project)
    (tmp_path / "sales.csv").write_text("id,at,amount\na,2024-03-04T07:12:00Z,1.5\nb,2024-03-04T08:12:00Z,2.5\n")
    printed_by("source", "infer", str(tmp_path / "sales.csv"), "--output", "sources/sales.yaml")
    first, _, rest = Path("sources/sales.yaml").read_text().partition("\n")
    assert (first, rest.startswith("# Written by `slackwater source infer`")) == (schema_comment("source"), True)
    schema(project, "source").validate(yaml.safe_load(rest))
    assert "sales" in load_definitions(project).sources
    printed_by("source", "infer", str(tmp_path / "sales.csv"), "--output", "sales.yaml")
    assert "$schema" not in Path("sales.yaml").read_text()
