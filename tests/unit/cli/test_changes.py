"""Definitions whose files differ from what is deployed: the one line of `run`, `monitor`, `runs` and `diff`."""

from __future__ import annotations

import shlex
from datetime import timedelta

import pytest

from slackwater.cli.changes import changes_line, commands, plan_lines
from slackwater.cli.main import run
from slackwater.client.plan import NOTED_DAYS, make_plan
from slackwater.errors import AccessDenied
from slackwater.project.project import CodeDigests, Project
from slackwater.runs.holds import inputs_of
from slackwater.runs.record import DayRecord, Hold, PublishedRun, Resolution, ResolutionAction, RunRecord, RunState
from slackwater.runs.run_identity import new_run_id
from tests.example_project import EXAMPLE, PROJECT, example_project
from tests.fakes_cli import BEGIN, a_client, use_client
from tests.fakes_runs import DictRunTable
from tests.unit.client.test_runs import PUBLICATION, RUN

pytestmark = pytest.mark.unit

DAILY, WEEKLY = "daily_delays", "weekly_delays"
CODE = CodeDigests(job="1")
FILES = example_project()
LINE = (
    "the files differ from what is deployed: pipelines/daily_delays.yaml changed; stale then: 2 published days "
    "(2013-03-08 to 2013-03-10) of daily_delays. To apply: slackwater deploy --project {project}; slackwater run "
    "daily_delays --from 2013-03-08 --to 2013-03-10 --stale --project {project}\n"
)


def edited(project: Project, name: str, **changes: object) -> Project:
    """The project with another definition of a pipeline."""
    pipeline = project.pipelines[name].model_copy(update=changes)
    return project.model_copy(update={"pipelines": {**project.pipelines, name: pipeline}})


def without(project: Project, pipeline: str) -> Project:
    pipelines = {name: item for name, item in project.pipelines.items() if name != pipeline}
    return project.model_copy(update={"pipelines": pipelines})


def published(project: Project, *days: tuple[str, str]) -> DictRunTable:
    """A run table in which the project has published these days of pipelines."""
    table = DictRunTable()
    for pipeline, date in days:
        run = RUN.model_copy(update={"pipeline": pipeline, "date": date})
        run_id = new_run_id(project, pipeline, date, inputs=inputs_of(run))
        of_day = PublishedRun(run=run.model_copy(update={"run_id": run_id}), publication=PUBLICATION, at=BEGIN)
        table.by_day[pipeline, date] = DayRecord(pipeline=pipeline, date=date, published=of_day)
    return table


DEPLOYED = edited(FILES, DAILY, timezone="UTC").model_copy(update={"code": CODE})
"""Its pipeline had another timezone before the file was edited."""
DAYS = [(DAILY, "2013-03-08"), (DAILY, "2013-03-10"), (WEEKLY, "2013-03-10")]


@pytest.fixture
def project_differs(monkeypatch):
    table = published(DEPLOYED, *DAYS)
    # This day was run since with the definition of the file, before the deployment went back.
    table.by_day |= published(FILES.model_copy(update={"code": CODE}), (DAILY, "2013-03-11")).by_day
    use_client(monkeypatch, a_client(FILES, run_table=table, deployed=DEPLOYED, table_columns=lambda _: ()))


def test_a_command_says_which_definitions_differ_which_days_become_stale_and_how_to_apply_it(
    project_differs, printed_by
):
    shown = printed_by("runs", DAILY, *PROJECT)
    assert shown.err == LINE.format(project=EXAMPLE)
    assert "differ" not in shown.out


def test_the_days_of_other_pipelines_are_not_read(project_differs, printed_by):
    assert "stale then" not in printed_by("runs", WEEKLY, *PROJECT).err


def test_a_command_reads_the_latest_days_only_and_a_plan_all(monkeypatch, printed_by):
    days = [(BEGIN + timedelta(days=number)).date().isoformat() for number in range(NOTED_DAYS + 50)]
    table = published(DEPLOYED, *((DAILY, day) for day in days))
    use_client(monkeypatch, a_client(FILES, run_table=table, deployed=DEPLOYED, table_columns=lambda _: ()))
    line = printed_by("runs", DAILY, *PROJECT).err
    assert f"stale then: at least 100 published days ({days[50]} to {days[-1]}) of {DAILY}" in line
    assert make_plan(FILES, DEPLOYED, table).stale == {DAILY: tuple(days)}


def test_the_note_is_no_part_of_the_document(project_differs, document_of):
    assert document_of("runs", DAILY, *PROJECT) == {"runs": []}


def test_without_a_difference_nothing_is_said(monkeypatch, printed_by):
    use_client(monkeypatch, a_client(FILES, run_table=DictRunTable(), deployed=FILES.model_copy(update={"code": CODE})))
    assert printed_by("runs", DAILY, *PROJECT).err == ""


def test_a_project_that_cannot_be_read_is_named_and_the_command_goes_on(monkeypatch, printed_by):
    def refuse(_):
        raise AccessDenied("could not read s3://assets/project.json: AccessDenied")

    client = a_client(FILES, run_table=DictRunTable())
    monkeypatch.setattr(client, "plan", refuse)
    use_client(monkeypatch, client)
    shown = printed_by("runs", DAILY, *PROJECT)
    assert shown.err.startswith("whether the project's files are deployed is unknown: could not read s3://assets")
    assert shown.out.startswith("no runs yet")


def test_the_commands_of_the_line_can_be_run():
    line = changes_line(make_plan(FILES, DEPLOYED, published(DEPLOYED, *DAYS)), None)
    deploy, again = line.partition("To apply: ")[2].split("; ")
    assert deploy == "slackwater deploy"
    assert run([*shlex.split(again)[1:], "--help"]) == 0


@pytest.mark.parametrize(
    ("change", "stale"),
    [({"description": "another"}, False), ({"deadline_hours": 48}, False), ({"timezone": "UTC"}, True)],
)
def test_only_a_change_of_the_output_makes_days_stale(change, stale):
    plan = make_plan(edited(FILES, DAILY, **change), FILES, published(FILES, *DAYS))
    assert ([item.file for item in plan.changes], bool(plan.stale)) == (["pipelines/daily_delays.yaml"], stale)


def test_a_changed_source_makes_the_days_of_its_pipelines_stale():
    weather = FILES.sources["weather"]
    fields = {name: field for name, field in weather.fields.items() if name != "wind_gust"}
    weather = weather.model_copy(update={"fields": fields})
    plan = make_plan(
        FILES.model_copy(update={"sources": {**FILES.sources, "weather": weather}}), FILES, published(FILES, *DAYS)
    )
    assert plan_lines(plan) == [
        "  changed  sources/weather.yaml",
        "  stale    2 published days (2013-03-08 to 2013-03-10) of daily_delays",
    ]


def test_a_plan_names_what_stays_of_a_removed_definition():
    table = published(FILES, *DAYS)
    key = (DAILY, "2013-03-10")
    hold = Hold(rule="shrunk", reason="flights has lost 1 row", inputs="i", since=BEGIN)
    table.by_day[key] = table.by_day[key].model_copy(update={"hold": hold})
    sources = {name: source for name, source in FILES.sources.items() if name != "weather"}
    files = without(FILES, DAILY).model_copy(update={"sources": sources})
    assert plan_lines(make_plan(files, FILES, table)) == [
        "  removed  pipelines/daily_delays.yaml: its table with 2 days and 1 day on hold and its history stay, and no "
        "command reaches them",
        "  removed  sources/weather.yaml: its events stay, and no command reaches them",
    ]


def test_a_plan_names_what_is_added_also_under_another_name():
    added = make_plan(FILES, without(FILES, DAILY), DictRunTable())
    assert plan_lines(added) == ["  added    pipelines/daily_delays.yaml"]
    other = FILES.pipelines[DAILY].model_copy(update={"pipeline": "daily"})
    files = without(FILES, DAILY)
    renamed = make_plan(
        files.model_copy(update={"pipelines": {**files.pipelines, "daily": other}}), FILES, DictRunTable()
    )
    assert plan_lines(renamed)[:1] == [
        "  added    pipelines/daily.yaml: daily_delays under another name, without its days (`renamed_from` keeps them)"
    ]


COLUMNS = (
    *("date", "origin", "carrier", "flights", "cancelled", "dep_delay_mean", "dep_delay_p90", "on_time_share"),
    *("wind_speed_mean", "precip_mean"),
)
LACK = (
    "pipelines/daily_delays.yaml: the published table has the columns Gates, seats, which its rows lack: every day "
    "would fail (docs/pipelines.md#a-column-that-is-renamed-or-removed)"
)


def refuse(_):
    raise AccessDenied("could not read the columns of the table")


@pytest.mark.parametrize(
    ("columns", "lacking"),
    [
        (lambda _: (*COLUMNS, "Gates", "seats"), ("Gates", "seats")),
        (lambda _: tuple(map(str.upper, COLUMNS)), ()),
        (lambda _: COLUMNS[:3], ()),
        (refuse, ()),
    ],
)
def test_columns_of_the_table_that_the_rows_of_a_changed_pipeline_lack_are_found(columns, lacking):
    plan = make_plan(FILES, DEPLOYED, published(DEPLOYED, *DAYS), table_columns=columns)
    assert plan.lacking == ({DAILY: lacking} if lacking else {})
    assert (f"  fails    {LACK}" in plan_lines(plan)) is bool(lacking)


def test_a_command_names_lacking_columns_in_its_line(monkeypatch, printed_by):
    columns = (*COLUMNS, "Gates", "seats")
    table = published(DEPLOYED, *DAYS)
    client = a_client(FILES, run_table=table, deployed=DEPLOYED, table_columns=lambda _: columns)
    use_client(monkeypatch, client)
    assert printed_by("runs", DAILY, *PROJECT).err.endswith(f"of daily_delays; {LACK}\n")


def test_columns_are_compared_only_if_those_of_the_rows_are_certain():
    step = FILES.pipelines[DAILY].steps["delays_by_carrier"]
    query = "SELECT * EXCEPT (month) FROM flights"
    sql = step.model_copy(update={"step": "sql", "depends_on": ("flights",), "parameters": {"query": query}})
    files = edited(FILES, DAILY, steps={**FILES.pipelines[DAILY].steps, "delays_by_carrier": sql})
    assert make_plan(files, FILES, published(FILES, *DAYS), table_columns=lambda _: (*COLUMNS, "x")).lacking == {}


def test_a_plan_lists_days_of_an_earlier_definition_also_if_nothing_changes():
    table = published(DEPLOYED, *DAYS)
    for day in table.by_day.values():
        record = RunRecord(
            run=day.published.run,
            state=RunState.PUBLISHED,
            execution="e",
            started_at=BEGIN,
            definition=DEPLOYED.written_digest(day.pipeline),
        )
        table.records[day.pipeline, day.date, day.published.run.attempt] = record
    files = FILES.model_copy(update={"code": CODE})
    plan = make_plan(files, files, table)
    assert plan_lines(plan) == [
        "the definitions are those that are deployed",
        "  stale    2 published days (2013-03-08 to 2013-03-10) of daily_delays, from an earlier definition",
    ]
    assert commands(plan, None) == ["slackwater run daily_delays --from 2013-03-08 --to 2013-03-10 --stale"]
    assert make_plan(files, files, table, pipelines=[DAILY]).older == {}
    newer_code = files.model_copy(update={"code": CodeDigests(job="2")})
    assert DAILY not in make_plan(newer_code, newer_code, published(files, *DAYS)).older


def test_days_that_a_person_has_kept_are_not_suggested():
    days = ["2013-03-07", "2013-03-08", "2013-03-09", "2013-03-10"]
    table = published(DEPLOYED, *((DAILY, day) for day in days))
    kept = table.by_day[DAILY, days[2]]
    made = Resolution(
        action=ResolutionAction.KEPT, reason="r", principal="p", at=BEGIN, attempt=kept.published.run.attempt
    )
    table.by_day[DAILY, days[2]] = kept.model_copy(update={"resolution": made})
    plan = make_plan(FILES, DEPLOYED, table)
    assert plan_lines(plan)[1:] == [
        "  stale    3 published days (2013-03-07 to 2013-03-10) of daily_delays",
        "  kept     1 published day (2013-03-09) of daily_delays, which a person has kept",
    ]
    assert commands(plan, None)[1:] == [
        "slackwater run daily_delays --from 2013-03-07 --to 2013-03-08 --stale",
        "slackwater run daily_delays --date 2013-03-10",
    ]
