"""The CDK's own command line, unmodified, with the progress of each stack."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from slackwater.aws.clients import client
from slackwater.aws.deployment import DEFAULT_QUALIFIER, REQUIRED_BOOTSTRAP, bootstrap_version
from slackwater.aws.failures import translated
from slackwater.aws.profiles import child_environment
from slackwater.deploy.tools import node_environment
from slackwater.errors import CloudError, InputError
from slackwater.progress import ProgressBoard, TaskState
from slackwater.project.installation import deployed_files

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
_BOOTSTRAP, _SYNTHESIS, _DEPLOYMENT = "bootstrap", "synthesis", "deployment"
_QUIET = ("--no-color", "--no-notices", "--no-version-reporting")
# Lines of output in the message of a failure that named no resource.
_LAST_LINES = 12


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
        remove_former(assembly)
        (assembly / ".gitignore").write_text("*\n", encoding="utf-8")
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


def remove_uploaded(assembly: Path) -> None:
    """Remove the zips of a deployed assembly: 133 MB that AWS has, and that each synthesis writes again."""
    for path in assembly.glob("asset.*.zip"):
        path.unlink()


def remove_former(assembly: Path) -> None:
    """Remove what the CDK leaves of earlier syntheses: templates of stacks, and assets, which no stack has any more."""
    artifacts = json.loads((assembly / "manifest.json").read_text(encoding="utf-8"))["artifacts"].values()
    files = {artifact.get("properties", {}).get(key) for artifact in artifacts for key in ("templateFile", "file")}
    for manifest in assembly.glob("*.assets.json"):
        if manifest.name in files:
            assets = json.loads(manifest.read_text(encoding="utf-8"))["files"].values()
            files |= {asset["source"]["path"] for asset in assets}
    for path in (*assembly.glob("*.template.json"), *assembly.glob("asset.*")):
        if path.name not in files:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
