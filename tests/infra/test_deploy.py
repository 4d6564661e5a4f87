"""Deployments: reading the outputs of stacks, progress, and failures."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.deployment import STACKS, Deployment, read_deployment
from slackwater.client.workspace import Workspace
from slackwater.deploy import deploy as deploy_module
from slackwater.deploy.cdk import Cdk, CdkOutput
from slackwater.deploy.deploy import check_definitions, only_deployment, stop_changed_application
from slackwater.errors import CloudError, DefinitionError, NotDeployed
from slackwater.progress import ProgressBoard
from slackwater.project.project import Project
from tests.fakes_receiver import a_source
from tests.fakes_runs import DictStore

pytestmark = pytest.mark.infra

_OUTPUT = """
building layer.zip

slackwater-storage
slackwater-storage: deploying... [1/3]

✅  slackwater-storage (no changes)

slackwater-receiver: start: Publishing Library/Layer/Code (000000000000-us-east-1-9a35e0db)
slackwater-receiver |  0/20 | 3:28:32 AM | UPDATE_IN_PROGRESS   | AWS::CloudFormation::Stack | slackwater-receiver
slackwater-receiver |  5/20 | 3:28:32 AM | CREATE_COMPLETE      | AWS::Logs::LogGroup        | Pull/Logs (PullLogs)
slackwater-receiver |  6/20 | 3:28:32 AM | CREATE_COMPLETE      | AWS::Logs::LogGroup        | Pull/Logs (PullLogs)
slackwater-receiver | 23/20 | 3:28:33 AM | UPDATE_COMPLETE      | AWS::CloudFormation::Stack | slackwater-receiver

✅  slackwater-receiver
"""

_FAILURE = """
slackwater-processing |  9/11 | 3:37:12 AM | UPDATE_FAILED | AWS::IAM::Role | Pull/Role (PullRole) no such principal
slackwater-processing |  8/11 | 3:37:12 AM | UPDATE_ROLLBACK_IN_P | AWS::CloudFormation::Stack | slackwater-processing
slackwater-processing |  7/11 | 3:37:12 AM | UPDATE_FAILED | AWS::IAM::Role | Other (Other) cancelled
"""


class FakeCloudFormation:
    """Stacks by name: status and outputs."""

    def __init__(self, stacks: dict[str, tuple[str, dict[str, str]]]) -> None:
        self._stacks = stacks

    def describe_stacks(self, *, StackName: str) -> dict[str, Any]:  # noqa: N803 - boto3's name
        if StackName not in self._stacks:
            error = {"Code": "ValidationError", "Message": f"Stack with id {StackName} does not exist"}
            raise ClientError({"Error": error}, "DescribeStacks")
        status, outputs = self._stacks[StackName]
        pairs = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
        return {"Stacks": [{"StackStatus": status, "Outputs": pairs}]}


def deployed(**changes: str) -> dict[str, tuple[str, dict[str, str]]]:
    """Three stacks whose outputs are named after themselves."""
    names = [str(field.alias) for field in Deployment.model_fields.values()]
    numbers = {"ConcurrentRuns": "3", "CollectMinutes": "5"}
    outputs = {name: f"the {name}" for name in names} | numbers | changes
    some = {f"slackwater-{stack}": ("CREATE_COMPLETE", dict[str, str]()) for stack in STACKS[1:]}
    return {"slackwater-storage": ("UPDATE_COMPLETE", outputs | {"Exports": "x"}), **some}


def printed_progress(printed: str) -> tuple[CdkOutput, str]:
    """Parse the output; return the parsed state and the printed progress."""
    shown = io.StringIO()
    output = CdkOutput(progress=ProgressBoard(stream=shown, note_interval=0), current="synthesis")
    for line in printed.splitlines():
        output.read_line(line)
    return output, shown.getvalue()


@contextmanager
def cdk(root: Path, script: str) -> Iterator[tuple[Cdk, io.StringIO]]:
    """A shell script in place of the CDK."""
    program = root / "cdk"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    shown = io.StringIO()
    with (root / "deploy.log").open("w") as log:
        yield Cdk(root=root, program=program, log=log, progress=ProgressBoard(stream=shown, note_interval=0)), shown


def test_the_deployment_is_read_from_all_stacks() -> None:
    deployment = read_deployment(FakeCloudFormation(deployed()), prefix="slackwater")
    assert deployment.raw_bucket == "the RawBucket"


def test_a_missing_stack_is_named() -> None:
    stacks = deployed()
    del stacks["slackwater-receiver"]
    with pytest.raises(
        NotDeployed, match="no stack slackwater-receiver in this account and region: run slackwater deploy"
    ):
        read_deployment(FakeCloudFormation(stacks), prefix="slackwater")


def test_a_deployment_is_looked_for_by_its_prefix_and_the_error_says_how_to_give_another() -> None:
    cloudformation = FakeCloudFormation(deployed())
    with pytest.raises(
        NotDeployed, match=r"no stack other-storage .* 'other', set SLACKWATER_PREFIX, or slackwater:prefix"
    ):
        read_deployment(cloudformation, prefix="other")


def test_a_stack_whose_creation_failed_counts_as_missing() -> None:
    stacks = deployed() | {"slackwater-processing": ("ROLLBACK_COMPLETE", {})}
    with pytest.raises(NotDeployed, match="slackwater-processing"):
        read_deployment(FakeCloudFormation(stacks), prefix="slackwater")


def test_a_missing_output_is_named() -> None:
    stacks = deployed()
    del stacks["slackwater-storage"][1]["TokenTable"]
    with pytest.raises(NotDeployed, match="no output TokenTable"):
        read_deployment(FakeCloudFormation(stacks), prefix="slackwater")


def test_a_service_error_is_not_reported_as_a_missing_stack() -> None:
    class Refusing:
        def describe_stacks(self, **_: str) -> dict[str, Any]:
            raise ClientError({"Error": {"Code": "InternalFailure", "Message": "down"}}, "DescribeStacks")

    with pytest.raises(CloudError, match="InternalFailure: down"):
        read_deployment(Refusing(), prefix="slackwater")


def test_progress_shows_the_number_of_changed_resources() -> None:
    output, shown = printed_progress(_OUTPUT)
    assert output.changed == ["slackwater-receiver"]
    lines = [line.partition(" 0.")[0] for line in shown.splitlines()]
    assert lines == [
        "synthesis: running, building layer.zip",
        "slackwater-storage: done",
        "slackwater-receiver: running, uploading Library/Layer/Code",
        *(f"slackwater-receiver: running, {done} of 20 resources" for done in (0, 5, 6, 20)),
        "slackwater-receiver: done",
    ]


def test_the_first_failure_is_reported() -> None:
    output, shown = printed_progress(_FAILURE)
    assert output.failure == "slackwater-processing: AWS::IAM::Role Pull/Role (PullRole) no such principal"
    assert "rolling back" in shown
    assert output.current == "slackwater-processing"


def test_the_synthesis_gets_the_project_and_the_deployment_its_result_and_all_output_is_kept(tmp_path: Path) -> None:
    (tmp_path / "cdk.out").mkdir()
    (tmp_path / "cdk.out" / "manifest.json").write_text('{"artifacts": {}}')
    with cdk(tmp_path, 'echo "$@"; pwd; node --version; echo "✅  slackwater-storage"') as (command, shown):
        assembly = command.synthesise(tmp_path / "mine", {"log_level": "DEBUG"})
        assert "synthesis: done" in shown.getvalue()
        output = command.deploy(assembly)
    synthesis, _, deployment = (tmp_path / "deploy.log").read_text().partition("deploy --all --require-approval never")
    assert output.changed == ["slackwater-storage"]
    assert synthesis.startswith("synth --quiet")
    assert f"--output {assembly}" in synthesis
    assert f"slackwater:project={tmp_path / 'mine'}" in synthesis
    assert "--context slackwater:log_level=DEBUG" in synthesis
    assert f"--app {assembly}" in deployment
    assert f"\n{tmp_path}\nv24." in deployment


def test_a_template_of_an_earlier_synthesis_is_not_taken_for_a_stack_of_this_one(tmp_path: Path) -> None:
    """The CDK leaves it in the folder: its stack would never be obsolete."""
    stack = {"type": "aws:cloudformation:stack", "properties": {"templateFile": "mine-storage.template.json"}}
    assembly = tmp_path / "cdk.out"
    assembly.mkdir()
    (assembly / "manifest.json").write_text(json.dumps({"artifacts": {"mine-storage": stack, "Tree": {}}}))
    for name in ("mine-storage", "mine-run-alarms"):
        (assembly / f"{name}.template.json").write_text("{}")
    with cdk(tmp_path, "true") as (command, _):
        assert command.synthesise(tmp_path / "mine", {}) == assembly
    assert [file.name for file in assembly.glob("*.template.json")] == ["mine-storage.template.json"]


def test_the_error_of_a_failed_deployment_names_the_resource_and_the_log(tmp_path: Path) -> None:
    script = f"cat <<'END'{_FAILURE}END\nexit 1"
    message = r"(?s)cdk deploy failed: .*no such principal\n.*deploy\.log"
    with cdk(tmp_path, script) as (command, shown), pytest.raises(CloudError, match=message):
        command.deploy(tmp_path)
    assert "slackwater-processing: failed" in shown.getvalue()


def test_the_error_of_a_failed_synthesis_contains_the_end_of_its_output(tmp_path: Path) -> None:
    script = "echo 'settings: prefix: wrong' >&2; exit 1"
    with cdk(tmp_path, script) as (command, shown), pytest.raises(CloudError, match="settings: prefix: wrong"):
        command.synthesise(tmp_path, {})
    assert "synthesis: failed" in shown.getvalue()


class OneStartedApplication:
    """Both clients of an account whose one Spark application is started, with these jobs."""

    def __init__(self, jobs: list[str]) -> None:
        self.jobs, self.state = jobs, "STARTED"

    def get_template(self, *, StackName: str) -> dict[str, Any]:  # noqa: N803 - boto3's name
        resource = {"Type": "AWS::EMRServerless::Application", "Properties": {"Name": StackName}}
        return {"TemplateBody": {"Resources": {"Spark": resource}}}

    def describe_stack_resource(self, **_: str) -> dict[str, Any]:
        return {"StackResourceDetail": {"PhysicalResourceId": "00abc"}}

    def get_application(self, **_: str) -> dict[str, Any]:
        return {"application": {"state": self.state}}

    def get_paginator(self, _operation: str) -> OneStartedApplication:
        return self

    def paginate(self, **_: Any) -> list[dict[str, Any]]:
        return [{"jobRuns": [{"id": job, "state": "RUNNING"} for job in self.jobs]}]

    def stop_application(self, **_: str) -> None:
        self.state = "STOPPED"


@pytest.mark.parametrize(
    ("name", "jobs", "state"),
    [("the-processing", ["00job"], "STARTED"), ("renamed", [], "STOPPED"), ("renamed", ["00job"], None)],
)
def test_the_spark_application_is_stopped_only_if_the_deployment_changes_it_and_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, jobs: list[str], state: str | None
) -> None:
    account = OneStartedApplication(jobs)
    monkeypatch.setattr(deploy_module, "client", lambda _service: account)
    resource = {"Type": "AWS::EMRServerless::Application", "Properties": {"Name": name}}
    (tmp_path / "the-processing.template.json").write_text(json.dumps({"Resources": {"Spark": resource}}))
    if state is None:
        with pytest.raises(CloudError, match=r"(?s)nothing was changed: .* jobs:\n  00job \(RUNNING\)"):
            stop_changed_application(tmp_path, stack="the-processing")
    else:
        stop_changed_application(tmp_path, stack="the-processing")
        assert account.state == state


@pytest.mark.parametrize(("environment", "prefix"), [({}, "mine"), ({"environment": "dev"}, "slackwater-dev")])
def test_a_deployment_has_the_prefix_that_every_other_command_looks_for(
    environment: dict[str, str], prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FakeCdk:
        def __init__(self, **_: object) -> None:
            self.changed = ()

        def bootstrap(self, qualifier: str) -> None:
            assert qualifier == "hnb659fds"
            prefixes.append("bootstrap")

        def synthesise(self, _: Path, settings: dict[str, str]) -> Path:
            assert settings == {"log_level": "DEBUG", **environment, "prefix": prefix}
            prefixes.append("synthesis")
            return tmp_path

        def deploy(self, _: Path) -> FakeCdk:
            prefixes.append("deployment")
            return self

    prefixes: list[str] = []
    setting = '"slackwater:environment": "dev"' if environment else '"slackwater:prefix": "mine"'
    (tmp_path / "cdk.json").write_text(f'{{"context": {{{setting}}}}}')
    for name in ("SLACKWATER_PREFIX", "SLACKWATER_ENVIRONMENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLACKWATER_SET", "log_level=INFO")
    for name, replacement in {
        "Cdk": FakeCdk,
        "client": lambda _: None,
        "check_definitions": lambda _, *, prefix, on_note: prefixes.append(prefix),
        "ensure_log_role": lambda *_: prefixes.append("log role"),
        "stop_changed_application": lambda _, *, stack, on_note: prefixes.append(stack),
        "release_removed_alarms": lambda _, *, stack: prefixes.append(stack),
        "delete_obsolete_alarms": lambda _, *, prefix, on_note: prefixes.append(f"obsolete alarms of {prefix}"),
        "read_deployment": lambda _, *, prefix: prefixes.append(prefix),
        "stack_states": lambda _, *, prefix: dict.fromkeys(
            [f"{prefix}-storage", f"{prefix}-schedule"], "UPDATE_COMPLETE"
        ),
    }.items():
        monkeypatch.setattr(deploy_module, name, replacement)
    monkeypatch.setattr(Workspace, "load_project", lambda _: things())
    (tmp_path / f"{prefix}-storage.template.json").write_text("{}")
    result = deploy_module.deploy(Workspace(root=tmp_path, project=tmp_path), {"log_level": "DEBUG"})
    assert result.obsolete == (f"{prefix}-schedule",)
    # Settings for another account fail the synthesis: nothing was written to this one before.
    stacks = [f"{prefix}-processing", f"{prefix}-composite-alarms", f"obsolete alarms of {prefix}"]
    assert prefixes == ["synthesis", prefix, "bootstrap", "log role", *stacks, "deployment", prefix, prefix]


def things(**fields: str) -> Project:
    """A project with one source of these fields."""
    return Project(sources={"things": a_source(fields={"id": "string", "at": "timestamp", **fields})}, pipelines={})


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, tuple[str, dict[str, str]]], DictStore]:
    """The stacks of an account, and its objects."""
    stacks: dict[str, tuple[str, dict[str, str]]] = {}
    store = DictStore()
    monkeypatch.setattr(deploy_module, "client", lambda service: FakeCloudFormation(stacks))
    monkeypatch.setattr(deploy_module, "S3ObjectStore", lambda _s3: store)
    return stacks, store


_STORAGE = {"slackwater-storage": ("UPDATE_COMPLETE", {"RawBucket": "raw", "WarehouseDatabase": "warehouse"})}
_PROCESSING = {"slackwater-processing": ("UPDATE_COMPLETE", {"ProjectUri": "s3://assets/project.json"})}


def test_a_first_deployment_has_nothing_to_compare_with(
    account: tuple[dict[str, tuple[str, dict[str, str]]], DictStore],
) -> None:
    check_definitions(things(x="int64"), prefix="slackwater")
    assert account[1].objects == {}


def test_definitions_are_compared_with_the_deployed_project_and_recorded(
    account: tuple[dict[str, tuple[str, dict[str, str]]], DictStore],
) -> None:
    stacks, store = account
    stacks |= _STORAGE | _PROCESSING
    store.put("s3://assets/project.json", things(x="int64").model_dump_json(by_alias=True).encode())
    with pytest.raises(DefinitionError, match="x: the stored partitions have it as int64"):
        check_definitions(things(x="string"), prefix="slackwater")
    check_definitions(things(x="int64", y="double"), prefix="slackwater")
    assert '"y":"double"' in store.get("s3://raw/definitions.json").decode()


def test_definitions_are_compared_with_the_history_when_the_deployed_project_is_gone_or_older(
    account: tuple[dict[str, tuple[str, dict[str, str]]], DictStore],
) -> None:
    stacks, store = account
    stacks |= _STORAGE
    check_definitions(things(x="int64"), prefix="slackwater")
    store.put("s3://raw/raw/source=things/date=2013-03-08/hour=17/a.parquet", b"x")
    with pytest.raises(DefinitionError, match="x: the stored partitions have it as int64"):
        check_definitions(things(x="string"), prefix="slackwater")
    stacks |= _PROCESSING
    store.put("s3://assets/project.json", b'{"an older": "format"}')
    with pytest.raises(DefinitionError, match="x: the stored partitions have it as int64"):
        check_definitions(things(x="string"), prefix="slackwater")


def test_a_second_deployment_says_so_and_waits(tmp_path):
    workspace, said, entered = Workspace(root=tmp_path, project=tmp_path), threading.Event(), threading.Event()
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        said.set()

    def deploy_too() -> None:
        with only_deployment(workspace, on_note=note):
            entered.set()

    second = threading.Thread(target=deploy_too)
    with only_deployment(workspace, on_note=note) as log:
        log.write("of the first one")
        second.start()
        assert said.wait(60)
        assert not entered.is_set()
    second.join(60)
    assert entered.is_set()
    assert notes == ["another deployment of this project runs: waiting until it has ended"]
    state = tmp_path / ".slackwater"
    assert {path.name: path.read_text() for path in state.iterdir()} == {".gitignore": "*\n", "deploy.log": ""}
