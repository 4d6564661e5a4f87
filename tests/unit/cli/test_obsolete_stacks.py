"""`slackwater deploy` names the stacks that it no longer has, and deletes one only if the answer is yes.

Stacks that have only alarms are deleted without a question, before the deployment creates the alarms elsewhere.
"""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import pytest

from slackwater.aws.deployment import ALARM_STACKS
from slackwater.cli.main import run
from slackwater.deploy import deploy as deploy_module
from slackwater.deploy.deploy import DeployResult
from slackwater.errors import CloudError
from tests.example_project import PROJECT
from tests.fakes_cli import Terminal
from tests.fakes_stacks import ALARM, BUCKET, COMPOSITE, ROLE, Aws

pytestmark = pytest.mark.unit

OBSOLETE = ("slackwater-schedule", "slackwater-source-dashboards")
DELETE = "aws cloudformation delete-stack --stack-name slackwater-schedule"


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Aws:
    """An account after a deployment that no longer has two of its stacks. One has a bucket that stays."""
    schedule = {"Dags": (BUCKET, "Retain"), "Role": (ROLE, ""), "Scratch": (BUCKET, "")}
    account = Aws(**{name: {"Role": (ROLE, "")} for name in ("slackwater-storage", *OBSOLETE)})
    account.stacks["slackwater-schedule"] = schedule
    deployment = SimpleNamespace(api_url="https://api", model_dump=dict)
    result = DeployResult(deployment=deployment, seconds={}, changed=[], obsolete=OBSOLETE)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SLACKWATER_PREFIX", "slackwater")
    monkeypatch.setattr("slackwater.deploy.deploy.client", lambda _: account)
    monkeypatch.setattr("slackwater.deploy.deploy.deploy", lambda *_, **__: result)
    monkeypatch.setattr("slackwater.aws.deletion._PAUSE", 0)
    return account


@pytest.mark.parametrize(("options", "stdin"), [([], io.StringIO), (["--json"], Terminal)])
def test_where_the_command_cannot_ask_it_names_what_is_kept_and_how_to_delete_the_rest(
    account, monkeypatch, printed_by, options, stdin
):
    monkeypatch.setattr("sys.stdin", stdin("y\n" * 2))
    printed = printed_by("deploy", *options, *PROJECT)
    noted = " ".join(printed.err.split())
    assert f"keeps {BUCKET} dags, and deletes 1 {ROLE}, 1 {BUCKET}" in noted
    assert f"to delete it: {DELETE}" in noted
    assert "keeps nothing, and deletes 1 AWS::IAM::Role" in noted
    assert account.deleted == []
    if options:
        assert json.loads(printed.out)["obsolete"] == list(OBSOLETE)


@pytest.mark.parametrize("answers", ["n\nn\n", "\ny\n", "y\nn\n", "y\ny\n"])
def test_on_a_terminal_each_is_deleted_only_after_a_yes(account, monkeypatch, capsys, answers):
    monkeypatch.setattr("sys.stdin", Terminal(answers))
    assert run(["deploy", *PROJECT]) == 0
    order = ["slackwater-schedule", "slackwater-source-dashboards"]
    expected = [name for name, answer in zip(order, answers.split("\n"), strict=False) if answer == "y"]
    assert account.deleted == expected
    assert "slackwater-storage" not in capsys.readouterr().err


def test_a_stack_whose_deletion_would_lose_objects_is_not_offered(account, monkeypatch, printed_by):
    account.objects = {"scratch": ["a"]}
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    noted = " ".join(printed_by("deploy", *PROJECT).err.split())
    assert "bucket scratch is not empty" in noted
    assert DELETE in noted
    assert account.deleted == ["slackwater-source-dashboards"]


COMPOSITES, RUNS, LATE = (f"slackwater-{name}" for name in ("composite-alarms", "run-alarms", "late-alarms"))


@pytest.fixture
def alarms(monkeypatch: pytest.MonkeyPatch) -> Aws:
    """An account in which some groups of alarms have stacks of their own."""
    groups = {name: {"Failed": (ALARM, ""), "CDKMetadata": ("AWS::CDK::Metadata", "")} for name in (RUNS, LATE)}
    stacks = {**groups, COMPOSITES: {"Pipeline": (COMPOSITE, "")}, "slackwater-monitoring": {"Other": (ALARM, "")}}
    account = Aws(**stacks)
    monkeypatch.setattr(deploy_module, "client", lambda _: account)
    monkeypatch.setattr("slackwater.aws.deletion._PAUSE", 0)
    return account


def test_stacks_of_alarms_that_move_are_deleted_before_the_deployment_and_composite_alarms_first(
    alarms, tmp_path, capsys
):
    deploy_module.delete_obsolete_alarms(tmp_path, prefix="slackwater", on_note=deploy_module.to_stderr)
    assert alarms.deleted == [COMPOSITES, LATE, RUNS]
    assert f"deleted the stack {RUNS}: its alarms move" in " ".join(capsys.readouterr().err.split())
    deploy_module.delete_obsolete_alarms(tmp_path, prefix="slackwater", on_note=deploy_module.to_stderr)
    assert len(alarms.deleted) == 3


def test_stacks_of_alarms_that_stay_are_not_deleted(alarms, tmp_path):
    for name in ALARM_STACKS:
        if name != "late-alarms":
            (tmp_path / f"slackwater-{name}.template.json").write_text("{}")
    deploy_module.delete_obsolete_alarms(tmp_path, prefix="slackwater", on_note=deploy_module.to_stderr)
    assert alarms.deleted == [LATE]


def test_a_stack_of_alarms_that_has_something_else_is_left_to_the_question(alarms, tmp_path):
    alarms.stacks[RUNS]["Kept"] = (BUCKET, "Retain")
    deploy_module.delete_obsolete_alarms(tmp_path, prefix="slackwater", on_note=deploy_module.to_stderr)
    assert alarms.deleted == [COMPOSITES, LATE]


def test_nothing_is_deleted_while_one_of_the_stacks_is_protected(alarms, tmp_path):
    alarms.protected = {RUNS}
    with pytest.raises(CloudError, match=f"cannot move .*\n.*--stack-name {RUNS}"):
        deploy_module.delete_obsolete_alarms(tmp_path, prefix="slackwater", on_note=deploy_module.to_stderr)
    assert alarms.deleted == []


def test_a_deployment_ends_before_it_creates_alarms_whose_names_are_still_taken(alarms, tmp_path):
    alarms.fails = {COMPOSITES: "a rule of yours names it"}
    with pytest.raises(CloudError, match="a rule of yours names it"):
        deploy_module.delete_obsolete_alarms(tmp_path, prefix="slackwater", on_note=deploy_module.to_stderr)
    assert alarms.deleted == [COMPOSITES]
