"""Deploys a project's stacks, after checks that its definitions and the new stacks fit what is deployed.

Also what a deletion of the stacks needs.
"""

from __future__ import annotations

import fcntl
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from slackwater.aws.api_log_role import ensure_log_role
from slackwater.aws.clients import client
from slackwater.aws.composite_alarms import release_alarms
from slackwater.aws.definition_history import HistoryStore
from slackwater.aws.deletion import StackDeletion, StackResource
from slackwater.aws.deployment import (
    ALARM_STACKS,
    Deployment,
    deployed_project,
    deployed_storage,
    read_deployment,
    read_project,
    stack_states,
)
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.failures import translated
from slackwater.aws.glue_tables import GlueTables
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.spark_application import SparkApplications
from slackwater.client.plan import Plan, make_plan
from slackwater.client.workspace import Workspace
from slackwater.deploy.cdk import Cdk, remove_uploaded
from slackwater.deploy.tools import cdk_program, install_tools, is_installed
from slackwater.errors import CloudError, NotDeployed
from slackwater.progress import ProgressBoard, TaskState
from slackwater.project.changes import changed_definitions, check_renames
from slackwater.project.environments import check_target, settings_of_environment
from slackwater.project.installation import make_state_folder
from slackwater.project.project import Project

_INSTALLATION = "install the CDK"
OnNote = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class DeployResult:
    """Result of a deployment."""

    deployment: Deployment
    seconds: Mapping[str, float]
    """How long each part took: `bootstrap` (close to 0 if the account was bootstrapped already) and `deploy`."""
    changed: Sequence[str]
    """Stacks that were created or changed."""
    obsolete: Sequence[str] = ()
    """Stacks that earlier settings or definitions needed. The CDK deletes none of them."""


def stack_deletion() -> StackDeletion:
    """Return what lists and deletes the stacks of a deployment."""
    return StackDeletion(cloudformation=client("cloudformation"), s3=client("s3"), sqs=client("sqs"))


def to_stderr(note: str) -> None:
    """Print a note in plain text to standard error."""
    sys.stderr.write(f"{note}\n")


def deploy(
    workspace: Workspace, settings: Mapping[str, str] | None = None, *, on_note: OnNote = to_stderr
) -> DeployResult:
    """Run `cdk synth`, `cdk bootstrap` unless the account is bootstrapped, and `cdk deploy`, in the workspace's root.

    The CDK's command line is installed first if it is not there. `on_note` gets what a person should know.

    Endpoint, credentials and region come from the environment. Settings come from the environment variable
    SLACKWATER_SET, as `NAME=VALUE` separated by blanks, and from `settings`, which take precedence. The CDK's whole
    output is in `.slackwater/deploy.log`.

    Raises `DefinitionError` for a definition that does not fit the stored data, `CloudError` naming the resource that
    failed, or the jobs that keep the Spark application from being changed, and `InputError` for a wrong setting.
    """
    prefix = workspace.prefix
    merged = {**settings_of_environment(), **(settings or {}), "prefix": prefix}
    if workspace.environment:
        merged["environment"] = workspace.environment
    definitions = workspace.load_project()
    with only_deployment(workspace, on_note=on_note) as log, ProgressBoard() as progress:
        if not is_installed():
            progress.update(_INSTALLATION)
            install_tools()
            progress.update(_INSTALLATION, TaskState.DONE)
        cdk = Cdk(root=workspace.root, program=cdk_program(), log=log, progress=progress)
        started = time.monotonic()
        # First: it reports wrong settings, and credentials for another account than the environment's.
        assembly = cdk.synthesise(workspace.project, merged)
        # Before anything is deployed: after the deployment, new objects would have other columns than the stored ones.
        check_definitions(definitions, prefix=prefix, on_note=on_note)
        synthesised = time.monotonic()
        cdk.bootstrap(workspace.bootstrap_qualifier)
        bootstrap_seconds = time.monotonic() - synthesised
        if role := ensure_log_role(client("apigateway"), client("iam")):
            on_note(f"created {role}, with which API Gateway writes the logs of all APIs of this account")
        stop_changed_application(assembly, stack=f"{prefix}-processing", on_note=on_note)
        release_removed_alarms(assembly, stack=f"{prefix}-composite-alarms")
        delete_obsolete_alarms(assembly, prefix=prefix, on_note=on_note)
        output = cdk.deploy(assembly)
        remove_uploaded(assembly)
    # Again, because the first deployment has only now created the bucket of the history.
    check_definitions(definitions, prefix=prefix, on_note=on_note)
    _settings_file(workspace).write_text(json.dumps(dict(settings or {})), encoding="utf-8")
    seconds = {"bootstrap": bootstrap_seconds, "deploy": time.monotonic() - started - bootstrap_seconds}
    cloudformation = client("cloudformation")
    deployment = read_deployment(cloudformation, prefix=prefix)
    existing = stack_states(cloudformation, prefix=prefix)
    obsolete = tuple(stack for stack in existing if not (assembly / f"{stack}.template.json").exists())
    return DeployResult(deployment=deployment, seconds=seconds, changed=tuple(output.changed), obsolete=obsolete)


@contextmanager
def only_deployment(workspace: Workspace, *, on_note: OnNote) -> Iterator[TextIO]:
    """Wait until no other process deploys from this root; yield the log of the deployment, which is empty."""
    with (make_state_folder(workspace.root) / "deploy.log").open("a", encoding="utf-8") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_note("another deployment of this project runs: waiting until it has ended")
            fcntl.flock(log, fcntl.LOCK_EX)
        log.truncate(0)
        yield log


def latest_settings(workspace: Workspace) -> dict[str, str]:
    """Return the settings that the latest deployment from this workspace, with the same prefix, was given."""
    file = _settings_file(workspace)
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def _settings_file(workspace: Workspace) -> Path:
    return workspace.state / f"settings-{workspace.prefix}.json"


def check_definitions(project: Project, *, prefix: str, on_note: OnNote = to_stderr) -> None:
    """Check that the project fits the data that is stored, if anything is deployed, and add it to the history.

    Raises `DefinitionError` that names each problem, and `CloudError`.
    """
    cloudformation, store = client("cloudformation"), S3ObjectStore(client("s3"))
    storage = deployed_storage(cloudformation, prefix=prefix)
    uri = deployed_project(cloudformation, prefix=prefix)
    if storage is None:
        return
    try:
        deployed = read_project(store, uri) if uri else None
    except NotDeployed:
        on_note("the deployed project has an older format: only the history of definitions is compared")
        deployed = None
    if deployed:
        check_renames(project, deployed)
    _history(storage).check(project, deployed=deployed)


def _history(storage: Mapping[str, str]) -> HistoryStore:
    """Return the history of definitions; `storage` are the outputs of the stack that has the buckets."""
    return HistoryStore(
        store=S3ObjectStore(client("s3")),
        glue=client("glue"),
        raw_bucket=storage["RawBucket"],
        warehouse_database=storage["WarehouseDatabase"],
    )


def plan_deployment(project: Project, *, prefix: str) -> Plan | None:
    """Return what a deployment of the project changes, and whether it is refused.

    None if the deployed project has an older format. Raises `CloudError`.
    """
    cloudformation = client("cloudformation")
    storage = deployed_storage(cloudformation, prefix=prefix)
    uri = deployed_project(cloudformation, prefix=prefix)
    if storage is None or uri is None:
        return Plan(changes=tuple(changed_definitions(project, Project(sources={}, pipelines={}))))
    try:
        deployed = read_project(S3ObjectStore(client("s3")), uri)
    except NotDeployed:
        return None
    database, tables = storage["WarehouseDatabase"], GlueTables(client)
    plan = make_plan(
        project,
        deployed,
        DynamoRunTable(client("dynamodb"), storage["RunTable"]),
        table_columns=lambda name: tables.columns(database, name),
    )
    return replace(plan, refused=_history(storage).problems(project, deployed=deployed))


def stop_changed_application(assembly: Path, *, stack: str, on_note: OnNote = to_stderr) -> None:
    """Stop the Spark application if the synthesised stack changes it. Raises `CloudError` if it has unfinished jobs."""
    template = json.loads((assembly / f"{stack}.template.json").read_text(encoding="utf-8"))
    applications = SparkApplications(cloudformation=client("cloudformation"), emr=client("emr-serverless"))
    for application in applications.changed(stack, template):
        if applications.stop(application):
            on_note("the Spark application was stopped, because it is changed: the next job starts it again")


def release_removed_alarms(assembly: Path, *, stack: str) -> None:
    """Take alarms that the synthesised stacks no longer have out of the rules of the deployed composite alarms.

    Raises `SlackwaterError`.
    """
    templates = [json.loads(file.read_text(encoding="utf-8")) for file in assembly.glob("*.template.json")]
    resources = [resource for template in templates for resource in template.get("Resources", {}).values()]
    alarms = {item["Properties"]["AlarmName"] for item in resources if item["Type"] == "AWS::CloudWatch::Alarm"}
    release_alarms(client("cloudformation"), client("cloudwatch"), stack=stack, alarms=alarms)


def delete_obsolete_alarms(assembly: Path, *, prefix: str, on_note: OnNote) -> None:
    """Delete the stacks of alarms that are not synthesised any more, without asking: they hold no data.

    The alarms may be synthesised in another stack, with the same names. CloudFormation creates no alarm whose name
    exists, and a deletion after the deployment would delete the alarm of the other stack. Composite alarms are deleted
    first, because CloudWatch deletes no alarm that a rule names.

    Raises `CloudError` if a stack cannot be deleted.
    """
    names = [name for name in ALARM_STACKS if not (assembly / f"{prefix}-{name}.template.json").exists()]
    deletion = stack_deletion()
    stacks = [stack for stack in deletion.stacks(prefix, names) if stack.has_only_alarms]
    if problems := list(deletion.problems(stacks)):
        raise CloudError("the alarms of these stacks cannot move to other stacks:\n" + "\n".join(problems))
    for stack in stacks:
        deletion.delete(stack)
        on_note(f"deleted the stack {stack.name}: its alarms move to another stack, or are no longer needed")


def stop_applications(resources: Iterable[StackResource]) -> None:
    """Stop the Spark applications among resources that a deletion does not keep. Raises `CloudError`."""
    applications = SparkApplications(cloudformation=client("cloudformation"), emr=client("emr-serverless"))
    for resource in resources:
        if resource.type == "AWS::EMRServerless::Application" and not resource.kept:
            applications.stop(resource.name)


def check_credentials(workspace: Workspace) -> dict[str, str]:
    """Check that the credentials are for the account and the region that cdk.json has, if it has them.

    Returns the `account` and the `region` of the credentials. Raises `DefinitionError`, `InputError` without a region,
    `AccessDenied` without credentials, and `CloudError` if AWS does not answer.
    """
    # A client of STS needs no region, and has the name of none.
    target, region = workspace.target, client("cloudformation").meta.region_name
    with translated("get the account id"):
        account = client("sts").get_caller_identity()["Account"]
    actual = {"account": account, "region": region}
    check_target(account=target["account"], region=target["region"], credentials=actual)
    return actual
