"""`slackwater source`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slackwater.cli.main import run

pytestmark = pytest.mark.unit

FLIGHTS = Path("examples/nyc_flights/sources/flights.yaml")


def test_the_columns_of_a_valid_definition_are_printed(capsys):
    assert run(["source", "validate", str(FLIGHTS)]) == 0
    shown = capsys.readouterr().out
    assert "flights: valid, 19 columns" in shown
    assert "carrier, required" in shown


def test_with_json_the_result_is_one_document(capsys):
    assert run(["source", "validate", str(FLIGHTS), "--json"]) == 0
    (source,) = json.loads(capsys.readouterr().out)["sources"]
    assert source["source"] == "flights"
    assert source["columns"]["dep_delay"] == "double"
    assert source["pull"]["format"]["type"] == "csv"


def test_without_a_file_the_whole_project_is_checked(capsys):
    assert run(["source", "validate", "--project", "examples/nyc_flights"]) == 0
    shown = capsys.readouterr().out
    assert "flights: valid" in shown
    assert "weather: valid, 15 columns" in shown


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("source: other\ntimestamp: {field: at}\nfields: {at: timestamp}\npush: {}\n", "name the file other.yaml"),
        ("source: feed\ntimestamp: {field: at}\nfields: {at: text}\npush: {}\n", "fields.at"),
        ("- feed\n", "a mapping of keys is expected"),
    ],
)
def test_an_invalid_definition_is_an_input_error_that_names_file_and_field(tmp_path, capsys, content, says):
    file = tmp_path / "feed.yaml"
    file.write_text(content)
    assert run(["source", "validate", str(file)]) == 2
    shown = capsys.readouterr().err
    assert says in shown
    assert "feed.yaml" in shown


def test_a_missing_definition_file_is_an_input_error(capsys):
    assert run(["source", "validate", "nowhere.yaml"]) == 2
    assert "no such file" in capsys.readouterr().err


def test_the_schema_command_prints_json(capsys):
    assert run(["source", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "Source"
