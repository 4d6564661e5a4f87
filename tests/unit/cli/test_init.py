"""`slackwater init`: the project that it writes, and the folders that it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from slackwater.cli.main import run
from slackwater.dev.testing.definition import fixture_schema
from slackwater.project.project import load_project
from slackwater.sources.definition import source_schema
from slackwater.validation.pipeline_schema import pipeline_schema
from slackwater.validation.yaml_file import YamlFile

pytestmark = pytest.mark.unit

FILES = [
    ".gitignore",
    "README.md",
    "data/orders.ndjson",
    "pipelines/daily_sales.yaml",
    "sources/orders.yaml",
    "tests/daily_sales.yaml",
]


@pytest.mark.parametrize("name", ["new", "below/new", "empty", "."])
def test_a_new_or_an_empty_folder_gets_a_valid_project(tmp_path, monkeypatch, capsys, name):
    (tmp_path / "empty").mkdir()
    folder = tmp_path if name != "." else tmp_path / "empty"
    monkeypatch.chdir(folder)
    assert run(["init", name, "--json"]) == 0
    written = (folder / name).resolve()
    assert json.loads(capsys.readouterr().out) == {"project": str(written), "files": FILES}
    files = {str(path.relative_to(written)) for path in written.rglob("*") if path.is_file()}
    schemas = {
        f".slackwater/schemas/{name}"
        for name in ("pipeline.schema.json", "source.schema.json", "test.schema.json", "version")
    }
    assert files == {*FILES, *schemas, ".slackwater/.gitignore"}
    project = load_project(written)
    assert (list(project.sources), list(project.pipelines)) == (["orders"], ["daily_sales"])


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("sources/orders.yaml", source_schema),
        ("pipelines/daily_sales.yaml", pipeline_schema),
        ("tests/daily_sales.yaml", fixture_schema),
    ],
)
def test_editors_find_the_schema_of_each_definition(tmp_path, path, schema):
    assert run(["init", str(tmp_path / "new")]) == 0
    definition = tmp_path / "new" / path
    comment, _, _ = definition.read_text().partition("\n")
    found = json.loads((definition.parent / comment.removeprefix("# yaml-language-server: $schema=")).read_text())
    assert found == json.loads(json.dumps(schema()))
    content = YamlFile(definition, definition.read_bytes(), times_as_text=True).value
    jsonschema.Draft202012Validator(found).validate(content)


@pytest.mark.parametrize(
    ("existing", "expected"),
    [("new/file", "new is not empty: name a new or an empty folder"), ("new", "new cannot be written (File exists)")],
)
def test_a_folder_that_is_in_use_is_refused_and_left_as_it_is(tmp_path, monkeypatch, printed_by, existing, expected):
    monkeypatch.chdir(tmp_path)
    Path(existing).parent.mkdir(exist_ok=True)
    Path(existing).write_text("mine")
    assert expected in printed_by("init", "new", code=2).err
    assert [str(path) for path in Path().rglob("*") if path.is_file()] == [existing]
