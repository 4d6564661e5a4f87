"""Each file in `invalid/` is checked as a part of one small project. Its last lines state all problems, with positions.

A file whose name ends with `.source.yaml` is the source `feed`, any other one the pipeline `daily`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from slackwater.sources.definition import source_schema
from slackwater.validation.check_project import check_project
from slackwater.validation.pipeline_schema import pipeline_schema

pytestmark = pytest.mark.unit

FILES = sorted((Path(__file__).parent / "invalid").glob("*.yaml"))
FLIGHTS = """
source: flights
timestamp: {field: time_hour}
fields:
  origin: string
  carrier: string
  dest: string
  flight: int64
  distance: double
  air_time: double
  dep_delay: double
  arr_delay: double
  time_hour: timestamp
push: {}
"""
WEATHER = """
source: weather
timestamp: {field: time_hour}
fields: {origin: string, time_hour: timestamp, wind_speed: double, precip: double}
push: {}
counts: {window: 1h}
"""

VALID_SOURCE = """
source: feed
timestamp: {field: at, timezone: Europe/Berlin, max_age_days: 3}
event_id: id
fields: {at: timestamp, id: string, amount: {type: double, decimal: ",", from: Amount}}
null_values: [NA]
enrich: {label: {template: "{id}!"}, hour: {part: hour, of: at}}
pull:
  url: https://partner.example/files
  files: "{date}.csv"
  format: {type: csv, delimiter: ";"}
  schedule: "0 6 * * *"
late: {rows: 3}
"""
VALID_PIPELINE = """
pipeline: daily
timezone: Europe/Berlin
sources: [flights, weather]
steps:
  checked:
    step: data_quality
    depends_on: [flights]
    with: {rules: [{rule: range, column: distance, min: 1}], key: [flight]}
  joined:
    step: join
    depends_on: [checked, weather]
    exchange: true
    with: {keys: [origin, {left: time_hour, right: time_hour}], how: left}
  totals:
    step: sql
    depends_on: [joined]
    with: {query: "SELECT origin, count(*) AS flights, 1 AS n FROM joined GROUP BY origin"}
publish: {step: totals, key: [date, origin], metrics: {flights: sum, n: none}}
load:
  report: {step: write_csv, depends_on: [totals], with: {path: "out/{date}.csv"}}
spark: {executor: {vcpu: 2, memory_gb: 8}}
late: {thresholds: {flights: {percent: 1}}}
"""


def is_source(path: Path) -> bool:
    return path.name.endswith(".source.yaml")


@cache
def validator(definition: str) -> jsonschema.Draft202012Validator:
    """Return the validator of a `source` or a `pipeline`."""
    return jsonschema.Draft202012Validator(source_schema() if definition == "source" else pipeline_schema())


def expected(path: Path) -> tuple[list[str], str]:
    """Return the problems of a file, and its line about the JSON Schema; empty if no schema can read it."""
    _, _, report = path.read_text(encoding="utf-8", errors="replace").partition("# problems:\n")
    lines = report.splitlines()
    return [line[4:] for line in lines if line.startswith("#   ")], "".join(lines[-1:]) if "Schema" in report else ""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in (("flights", FLIGHTS), ("weather", WEATHER)):
        (tmp_path / "sources").mkdir(exist_ok=True)
        (tmp_path / "sources" / f"{name}.yaml").write_text(text)
    (tmp_path / "pipelines").mkdir()
    return tmp_path


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_exactly_the_stated_problems_are_reported(project, path):
    file = project / ("sources/feed.yaml" if is_source(path) else "pipelines/daily.yaml")
    file.write_bytes(path.read_bytes())
    problems = check_project(project).problems
    assert [f"{problem.line}:{problem.column} {problem.description}" for problem in problems] == expected(path)[0]
    assert {problem.file for problem in problems} == {file}


JOINED = """
pipeline: daily
sources: [flights, weather]
steps:
  counted:
    step: sql
    depends_on: [flights]
    with:
      query: "SELECT origin AS airport, time_hour, max(dest) AS dest, count(*) AS origin FROM flights GROUP BY 1, 2"
  joined:
    step: join
    depends_on: [counted, weather]
    with: {{keys: [time_hour, {{left: airport, right: origin}}], {join}}}
publish: {{step: joined, key: [date, airport, time_hour], metrics: {{origin: sum, dest: sum}}}}
"""


@pytest.mark.parametrize("join", ["how: semi", "how: left", "how: left, take: [precip]"])
def test_a_metric_of_a_left_column_has_not_the_type_of_a_right_one_that_the_result_lacks(project, join):
    (project / "pipelines/daily.yaml").write_text(JOINED.format(join=join))
    (problem,) = check_project(project).problems
    assert "dest is of type string" in problem.description


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_stated_position_is_that_of_the_invalid_name(path):
    """Independently of our reader: the name that a message calls unknown is at the position."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for problem in expected(path)[0]:
        position = re.match(
            r"(\d+):(\d+) .*?\bno (?:source or step|source|step|column|pipeline|field) '(\w+)'", problem
        )
        if position:
            line, column, name = position.groups()
            found = lines[int(line) - 1][int(column) - 1 :]
            # A column is qualified by its table, and a template contains other text.
            assert re.match(rf'(\w+\.)?{name}\b|"\{{{name}\}}', found), f"{problem}: {found}"


@pytest.mark.parametrize("path", [path for path in FILES if expected(path)[1]], ids=lambda path: path.stem)
def test_the_json_schema_refuses_wrong_structures_and_nothing_else(path):
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    is_valid = validator("source" if is_source(path) else "pipeline").is_valid(content)
    assert f"# The JSON Schema {'accepts' if is_valid else 'refuses'} it." == expected(path)[1]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a definition."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


@pytest.mark.parametrize("value", [None, 7, -1.5, "Xy z", [], {}, [{"a": [None]}], {1: 2}, {"step": "sql"}], ids=repr)
@pytest.mark.parametrize("section", ["sources/feed", "pipelines/daily"])
def test_any_value_at_any_place_is_a_problem_or_valid(project, section, value):
    """What the JSON Schema refuses is a problem too, and nothing makes the checks fail."""
    schema = validator("source" if section == "sources/feed" else "pipeline")
    valid = yaml.safe_load(VALID_SOURCE if section == "sources/feed" else VALID_PIPELINE)
    for path in places(valid):
        content = parent = deepcopy(valid)
        for part in path[:-1]:
            parent = parent[part]
        parent[path[-1]] = value
        (project / f"{section}.yaml").write_text(yaml.dump(content, Dumper=yaml.CSafeDumper))
        checked = check_project(project)
        definitions = checked.sources if section == "sources/feed" else checked.pipelines
        assert checked.problems or section.partition("/")[2] in definitions, path
        is_readable = value != {1: 2}  # a key that is no string, which JSON does not have
        assert checked.problems or not is_readable or schema.is_valid(content), path
