"""`slackwater plan` and `slackwater deploy`: what a deployment changes, before it changes anything."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from slackwater.deploy import deploy as deploy_module
from slackwater.deploy.deploy import DeployResult
from slackwater.errors import AccessDenied
from tests.example_project import EXAMPLE, PROJECT
from tests.fakes_cli import FakeObjects, Terminal
from tests.fakes_runs import DictRunTable
from tests.fakes_stacks import Aws
from tests.unit.cli.test_changes import COLUMNS, DAILY, DAYS, DEPLOYED, FILES, published

pytestmark = pytest.mark.unit

OTHER = "other_delays"
WITH_OTHER = FILES.model_copy(update={"pipelines": {**FILES.pipelines, OTHER: FILES.pipelines[DAILY]}})
"""A deployed project with a pipeline whose file was removed."""
REMOVAL = f"  removed  pipelines/{OTHER}.yaml: its table with 1 day and its history stay, and no command reaches them"


@pytest.fixture
def deployed(monkeypatch):
    """Let an account have a deployment of the project that a test gives. Returns the calls of the deployment."""
    account, calls = Aws(), []

    def deployed(project=None, table=None, *, refused=(), columns=COLUMNS):
        objects = {} if project is None else {"s3://assets/project.json": project.model_dump_json(by_alias=True)}
        storage = None if project is None else {"RunTable": "runs", "WarehouseDatabase": "warehouse"}
        for name, value in {
            "client": lambda _: account,
            "deployed_storage": lambda *_, **__: storage,
            "deployed_project": lambda *_, **__: next(iter(objects), None),
            "S3ObjectStore": lambda _: FakeObjects(objects),
            "DynamoRunTable": lambda *_: table or DictRunTable(),
            "GlueTables": lambda _: SimpleNamespace(columns=lambda *_: columns),
            "_history": lambda _: SimpleNamespace(problems=lambda *_, **__: refused),
            "deploy": lambda *_, **__: calls.append("deploy") or result,
        }.items():
            monkeypatch.setattr(deploy_module, name, value)
        return calls

    result = DeployResult(deployment=SimpleNamespace(api_url="u", model_dump=dict), seconds={}, changed=["a"])
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SLACKWATER_PREFIX", "slackwater")
    return deployed


def test_the_plan_lists_changes_stale_days_and_the_commands_and_changes_nothing(deployed, printed_by):
    calls = deployed(DEPLOYED, published(DEPLOYED, *DAYS))
    shown = printed_by("plan", *PROJECT)
    assert shown.err == "comparing with http://127.0.0.1:9\n"
    assert shown.out.splitlines() == [
        "  changed  pipelines/daily_delays.yaml",
        "  stale    2 published days (2013-03-08 to 2013-03-10) of daily_delays",
        "to apply:",
        f"  slackwater deploy --project {EXAMPLE}",
        f"  slackwater run daily_delays --from 2013-03-08 --to 2013-03-10 --stale --project {EXAMPLE}",
    ]
    assert calls == []


def test_the_document_has_the_same(deployed, document_of):
    deployed(WITH_OTHER, published(WITH_OTHER, (OTHER, "2013-03-08")))
    assert document_of("plan", *PROJECT) == {
        "target": "http://127.0.0.1:9",
        "changes": [
            {
                "change": "removed",
                "folder": "pipelines",
                "name": OTHER,
                "same_as": "",
                "renamed_from": "",
                "file": f"pipelines/{OTHER}.yaml",
            },
        ],
        "stale": {},
        "kept": {},
        "lost": {OTHER: {"published": 1, "on_hold": 0}},
        "lacking": {},
        "refused": [],
    }


def test_what_a_deployment_refuses_is_listed_with_exit_code_1_and_nothing_is_built(deployed, printed_by):
    text = "sources/flights.yaml: dep_delay: the stored partitions have it as double, which cannot become int64"
    calls = deployed(DEPLOYED, refused=(text,))
    shown = printed_by("plan", *PROJECT, code=1)
    assert shown.out.splitlines() == ["  changed  pipelines/daily_delays.yaml", f"  refused  {text}"]
    assert text in printed_by("deploy", *PROJECT, code=2).err
    assert calls == []


def test_a_plan_after_which_every_day_would_fail_is_not_recommended(deployed, printed_by):
    deployed(DEPLOYED, published(DEPLOYED, *DAYS), columns=(*COLUMNS, "seats"))
    shown = printed_by("plan", *PROJECT).out
    assert "  fails    pipelines/daily_delays.yaml: the published table has the column seats" in shown
    assert "to apply" not in shown


@pytest.mark.parametrize(
    ("project", "shown"),
    [(None, "  added    pipelines/daily_delays.yaml"), (FILES, "the definitions are those that are deployed")],
)
def test_before_the_first_deployment_all_is_added_and_after_it_nothing_is_to_do(deployed, printed_by, project, shown):
    deployed(project)
    assert printed_by("plan", *PROJECT).out.splitlines()[0] == shown


def test_a_deployed_project_of_another_format_cannot_be_compared_and_is_deployed_over(
    deployed, printed_by, monkeypatch
):
    calls = deployed(FILES)
    monkeypatch.setattr(deploy_module, "S3ObjectStore", lambda _: SimpleNamespace(get=lambda _: b'{"older": 1}'))
    assert "has the format of another version of slackwater" in printed_by("plan", *PROJECT, code=1).err
    printed_by("deploy", *PROJECT)
    assert calls == ["deploy"]


@pytest.mark.parametrize(("options", "stdin"), [([], io.StringIO), (["--json"], Terminal)])
def test_where_it_cannot_ask_a_deployment_removes_only_with_yes(deployed, printed_by, monkeypatch, options, stdin):
    calls = deployed(WITH_OTHER, published(WITH_OTHER, (OTHER, "2013-03-08")))
    monkeypatch.setattr("sys.stdin", stdin("y\n"))
    shown = printed_by("deploy", *options, *PROJECT, code=2)
    assert REMOVAL in shown.err.splitlines()
    assert "add --yes (slackwater deploy --yes), or restore the files" in shown.err + shown.out
    assert calls == []
    printed_by("deploy", "--yes", *options, *PROJECT)
    assert calls == ["deploy"]


@pytest.mark.parametrize(("answer", "expected"), [("y\n", ["deploy"]), ("\n", []), ("n\n", [])])
def test_on_a_terminal_it_asks(deployed, printed_by, monkeypatch, answer, expected):
    calls = deployed(WITH_OTHER)
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    shown = printed_by("deploy", *PROJECT, code=0 if expected else 2)
    assert f"Remove pipelines/{OTHER}.yaml? [y/N]" in shown.err
    assert calls == expected


def test_after_a_deployment_the_commands_that_follow_are_printed(deployed, printed_by):
    deployed(DEPLOYED, published(DEPLOYED, (DAILY, "2013-03-08")))
    assert printed_by("deploy", *PROJECT).out.splitlines() == [
        "deployed: 2 sources, 2 pipelines",
        "  API: u",
        "  to receive data: slackwater pull flights",
        "  to run a day: slackwater run daily_delays --date DATE",
        "to run the stale days again:",
        f"  slackwater run daily_delays --date 2013-03-08 --project {EXAMPLE}",
    ]


def test_without_credentials_nothing_is_built(deployed, printed_by, monkeypatch):
    def refuse(_):
        raise AccessDenied("could not get the account id: no AWS credentials (set AWS_PROFILE, ...)")

    calls = deployed(FILES)
    monkeypatch.setattr(deploy_module, "client", refuse)
    assert "no AWS credentials" in printed_by("deploy", *PROJECT, code=1).err
    assert calls == []
