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
        (folder / type_ / f"{name}.yaml").write_text(content if isinstance(content, str) else yaml.safe_dump(content))
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
        (SOURCE | {"timestamp": {"field": "when"}}, ["feed.yaml:7:10: timestamp.field: 'when' must be listed"]),
        (SOURCE | {"fields": {"at": "datetime"}}, ["feed.yaml:2:7: fields.at: wrong value: 'datetime'", "'timestamp'"]),
        ({k: v for k, v in SOURCE.items() if k != "push"}, ["feed.yaml", "`push` or `pull`"]),
        (SOURCE | {"source": "other"}, ["feed.yaml", "'other'", "name the file other.yaml"]),
        (SOURCE | {"source": "Feed"}, ["feed.yaml:5:9: source: ", "lower-case letters"]),
        (SOURCE | {"timestamp": {"field": "at", "timezone": "Mars/Base"}}, ["no such timezone: 'Mars/Base'"]),
        (SOURCE | {"pull": {"url": "ftp://x", "files": "a"}}, ["pull.url", "pull.files"]),
        ("- a\n- b\n", ["feed.yaml", "a mapping of keys is expected"]),
        ("a: [1\n", ["feed.yaml", "not readable as YAML"]),
        ("", ["feed.yaml:1:1: a mapping of keys is expected at the top, not nothing"]),
    ],
)
def test_errors_in_sources_name_file_and_field(tmp_path, source, fragments):
    if source == "":
        write(tmp_path)
        (tmp_path / "sources" / "feed.yaml").write_text("")
    else:
        write(tmp_path, source=source)
    with pytest.raises(DefinitionError) as error:
        load_project(tmp_path)
    for fragment in fragments:
        assert fragment in str(error.value)


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        ({"sources": ["feeds"]}, ["totals.yaml", "no source 'feeds'", "feed"]),
        ({"timezone": "New York"}, ["no such timezone: 'New York'"]),
        ({"publish": {"step": "sum", "key": ["date"]}}, ["publish.step: no step 'sum' in this pipeline"]),
        ({"publish": {"step": "sums", "key": ["value"]}}, ["publish.key: it must contain `date`"]),
        (
            {"steps": {"sums": {"step": "sql", "depends_on": ["food"]}}},
            ["steps.sums.depends_on: no source or step 'food' (expected feed)"],
        ),
        ({"steps": {"feed": {"step": "sql", "depends_on": ["feed"]}}}, ["steps.feed: a source has this name"]),
        (
            {
                "steps": {
                    "sums": {"step": "sql", "depends_on": ["more"]},
                    "more": {"step": "sql", "depends_on": ["sums"]},
                }
            },
            ["cycle", "sums", "more"],
        ),
        (
            {
                "steps": {
                    "sums": {"step": "sql", "depends_on": ["feed"]},
                    "loose": {"step": "sql", "depends_on": ["feed"]},
                }
            },
            ["steps.loose: no step reads it"],
        ),
    ],
)
def test_errors_in_pipelines_name_the_field(tmp_path, change, fragments):
    write(tmp_path, pipeline=PIPELINE | change)
    with pytest.raises(DefinitionError) as error:
        load_project(tmp_path)
    for fragment in fragments:
        assert fragment in str(error.value)


def test_a_missing_or_empty_folder_is_an_error(tmp_path):
    with pytest.raises(DefinitionError, match="no project folder"):
        load_project(tmp_path / "nowhere")
    with pytest.raises(DefinitionError, match="no source is defined"):
        load_project(tmp_path)


def test_an_unknown_name_is_an_error_that_lists_the_known_ones(tmp_path):
    project = load_project(write(tmp_path))
    with pytest.raises(UnknownName, match=r"no source 'food'.*feed"):
        project.source("food")


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
    assert digest(job="2") != same
    assert digest(sql="2") != same
    assert digest(join="2") == same, "the pipeline does not use this step"
