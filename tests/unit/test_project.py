from pathlib import Path

import pytest
import yaml

from slackwater.errors import DefinitionError, UnknownName
from slackwater.project.project import CodeDigests, Project, load_project

pytestmark = pytest.mark.unit

SOURCE = {
    "source": "feed",
    "timestamp": {"field": "at"},
    "fields": {"at": "timestamp", "value": "double"},
    "push": {},
}
PIPELINE = {
    "pipeline": "totals",
    "sources": ["feed"],
    "steps": {"sums": {"step": "sql", "depends_on": ["feed"], "with": {"query": "SELECT sum(value) AS v FROM feed"}}},
    "publish": {"step": "sums", "key": ["date"]},
}


def write(folder, *, source=None, pipeline=None):
    for type_, name, content in (("sources", "feed", source or SOURCE), ("pipelines", "totals", pipeline or PIPELINE)):
        (folder / type_).mkdir(exist_ok=True)
        (folder / type_ / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return folder


def test_the_example_is_valid_and_survives_json():
    project = load_project(Path("examples/nyc_flights"), code=CodeDigests(job="abc", steps={"sql": "1"}))
    assert set(project.sources) == {"flights", "weather"}
    assert set(project.pipelines) == {"daily_delays", "weekly_delays"}
    assert Project.model_validate_json(project.model_dump_json(by_alias=True)) == project


@pytest.mark.parametrize(
    ("source", "fragments"),
    [
        (SOURCE | {"timstamp": {}}, ["feed.yaml:8:1: timstamp: unknown key"]),
        (SOURCE | {"fields": {"at": "datetime"}}, ["feed.yaml:2:7: fields.at: wrong value: 'datetime'", "'timestamp'"]),
        (SOURCE | {"pull": {"url": "ftp://x", "files": "a"}}, ["pull.url", "pull.files"]),
    ],
)
def test_errors_in_sources_name_file_and_field(tmp_path, source, fragments):
    write(tmp_path, source=source)
    with pytest.raises(DefinitionError) as error:
        load_project(tmp_path)
    for fragment in fragments:
        assert fragment in str(error.value)


def test_an_unknown_name_is_an_error_that_lists_the_known_ones(tmp_path):
    project = load_project(write(tmp_path))
    with pytest.raises(UnknownName, match=r"no source 'food'.*feed"):
        project.source("food")


def test_days_that_are_waited_for_are_read_as_those_that_may_be_missing():
    project = load_project(Path("examples/nyc_flights"))

    def digest(missing):
        weekly = project.pipelines["weekly_delays"]
        table = weekly.tables["days"].model_copy(update={"missing": missing})
        changed = weekly.model_copy(update={"tables": {"days": table}})
        return project.model_copy(update={"pipelines": {"weekly_delays": changed}}).definition_digest("weekly_delays")

    assert digest("wait") == digest("empty")
    assert digest("wait") != digest("error")


def test_the_definition_digest_follows_graph_shapes_and_code_and_nothing_else(tmp_path):
    def digest(job="1", sql="1", join="1", **changes):
        code = CodeDigests(job=job, steps={"sql": sql, "join": join})
        return load_project(write(tmp_path, **changes), code=code).definition_digest("totals")

    same = digest()
    assert digest(source=SOURCE | {"description": "words", "pull": {"url": "http://x", "files": "{date}"}}) == same
    assert digest(source=SOURCE | {"fields": {"at": "timestamp", "value": "int64"}}) != same
    assert digest(pipeline=PIPELINE | {"publish": {**PIPELINE["publish"], "metrics": {"v": "max"}}}) == same
    assert digest(pipeline=PIPELINE | {"publish": {**PIPELINE["publish"], "hour": "v"}}) == same
    assert digest(pipeline=PIPELINE | {"publish": {**PIPELINE["publish"], "key": ["date", "v"]}}) != same
    assert digest(pipeline=PIPELINE | {"timezone": "Europe/Rome"}) != same
    waits = {"when": {"inputs": {"feed": "complete"}}}
    assert digest(source=SOURCE | {"counts": {"window": "1h"}}, pipeline=PIPELINE | waits) == same
    assert digest(job="2") != same
    assert digest(sql="2") != same
    assert digest(join="2") == same, "the pipeline does not use this step"
