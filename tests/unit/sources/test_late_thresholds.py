import pytest
import yaml

from slackwater.errors import DefinitionError
from slackwater.project.project import load_project
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
    for type_, content in (("sources", SOURCE | (source or {})), ("pipelines", PIPELINE | (pipeline or {}))):
        (folder / type_).mkdir()
        name = content.get("source") or content.get("pipeline")
        (folder / type_ / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return load_project(folder)


def load_error(folder, **changes):
    with pytest.raises(DefinitionError) as error:
        load(folder, **changes)
    return str(error.value)


@pytest.mark.parametrize(
    ("late", "fragments"),
    [
        (
            {"percent": 1, "rows": 0},
            ["late.rows: 0 runs a day again for any late data", "remove percent", "above 0"],
        ),
        ({"percent": 0, "bytes": 10, "rows": 5}, ["percent: 0", "bytes, rows has no effect", "remove bytes, rows"]),
        ({"rows": 0, "bytes": 0}, ["bytes: 0", "remove rows"]),
        ({}, ["late:", "set at least one of percent, bytes, rows, changed_files"]),
        ({"percent": None}, ["late:", "set at least one of percent, bytes, rows, changed_files"]),
        ({"rows": -1}, ["late.rows", "a value of at least 0"]),
        ({"percent": -0.1}, ["late.percent", "a value of at least 0"]),
        ({"percent": float("nan")}, ["late.percent", "finite number"]),
        ({"percent": float("inf")}, ["late.percent", "finite number"]),
        ({"rows": 1.5}, ["late.rows", "expected an integer"]),
        ({"bytes": "many"}, ["late.bytes", "expected an integer"]),
        ({"changed_files": 0}, ["late.changed_files", "a value of at least 1"]),
        ({"row": 10}, ["late.row: unknown key", "did you mean rows?"]),
        (None, ["late: no value", "expected a mapping"]),
    ],
)
def test_errors_in_thresholds_name_file_field_and_remedy(tmp_path, late, fragments):
    message = load_error(tmp_path, source={"late": late})
    for fragment in ["sources/feed.yaml", *fragments]:
        assert fragment in message


def test_thresholds_of_pipelines_follow_the_same_rules(tmp_path):
    message = load_error(tmp_path, pipeline={"late": {"thresholds": {"feed": {"rows": 0, "bytes": 5}}}})
    assert "late.thresholds.feed.rows: 0 runs a day again" in message


def test_thresholds_of_an_unknown_source_name_the_known_ones(tmp_path):
    message = load_error(tmp_path, pipeline={"late": {"thresholds": {"food": {"rows": 1}}}})
    assert "pipelines/totals.yaml" in message
    assert "late.thresholds.food: food is not a source of this pipeline (expected feed)" in message


@pytest.mark.parametrize(
    ("change", "fragments"),
    [
        ({"late": {"window_days": 0}}, ["late.window_days", "greater than 0"]),
        ({"late": {"window_days": -7}}, ["late.window_days", "greater than 0"]),
        ({"late": {"window_days": 367}}, ["late.window_days", "a value of at most 366"]),
        ({"late": {"window_days": "week"}}, ["late.window_days", "expected an integer"]),
        ({"late": {"days": 7}}, ["late.days: unknown key"]),
        ({"deadline_hours": 0}, ["deadline_hours", "greater than 0"]),
        ({"schedule": {"buffer_hours": -1}}, ["schedule.buffer_hours", "a value of at least 0"]),
        ({"schedule": {"buffer_hours": 721}}, ["schedule.buffer_hours", "a value of at most 720"]),
        ({"schedule": {"proces": "0 3 * * *"}}, ["schedule.proces: unknown key", "did you mean process?"]),
        ({"schedule": {"monitor": 6}}, ["schedule.monitor", "expected a string"]),
    ],
)
def test_errors_in_window_and_schedule_name_file_and_field(tmp_path, change, fragments):
    message = load_error(tmp_path, pipeline=change)
    for fragment in ["pipelines/totals.yaml", *fragments]:
        assert fragment in message


def test_silent_hours_must_be_positive(tmp_path):
    message = load_error(tmp_path, source={"silent_hours": 0})
    assert "sources/feed.yaml:5:15: silent_hours: wrong value: 0 (expected a value greater than 0)" in message


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 3 * *", "'0 3 * *' has 4 fields; five are expected: minute hour day-of-month month day-of-week"),
        ("0 0 3 * * *", "has 6 fields"),
        ("", "has 0 fields"),
        ("@daily", "has 1 fields"),
        ("60 3 * * *", "'60' is not a valid minute (examples: *, 0, 0-59, */2, 0,59)"),
        ("0 24 * * *", "'24' is not a valid hour"),
        ("0 3 0 * *", "'0' is not a valid day-of-month"),
        ("0 3 * 13 *", "'13' is not a valid month"),
        ("0 3 * * 8", "'8' is not a valid day-of-week"),
        ("0 3 * * MONDAY", "'MONDAY' is not a valid day-of-week"),
        ("0 5-3 * * *", "'5-3' is not a valid hour"),
        ("*/0 3 * * *", "'*/0' is not a valid minute"),
        ("0 3, * * *", "'3,' is not a valid hour"),
        ("0 3 ? * *", "'?' is not a valid day-of-month"),
        ("x 3 * * *", "'x' is not a valid minute"),
        ("0 -1 * * *", "'-1' is not a valid hour"),
    ],
)
def test_errors_in_cron_expressions_name_file_field_and_examples(tmp_path, cron, expected):
    message = load_error(tmp_path, pipeline={"schedule": {"process": cron}})
    assert "pipelines/totals.yaml:7:12: schedule.process: " in message
    assert expected in message


def test_the_schedule_of_a_pull_follows_the_same_rules(tmp_path):
    message = load_error(tmp_path, source={"pull": PULL | {"schedule": "15 * * *"}})
    assert "sources/feed.yaml:6:13: pull.schedule: " in message


@pytest.mark.parametrize(
    "cron",
    [
        "0 3 * * *", "*/15 * * * *", "5/15 0-23/2 1,15 jan-MAR mon-fri", "0,30 3 * * 7", "59 23 31 12 SAT",
        "0 3 1-7,15-21 */2 *",
    ],
)  # fmt: skip
def test_usual_cron_expressions_are_accepted(tmp_path, cron):
    project = load(tmp_path, pipeline={"schedule": {"process": cron}})
    assert project.pipelines["totals"].schedule.process == cron


@pytest.mark.parametrize(
    ("own", "of_source", "expected"),
    [
        ({}, None, {"rows": 0}),
        ({}, {"percent": 5}, {"percent": 5}),
        ({"feed": {"bytes": 100, "rows": 2}}, {"percent": 5}, {"bytes": 100, "rows": 2}),
    ],
)
def test_thresholds_of_the_pipeline_precede_those_of_the_source_and_the_default(tmp_path, own, of_source, expected):
    source = {"late": of_source} if of_source else {}
    project = load(tmp_path, source=source, pipeline={"late": {"thresholds": own}})
    result = project.pipelines["totals"].thresholds(project.sources["feed"])
    assert result == LateThresholds(**expected)


def test_late_data_options_have_defaults(tmp_path):
    project = load(tmp_path, source={"pull": PULL})
    source, pipeline = project.sources["feed"], project.pipelines["totals"]
    assert (source.silent_hours, source.pull.schedule) == (48, "15 * * * *")
    assert (pipeline.late.window_days, pipeline.deadline_hours, pipeline.schedule.buffer_hours) == (7, 12, 2)


def test_operational_options_do_not_change_the_definition_digest(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = load(tmp_path / "one")
    changes = {"late": {"window_days": 3}, "deadline_hours": 1, "schedule": {"process": "0 4 * * *"}, "versions": "all"}
    two = load(tmp_path / "two", source={"late": {"rows": 9}, "silent_hours": 1}, pipeline=changes)
    assert one.definition_digest("totals") == two.definition_digest("totals")
