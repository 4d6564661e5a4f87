import pytest
import yaml

from slackwater.errors import DefinitionError
from slackwater.project import load_project
from slackwater.sources.late_thresholds import LateThresholds

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
PULL = {"url": "http://partner", "files": "{date}.csv"}


def load(folder, *, source=None, pipeline=None):
    for kind, content in (("sources", SOURCE | (source or {})), ("pipelines", PIPELINE | (pipeline or {}))):
        (folder / kind).mkdir()
        name = content.get("source") or content.get("pipeline")
        (folder / kind / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return load_project(folder)


def refused(folder, **changes):
    with pytest.raises(DefinitionError) as error:
        load(folder, **changes)
    return str(error.value)


@pytest.mark.parametrize(
    ("late", "words"),
    [
        (
            {"percent": 1, "rows": 0},
            ["late:", "rows: 0 runs a day again for any late data", "remove percent", "above 0"],
        ),
        ({"percent": 0, "bytes": 10, "rows": 5}, ["percent: 0", "bytes, rows can never decide", "remove bytes, rows"]),
        ({"rows": 0, "bytes": 0}, ["bytes: 0", "remove rows"]),
        ({}, ["late:", "name at least one of percent, bytes, rows"]),
        ({"percent": None}, ["late:", "name at least one of percent, bytes, rows"]),
        ({"rows": -1}, ["late.rows", "greater than or equal to 0"]),
        ({"percent": -0.1}, ["late.percent", "greater than or equal to 0"]),
        ({"percent": float("nan")}, ["late.percent", "finite number"]),
        ({"percent": float("inf")}, ["late.percent", "finite number"]),
        ({"rows": 1.5}, ["late.rows", "valid integer"]),
        ({"bytes": "many"}, ["late.bytes", "valid integer"]),
        ({"row": 10}, ["late.row", "Extra inputs"]),
        (None, ["late", "valid dictionary"]),
    ],
)
def test_thresholds_that_cannot_be_meant_are_told_by_file_field_and_remedy(tmp_path, late, words):
    told = refused(tmp_path, source={"late": late})
    for word in ["sources/feed.yaml", *words]:
        assert word in told


def test_the_pipelines_own_thresholds_are_held_to_the_same_rules(tmp_path):
    told = refused(tmp_path, pipeline={"late": {"thresholds": {"feed": {"rows": 0, "bytes": 5}}}})
    assert "pipelines/totals.yaml: late.thresholds.feed: Value error, rows: 0 runs a day again" in told


def test_thresholds_of_a_source_that_the_pipeline_lacks_are_told_with_those_it_has(tmp_path):
    told = refused(tmp_path, pipeline={"late": {"thresholds": {"food": {"rows": 1}}}})
    assert "pipelines/totals.yaml" in told
    assert "late.thresholds names what is no source of this pipeline: food (its sources: feed)" in told


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"late": {"window_days": 0}}, ["late.window_days", "greater than 0"]),
        ({"late": {"window_days": -7}}, ["late.window_days", "greater than 0"]),
        ({"late": {"window_days": 367}}, ["late.window_days", "less than or equal to 366"]),
        ({"late": {"window_days": "week"}}, ["late.window_days", "valid integer"]),
        ({"late": {"days": 7}}, ["late.days", "Extra inputs"]),
        ({"deadline_hours": 0}, ["deadline_hours", "greater than 0"]),
        ({"schedule": {"buffer_hours": -1}}, ["schedule.buffer_hours", "greater than or equal to 0"]),
        ({"schedule": {"buffer_hours": 721}}, ["schedule.buffer_hours", "less than or equal to 720"]),
        ({"schedule": {"proces": "0 3 * * *"}}, ["schedule.proces", "Extra inputs"]),
        ({"schedule": {"monitor": 6}}, ["schedule.monitor", "valid string"]),
    ],
)
def test_a_window_or_schedule_that_cannot_be_meant_is_told_by_file_and_field(tmp_path, change, words):
    told = refused(tmp_path, pipeline=change)
    for word in ["pipelines/totals.yaml", *words]:
        assert word in told


def test_a_partner_that_may_be_silent_for_no_time_is_told(tmp_path):
    told = refused(tmp_path, source={"silent_hours": 0})
    assert "sources/feed.yaml: silent_hours: Input should be greater than 0" in told


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 3 * *", "'0 3 * *' has 4 fields; five are expected: minute hour day-of-month month day-of-week"),
        ("0 0 3 * * *", "has 6 fields"),
        ("", "has 0 fields"),
        ("@daily", "has 1 fields"),
        ("60 3 * * *", "'60' is no minute of a cron expression (such as *, 0, 0-59, */2, 0,59)"),
        ("0 24 * * *", "'24' is no hour"),
        ("0 3 0 * *", "'0' is no day-of-month"),
        ("0 3 * 13 *", "'13' is no month"),
        ("0 3 * * 8", "'8' is no day-of-week"),
        ("0 3 * * MONDAY", "'MONDAY' is no day-of-week"),
        ("0 5-3 * * *", "'5-3' is no hour"),
        ("*/0 3 * * *", "'*/0' is no minute"),
        ("0 3, * * *", "'3,' is no hour"),
        ("0 3 ? * *", "'?' is no day-of-month"),
        ("x 3 * * *", "'x' is no minute"),
        ("0 -1 * * *", "'-1' is no hour"),
    ],
)
def test_a_bad_cron_expression_is_told_by_file_field_and_what_is_expected(tmp_path, cron, words):
    told = refused(tmp_path, pipeline={"schedule": {"process": cron}})
    assert "pipelines/totals.yaml: schedule.process: " in told
    assert words in told


def test_the_cron_expression_of_a_pull_is_held_to_the_same_rules(tmp_path):
    told = refused(tmp_path, source={"pull": PULL | {"schedule": "15 * * *"}})
    assert "sources/feed.yaml: pull.schedule: " in told


@pytest.mark.parametrize(
    "cron",
    [
        "0 3 * * *",
        "*/15 * * * *",
        "5/15 0-23/2 1,15 jan-MAR mon-fri",
        "0,30 3 * * 7",
        "59 23 31 12 SAT",
        "0 3 1-7,15-21 */2 *",
    ],
)
def test_cron_expressions_as_people_write_them_are_taken(tmp_path, cron):
    project = load(tmp_path, pipeline={"schedule": {"process": cron}})
    assert project.pipelines["totals"].schedule.process == cron


@pytest.mark.parametrize(
    ("own", "of_source", "holds"),
    [
        ({}, None, {"rows": 0}),
        ({}, {"percent": 5}, {"percent": 5}),
        ({"feed": {"bytes": 100, "rows": 2}}, {"percent": 5}, {"bytes": 100, "rows": 2}),
    ],
)
def test_the_pipelines_thresholds_hold_before_the_sources_and_any_late_data_without_either(
    tmp_path, own, of_source, holds
):
    source = {"late": of_source} if of_source else {}
    project = load(tmp_path, source=source, pipeline={"late": {"thresholds": own}})
    found = project.pipelines["totals"].thresholds(project.sources["feed"])
    assert found == LateThresholds(**holds)


def test_what_is_not_said_has_its_default(tmp_path):
    project = load(tmp_path, source={"pull": PULL})
    source, pipeline = project.sources["feed"], project.pipelines["totals"]
    assert (source.silent_hours, source.pull.schedule) == (48, "15 * * * *")
    assert (pipeline.late.window_days, pipeline.deadline_hours, pipeline.schedule.buffer_hours) == (7, 12, 2)


def test_how_a_day_is_looked_after_is_no_part_of_what_it_is_made_of(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = load(tmp_path / "one")
    changes = {"late": {"window_days": 3}, "deadline_hours": 1, "schedule": {"process": "0 4 * * *"}}
    two = load(tmp_path / "two", source={"late": {"rows": 9}, "silent_hours": 1}, pipeline=changes)
    assert one.definition_digest("totals") == two.definition_digest("totals")
