"""A renamed pipeline keeps its stored name: nothing that is stored or computed changes, and people see the new name."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from slackwater.cli.changes import plan_document, plan_lines
from slackwater.cli.main import run
from slackwater.client.plan import make_plan
from slackwater.deploy.definitions import changes_resources
from slackwater.errors import DefinitionError, RunFailed, UnknownName
from slackwater.project.project import Project, load_definitions, load_project
from slackwater.runs.record import Hold
from slackwater.validation.check_project import check_project
from tests.example_project import EXAMPLE
from tests.fakes_cli import BEGIN, FakeStates, a_client, use_client
from tests.fakes_runs import DictRunTable
from tests.unit.cli.test_changes import published

pytestmark = pytest.mark.unit

OLD, NEW, READER, DATE = "daily_delays", "delays", "weekly_delays", "2013-03-10"


@pytest.fixture
def folder(tmp_path):
    """The example's project, with all of its files."""
    for name in ("sources", "pipelines"):
        shutil.copytree(EXAMPLE / name, tmp_path / name)
    return tmp_path


def rename(folder, old, new, *, first=""):
    """Give a pipeline's file another name, and adapt what reads its table; `first` is its `renamed_from`."""
    file = folder / "pipelines" / f"{old}.yaml"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("renamed_from")]
    text = "\n".join(lines).replace(f"pipeline: {old}", f"pipeline: {new}") + "\n"
    file.unlink()
    (folder / "pipelines" / f"{new}.yaml").write_text(text + (f"renamed_from: {first}\n" if first else ""))
    reader = folder / "pipelines" / f"{READER}.yaml"
    reader.write_text(reader.read_text().replace(f"table: {old}", f"table: {new}"))
    return folder


def problems(folder):
    return [f"{item.file.name}: {item.description}" for item in check_project(folder).problems]


def test_a_renamed_pipeline_and_what_reads_it_are_stored_and_computed_as_before(folder):
    before = load_project(folder)
    after = load_project(rename(folder, OLD, NEW, first=OLD))
    assert (after.pipelines, after.names) == (before.pipelines, {OLD: NEW})
    assert [after.definition_digest(name) for name in (OLD, READER)] == [
        before.definition_digest(name) for name in (OLD, READER)
    ]
    assert after.pipeline(NEW) == after.pipeline(OLD) == before.pipeline(OLD)
    assert after.selected(f"{NEW}+") == (OLD, READER)
    with pytest.raises(UnknownName, match=r"^--select: 'delas\+' names no pipeline .* \(did you mean delays\?\)$"):
        after.selected("delas+")
    assert Project.model_validate_json(after.model_dump_json(by_alias=True)) == after
    with pytest.raises(UnknownName, match=r"no pipeline 'delay' in this project \(pipelines: delays, weekly_delays\)"):
        after.pipeline("delay")
    assert not changes_resources(after, before)


def test_a_new_field_leaves_the_identities_of_runs_as_they_are():
    # Of a deployed day: it would otherwise run again after an update of the library.
    project = Project.model_validate_json(load_project(EXAMPLE).model_dump_json(by_alias=True, exclude={"names"}))
    assert "renamed_from" not in project._written(OLD)
    assert project == load_project(EXAMPLE)


def test_a_plan_names_the_rename_and_nothing_becomes_stale(folder):
    before = load_definitions(folder)
    table = published(before, (OLD, DATE), (READER, DATE))
    after = load_definitions(rename(folder, OLD, NEW, first=OLD))
    plan = make_plan(after, before, table)
    assert plan_lines(plan) == [f"  renamed  {OLD} -> {NEW}: keeps its table, history and holds"]
    assert plan_document(plan) == {
        "changes": [
            {
                "change": "renamed", "folder": "pipelines", "name": NEW, "same_as": "", "renamed_from": OLD,
                "file": f"pipelines/{NEW}.yaml",
            }
        ],
        "stale": {},
        "kept": {},
        "lost": {},
        "lacking": {},
        "refused": (),
    }  # fmt: skip
    third = load_definitions(rename(folder, NEW, "third", first=OLD))
    assert plan_lines(make_plan(third, after, table)) == [
        f"  renamed  {NEW} -> third: keeps its table, history and holds"
    ]
    back = load_definitions(rename(folder, "third", OLD))
    assert plan_lines(make_plan(back, third, table)) == [
        f"  renamed  third -> {OLD}: keeps its table, history and holds"
    ]


def test_a_renamed_pipeline_that_changes_as_well_has_stale_days_by_its_new_name(folder):
    before = load_definitions(folder)
    table = published(before, (OLD, DATE))
    file = rename(folder, OLD, NEW, first=OLD) / "pipelines" / f"{NEW}.yaml"
    file.write_text(file.read_text().replace("timezone: America/New_York", "timezone: UTC"))
    for pipelines in (None, [NEW], [OLD]):
        assert plan_lines(make_plan(load_definitions(folder), before, table, pipelines=pipelines)) == [
            f"  renamed  {OLD} -> {NEW}: keeps its table, history and holds",
            f"  changed  pipelines/{NEW}.yaml",
            f"  stale    1 published day ({DATE}) of {NEW}",
        ]


@pytest.mark.parametrize(
    ("names", "first", "problem"),
    [
        # The line was removed: the pipeline would begin with an empty table.
        ([NEW], "", f"pipelines/{NEW}.yaml: its table and history have the name {OLD}"),
        ([NEW], "another", f"pipelines/{NEW}.yaml: its table and history have the name {OLD}"),
        ([NEW, "third"], NEW, f"pipelines/third.yaml: {NEW} was renamed before, from {OLD}"),
    ],
)
def test_a_wrong_stored_name_of_a_deployed_pipeline_is_refused(folder, names, first, problem):
    deployed = load_definitions(rename(folder, OLD, NEW, first=OLD))
    rename(folder, NEW, names[-1], first=first)
    with pytest.raises(DefinitionError) as error:
        make_plan(load_definitions(folder), deployed, DictRunTable())
    assert str(error.value) == (
        f"{problem}: write `renamed_from: {OLD}`. To leave them, deploy without this pipeline first, then with it"
    )


def test_a_stored_name_that_is_not_deployed_is_a_note(folder):
    deployed = load_definitions(folder)
    files = load_definitions(rename(folder, OLD, NEW, first="daly_delays"))
    table = published(deployed, (OLD, DATE))
    assert plan_lines(make_plan(files, deployed, table))[:2] == [
        f"  removed  pipelines/{OLD}.yaml: its table with 1 day and its history stay, and no command reaches them",
        f"  added    pipelines/{NEW}.yaml: renamed_from: no pipeline daly_delays is deployed (did you mean {OLD}?). "
        "Its table gets this name",
    ]


def test_a_line_that_is_added_later_names_what_the_new_name_has_published(folder):
    deployed = load_definitions(rename(folder, OLD, NEW))
    files = load_definitions(rename(folder, NEW, NEW, first=OLD))
    plan = make_plan(files, deployed, published(deployed, (NEW, DATE)))
    assert [change.change for change in plan.removed] == ["removed"]  # `slackwater deploy` asks
    assert (plan.removed[0].name, plan.lost[NEW].published) == (NEW, 1)


def test_a_former_name_belongs_to_one_pipeline(folder):
    path = folder / "pipelines"
    shutil.copy(rename(folder, OLD, NEW, first=OLD) / "pipelines" / f"{NEW}.yaml", path / "other.yaml")
    (path / "other.yaml").write_text((path / "other.yaml").read_text().replace(f"pipeline: {NEW}", "pipeline: other"))
    assert problems(folder) == [
        f"other.yaml: renamed_from: {NEW} was renamed from it as well: remove it from one of them"
    ]
    (path / "other.yaml").unlink()
    shutil.copy(EXAMPLE / "pipelines" / f"{OLD}.yaml", path / f"{OLD}.yaml")
    assert problems(folder) == [
        f"{NEW}.yaml: renamed_from: the pipeline {OLD} has this name: rename that one, or remove its file"
    ]
    (path / f"{OLD}.yaml").unlink()
    rename(folder, NEW, NEW, first=NEW)
    assert problems(folder) == [f"{NEW}.yaml: renamed_from: it is the name of this pipeline: remove it"]


def test_a_table_with_a_former_name_says_which_name_to_write(folder):
    rename(folder, OLD, NEW, first=OLD)
    reader = folder / "pipelines" / f"{READER}.yaml"
    reader.write_text(reader.read_text().replace(f"table: {NEW}", f"table: {OLD}"))
    assert problems(folder) == [f"{READER}.yaml: tables.days.table: it was renamed: write {NEW}"]


@pytest.fixture
def renamed(folder, monkeypatch):
    """The project after the rename, and the client of commands on its run table, which has a day on hold."""
    project = load_definitions(rename(folder, OLD, NEW, first=OLD))
    table = published(project, (OLD, DATE))
    hold = Hold(rule="shrunk", reason="flights has lost 1 row", inputs="i", since=BEGIN)
    table.by_day[OLD, DATE] = table.by_day[OLD, DATE].model_copy(update={"hold": hold})
    states = FakeStates()
    warehouse = SimpleNamespace(tags=lambda name: {"t"} if name == OLD else pytest.fail(name))
    deployment = SimpleNamespace(pipeline_machine_prefix="arn:machine:p-", exchange_bucket="exchange", state_table="")
    client = a_client(
        project, run_table=table, clients={"stepfunctions": states}, warehouse=warehouse, deployment=deployment
    )
    use_client(monkeypatch, client)
    return SimpleNamespace(folder=folder, client=client, states=states)


@pytest.mark.parametrize("name", [NEW, OLD])
def test_a_client_finds_what_is_stored_by_either_name(renamed, name):
    assert renamed.client.day(name, DATE).hold.rule == "shrunk"
    assert [day.date for day in renamed.client.days_on_hold(name)] == [DATE]
    assert renamed.client.history(name, DATE) == []
    renamed.client.run(name, DATE)
    assert renamed.states.started[-1]["stateMachineArn"] == f"arn:machine:p-{OLD}"


def test_commands_show_the_new_name(renamed, printed_by, document_of):
    project = ["--project", str(renamed.folder)]
    renamed.client.store = SimpleNamespace(list=lambda _: [])
    for words in (["late"], ["late", NEW], ["late", OLD]):
        _, day, _ = printed_by(*words, *project).out.splitlines()
        assert day.split()[:2] == [NEW, DATE]
    assert document_of("late", *project)["days"][0]["pipeline"] == NEW
    assert f"slackwater run {NEW} --date {DATE}" in printed_by("runs", NEW, "--date", DATE, *project).out
    renamed.client.run = lambda *_, **__: (_ for _ in ()).throw(RunFailed("it broke"))
    for name in (NEW, OLD):
        error = printed_by("run", name, "--date", DATE, *project, code=1).err
        assert f"its log: slackwater logs {name} --date {DATE}" in error
    # The next command in this process has another project.
    assert run(["source", "validate", "--project", str(EXAMPLE)]) == 0
    assert (
        f"no runs for {DATE} yet (slackwater run {OLD}"
        in printed_by("runs", OLD, "--date", DATE, *project[:1], str(EXAMPLE)).out
    )
