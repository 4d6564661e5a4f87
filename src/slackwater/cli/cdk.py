"""Deploys with the CDK's own command line, unmodified, and shows its progress."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from pydantic import ValidationError

from slackwater.aws.api_log_role import ensure_log_role
from slackwater.aws.clients import client
from slackwater.aws.composite_alarms import CompositeAlarmRules
from slackwater.aws.definition_history import HistoryStore
from slackwater.aws.deletion import StackDeletion
from slackwater.aws.deployment import (
    ALARM_STACKS,
    DEFAULT_QUALIFIER,
    REQUIRED_BOOTSTRAP,
    Deployment,
    bootstrap_version,
    deployed_project,
    deployed_storage,
    read_deployment,
    stack_states,
)
from slackwater.aws.failures import translated
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.profiles import child_environment
from slackwater.aws.spark_application import SparkApplications
from slackwater.cli.output import print_note
from slackwater.cli.progress import ProgressBoard, TaskState
from slackwater.client.workspace import Workspace
from slackwater.deploy.tools import cdk_program, install_tools, is_installed, node_environment
from slackwater.errors import CloudError, InputError
from slackwater.project.environments import ENVIRONMENT_VARIABLE
from slackwater.project.installation import deployed_files
from slackwater.project.project import Project

# The CDK has no machine-readable progress, so these expressions match what it prints for people. A line that matches
# none of them is only logged.
# `STACK | DONE/ALL | TIME | STATUS | TYPE | RESOURCE`, as `--progress events` prints it. TIME may have blanks.
_RESOURCE_EVENT = re.compile(
    r"^(?P<stack>[\w-]+) \| +(?P<done>\d+)/(?P<all>\d+) \| [^|]+\| (?P<status>\w+) +\| (?P<type>\S+) +"
    r"\| (?P<resource>.*)$"
)
_STACK_DONE = re.compile(r"^✅ +(?P<stack>[\w-]+)(?P<unchanged> \(no changes\))?$")
_BUILDING = re.compile(r"^building (?P<asset>.+)$")
_PUBLISHING = re.compile(r"^(?P<stack>[\w-]+): start: Publishing (?P<asset>.+?)(?: \(\S+\))?$")
_INSTALLATION, _BOOTSTRAP, _SYNTHESIS, _DEPLOYMENT = "install the CDK", "bootstrap", "synthesis", "deployment"
_QUIET = ("--no-color", "--no-notices", "--no-version-reporting")
# Lines of output in the message of a failure that named no resource.
_LAST_LINES = 12


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


def deploy(workspace: Workspace, settings: Mapping[str, str] | None = None) -> DeployResult:
    """Run `cdk synth`, `cdk bootstrap` unless the account is bootstrapped, and `cdk deploy`, in the workspace's root.

    The CDK's command line is installed first if it is not there.

    Endpoint, credentials and region come from the environment. Settings come from the environment variable
    SLACKWATER_SET, as `NAME=VALUE` separated by blanks, and from `settings`, which take precedence. The CDK's whole
    output is in `.slackwater/deploy.log`.

    Raises `DefinitionError` for a definition that does not fit the stored data, `CloudError` naming the resource that
    failed, or the jobs that keep the Spark application from being changed, and `InputError` for a wrong setting.
    """
    prefix = workspace.prefix
    merged = {**parse_settings(os.environ.get("SLACKWATER_SET", "").split()), **(settings or {}), "prefix": prefix}
    if workspace.environment:
        merged["environment"] = workspace.environment
    definitions = workspace.load_project()
    log_file = workspace.state / "deploy.log"
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("w", encoding="utf-8") as log, ProgressBoard() as progress:
        if not is_installed():
            progress.update(_INSTALLATION)
            install_tools()
            progress.update(_INSTALLATION, TaskState.DONE)
        cdk = Cdk(root=workspace.root, program=cdk_program(), log=log, progress=progress)
        started = time.monotonic()
        # First: it reports wrong settings, and credentials for another account than the environment's.
        assembly = cdk.synthesise(workspace.project, merged)
        # Before anything is deployed: after the deployment, new objects would have other columns than the stored ones.
        check_definitions(definitions, prefix=prefix)
        synthesised = time.monotonic()
        cdk.bootstrap(workspace.bootstrap_qualifier)
        bootstrap_seconds = time.monotonic() - synthesised
        if role := ensure_log_role(client("apigateway"), client("iam")):
            print_note(f"created {role}, with which API Gateway writes the logs of all APIs of this account")
        stop_changed_application(assembly, stack=f"{prefix}-processing")
        release_removed_alarms(assembly, stack=f"{prefix}-composite-alarms")
        delete_obsolete_alarms(assembly, prefix=prefix)
        output = cdk.deploy(assembly)
    # Again, because the first deployment has only now created the bucket of the history.
    check_definitions(definitions, prefix=prefix)
    seconds = {_BOOTSTRAP: bootstrap_seconds, "deploy": time.monotonic() - started - bootstrap_seconds}
    cloudformation = client("cloudformation")
    deployment = read_deployment(cloudformation, prefix=prefix)
    existing = stack_states(cloudformation, prefix=prefix)
    obsolete = tuple(stack for stack in existing if not (assembly / f"{stack}.template.json").exists())
    return DeployResult(deployment=deployment, seconds=seconds, changed=tuple(output.changed), obsolete=obsolete)


def parse_settings(words: Sequence[str]) -> dict[str, str]:
    """Parse `NAME=VALUE` settings. The last value of a name counts.

    Raises `InputError` for any other form, and for what every command needs, not only `deploy`: prefix and environment.
    """
    settings = {}
    for word in words:
        name, _, value = word.partition("=")
        if not (name and "=" in word):
            raise InputError(f"--set: {word!r} is not of the form NAME=VALUE, such as outbound_allow=10.20.0.0/16")
        if name == "prefix":
            raise InputError(
                f"--set {word}: the other commands would not find this deployment: set the environment variable "
                f"SLACKWATER_PREFIX={value}, or slackwater:prefix in the context of cdk.json"
            )
        if name == "environment":
            raise InputError(
                f"--set {word}: the other commands would not find this deployment: use --environment {value}, and set "
                f"the environment variable {ENVIRONMENT_VARIABLE}={value} for the other commands"
            )
        settings[name] = value
    return settings


def check_definitions(project: Project, *, prefix: str) -> None:
    """Check that the project fits the data that is stored, if anything is deployed, and add it to the history.

    Raises `DefinitionError` that names each problem, and `CloudError`.
    """
    cloudformation, store = client("cloudformation"), S3ObjectStore(client("s3"))
    storage = deployed_storage(cloudformation, prefix=prefix)
    uri = deployed_project(cloudformation, prefix=prefix)
    if storage is None:
        return
    try:
        deployed = Project.model_validate_json(store.get(uri)) if uri else None
    except ValidationError:
        print_note("the deployed project has an older format: only the history of definitions is compared")
        deployed = None
    raw_bucket, warehouse_database = storage
    history = HistoryStore(
        store=store, glue=client("glue"), raw_bucket=raw_bucket, warehouse_database=warehouse_database
    )
    history.check(project, deployed=deployed)


def stop_changed_application(assembly: Path, *, stack: str) -> None:
    """Stop the Spark application if the synthesised stack changes it. Raises `CloudError` if it has unfinished jobs."""
    template = json.loads((assembly / f"{stack}.template.json").read_text(encoding="utf-8"))
    applications = SparkApplications(cloudformation=client("cloudformation"), emr=client("emr-serverless"))
    for application in applications.changed(stack, template):
        if applications.stop(application):
            print_note("the Spark application was stopped, because it is changed: the next job starts it again")


def release_removed_alarms(assembly: Path, *, stack: str) -> None:
    """Take alarms that the synthesised stacks no longer have out of the rules of the deployed composite alarms.

    Raises `SlackwaterError`.
    """
    templates = [json.loads(file.read_text(encoding="utf-8")) for file in assembly.glob("*.template.json")]
    resources = [resource for template in templates for resource in template.get("Resources", {}).values()]
    alarms = {item["Properties"]["AlarmName"] for item in resources if item["Type"] == "AWS::CloudWatch::Alarm"}
    rules = CompositeAlarmRules(cloudformation=client("cloudformation"), cloudwatch=client("cloudwatch"))
    rules.release(stack, alarms=alarms)


def delete_obsolete_alarms(assembly: Path, *, prefix: str) -> None:
    """Delete the stacks of alarms that are not synthesised any more, without asking: they hold no data.

    The alarms may be synthesised in another stack, with the same names. CloudFormation creates no alarm whose name
    exists, and a deletion after the deployment would delete the alarm of the other stack. Composite alarms are deleted
    first, because CloudWatch deletes no alarm that a rule names.

    Raises `CloudError` if a stack cannot be deleted.
    """
    names = [name for name in ALARM_STACKS if not (assembly / f"{prefix}-{name}.template.json").exists()]
    deletion = StackDeletion(cloudformation=client("cloudformation"), s3=client("s3"), sqs=client("sqs"))
    stacks = [stack for stack in deletion.stacks(prefix, names) if stack.has_only_alarms]
    if problems := list(deletion.problems(stacks)):
        raise CloudError("the alarms of these stacks cannot move to other stacks:\n" + "\n".join(problems))
    for stack in stacks:
        deletion.delete(stack)
        print_note(f"deleted the stack {stack.name}: its alarms move to another stack, or are no longer needed")


@dataclass(kw_only=True)
class CdkOutput:
    """Reads the CDK's output: shows the progress of each stack, and keeps what an error message needs."""

    progress: ProgressBoard
    current: str
    """The task that is running: `bootstrap`, `synthesis`, `deployment` before the first stack, or a stack."""
    changed: list[str] = field(default_factory=list)
    failure: str = ""
    """The first resource that failed, with CloudFormation's reason."""
    last_lines: list[str] = field(default_factory=list)

    def read_line(self, line: str) -> None:
        """Read one line of output."""
        if line.strip():
            self.last_lines = [*self.last_lines[1 - _LAST_LINES :], line]
        if match := _RESOURCE_EVENT.match(line):
            self._read_resource_event(match)
        elif match := _STACK_DONE.match(line):
            if not match["unchanged"]:
                self.changed.append(match["stack"])
            self.progress.update(match["stack"], TaskState.DONE, note="no changes" if match["unchanged"] else "")
        elif match := _BUILDING.match(line):
            self.progress.update(_SYNTHESIS, note=f"building {match['asset']}")
        elif match := _PUBLISHING.match(line):
            self.current = match["stack"]
            self.progress.update(match["stack"], note=f"uploading {match['asset']}")

    def _read_resource_event(self, match: re.Match[str]) -> None:
        self.current = match["stack"]
        # The events that follow the first failure only report that other resources are cancelled.
        if match["status"].endswith("_FAILED") and not self.failure:
            self.failure = f"{match['stack']}: {match['type']} {match['resource'].strip()}"
        if "ROLLBACK" in match["status"]:
            self.progress.update(self.current, note="rolling back")
        elif not self.failure:
            # The CDK counts some resources twice, so the first number may exceed the second.
            done, total = int(match["done"]), int(match["all"])
            self.progress.update(self.current, note=f"{min(done, total)} of {total} resources")


@dataclass(frozen=True, kw_only=True)
class Cdk:
    """The CDK's command line."""

    root: Path
    """The folder of `cdk.json`, if there is one, and of `.slackwater/`. The CDK runs there."""
    program: Path
    log: TextIO
    progress: ProgressBoard

    def bootstrap(self, qualifier: str) -> None:
        """Bootstrap account and region, unless they have a version that suffices.

        Raises `CloudError` when it fails, and `InputError` if the bootstrap has a name of its own: whoever has named it
        has also chosen its bucket, its key and its roles.
        """
        ssm = client("ssm")
        version = bootstrap_version(ssm, qualifier=qualifier)
        if version >= REQUIRED_BOOTSTRAP:
            return
        if qualifier != DEFAULT_QUALIFIER:
            found = f"version {version}" if version else "no version"
            raise InputError(
                f"the CDK bootstrap {qualifier!r} (@aws-cdk/core:bootstrapQualifier in cdk.json) has {found} in this "
                f"account and region, and version {REQUIRED_BOOTSTRAP} is needed: run `cdk bootstrap --qualifier "
                f"{qualifier}` with your --toolkit-stack-name and other options"
            )
        self.progress.update(_BOOTSTRAP)
        with translated("get the account id"):
            account = client("sts").get_caller_identity()["Account"]
        # Not in the app's folder: there, the CDK would first synthesise the app, which bootstrapping does not need.
        folder = self.root / ".slackwater"
        self._run(_BOOTSTRAP, ["bootstrap", f"aws://{account}/{ssm.meta.region_name}"], folder=folder)
        self.progress.update(_BOOTSTRAP, TaskState.DONE)

    def synthesise(self, project: Path, settings: Mapping[str, str]) -> Path:
        """Build a project's stacks; return the folder with their templates and no others.

        Raises `CloudError` with the reason.
        """
        self.progress.update(_SYNTHESIS)
        assembly = self.root / "cdk.out"
        # With -P, no folder `infra` in the current folder replaces ours.
        app = ["--app", shlex.join([sys.executable, "-P", "-m", "infra.app"]), "--output", str(assembly)]
        context = {**settings, "project": str(project.resolve())}
        options = [word for name, value in context.items() for word in ("--context", f"slackwater:{name}={value}")]
        self._run(_SYNTHESIS, ["synth", "--quiet", *app, *options], folder=self.root)
        # The CDK leaves the templates of stacks that the app no longer has.
        artifacts = json.loads((assembly / "manifest.json").read_text(encoding="utf-8"))["artifacts"].values()
        written = {artifact.get("properties", {}).get("templateFile") for artifact in artifacts}
        for template in assembly.glob("*.template.json"):
            if template.name not in written:
                template.unlink()
        self.progress.update(_SYNTHESIS, TaskState.DONE)
        return assembly

    def deploy(self, assembly: Path) -> CdkOutput:
        """Deploy all synthesised stacks; return the output. Raises `CloudError` naming the resource that failed."""
        arguments = ["deploy", "--all", "--require-approval", "never", "--progress", "events", "--app", str(assembly)]
        return self._run(_DEPLOYMENT, arguments, folder=self.root)

    def _run(self, task: str, arguments: Sequence[str], *, folder: Path) -> CdkOutput:
        """Run the CDK in a folder to its end, and return its output. `task` is the name of the first progress task."""
        output = CdkOutput(progress=self.progress, current=task)
        environment = node_environment(child_environment())
        modules = [str(deployed_files()), *filter(None, [environment.get("PYTHONPATH")])]
        # Without a clone, there is no `cdk.json` that turns off the telemetry.
        environment |= {"PYTHONPATH": os.pathsep.join(modules), "CDK_DISABLE_CLI_TELEMETRY": "true"}
        process = subprocess.Popen(  # noqa: S603 - our own tool, our own arguments
            [str(self.program), *arguments, *_QUIET],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )
        with process:
            try:
                for line in process.stdout or ():
                    self.log.write(line)
                    output.read_line(line.rstrip("\n"))
                code = process.wait()
            finally:
                # An interruption (Ctrl+C) must not leave the CDK running.
                if process.poll() is None:
                    process.terminate()
        if code:
            self.progress.update(output.current, TaskState.FAILED)
            reason = output.failure or "\n".join(output.last_lines)
            raise CloudError(f"cdk {arguments[0]} failed: {reason}\n(all its output: {self.log.name})")
        return output
