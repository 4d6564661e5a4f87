"""Where a client works: the root folder that holds `.slackwater`, the project, and the cloud."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from slackwater.errors import InputError
from slackwater.project.environments import DEFAULT_PREFIX, ENVIRONMENT_VARIABLE, environment_values
from slackwater.project.installation import deployed_files, is_clone

if TYPE_CHECKING:
    from slackwater.project.project import Project

AWS_VARIABLE = "SLACKWATER_AWS"
"""The environment variable that chooses AWS in a project that has used a local cloud."""
EXAMPLE = Path("examples") / "nyc_flights"


@dataclass(frozen=True)
class Workspace:
    """The folders that a client works with."""

    root: Path
    """The folder of `.slackwater/`, and of `cdk.json` if there is one: the project, or the clone that it is in."""
    project: Path
    chosen_environment: str | None = None
    """The environment of the option `--environment`."""

    @property
    def state(self) -> Path:
        """Folder in which the local cloud and the command line keep their state."""
        return self.root / ".slackwater"

    @property
    def environment(self) -> str | None:
        """The environment that every command works with; None if none is chosen.

        It is `chosen_environment` if it is set, else the environment variable SLACKWATER_ENVIRONMENT, else
        `slackwater:environment` in the context of cdk.json. Raises `InputError` if cdk.json is not valid.
        """
        variable = os.environ.get(ENVIRONMENT_VARIABLE)
        return self.chosen_environment or variable or self._cdk_context("slackwater:environment") or None

    @property
    def prefix(self) -> str:
        """Prefix of the names of the deployed stacks; every command reads it in the same way.

        It is the environment variable SLACKWATER_PREFIX if it is set, else that of the environment, else
        `slackwater:prefix` in the context of cdk.json, else `slackwater`. Raises `InputError` if cdk.json is not valid,
        if the environment is unknown, and if cdk.json gives all environments the same prefix.
        """
        if prefix := os.environ.get("SLACKWATER_PREFIX"):
            return prefix
        environment, prefix = self.environment, self._cdk_context("slackwater:prefix")
        if environment is None:
            return prefix or DEFAULT_PREFIX
        if prefix:
            raise InputError(
                f"cdk.json: slackwater:prefix: with an environment ({environment}) the prefix {prefix!r} would be that "
                "of every environment: remove it, or move it to slackwater:environments, to one environment each"
            )
        return str(environment_values(environment, self._context().get("slackwater:environments", {}))["prefix"])

    @property
    def bootstrap_qualifier(self) -> str:
        """Qualifier of the CDK bootstrap: `@aws-cdk/core:bootstrapQualifier` in the context of cdk.json, or the CDK's.

        Raises `InputError` if cdk.json is not valid.
        """
        from slackwater.aws.deployment import DEFAULT_QUALIFIER

        return self._cdk_context("@aws-cdk/core:bootstrapQualifier", DEFAULT_QUALIFIER)

    @property
    def target(self) -> dict[str, str | None]:
        """The settings `account` and `region` of cdk.json: where the deployment belongs. Raises `InputError`.

        Each is `slackwater:NAME` in the context, else the value of the environment, None without both.
        """
        context, environment = self._context(), self.environment
        values = environment_values(environment, context.get("slackwater:environments", {})) if environment else {}
        settings = {name: context.get(f"slackwater:{name}", values.get(name)) for name in ("account", "region")}
        return {name: None if value is None else str(value) for name, value in settings.items()}

    def target_name(self, cloud: str, *, account: str, region: str) -> str:
        """Return for people where commands write: the cloud, and what is not the same for each deployment in it."""
        parts = [f"AWS account {account}", f"region {region}"] if cloud == "AWS" else [cloud]
        values = {"environment": self.environment, "prefix": self.prefix if self.prefix != DEFAULT_PREFIX else None}
        return ", ".join([*parts, *(f"{name} {value}" for name, value in values.items() if value)])

    def _cdk_context(self, name: str, default: str = "") -> str:
        return str(self._context().get(name, default))

    def _context(self) -> dict[str, Any]:
        file = self.root / "cdk.json"
        if not file.exists():
            return {}
        try:
            return dict(json.loads(file.read_text(encoding="utf-8")).get("context", {}))
        except (ValueError, AttributeError, TypeError) as error:
            raise InputError(f"{file} is not a JSON object with a context: {error}") from error

    def load_project(self) -> Project:
        """Read and check the whole project. Raises `DefinitionError` naming file and field."""
        from slackwater.project.project import load_project

        return load_project(self.project)

    def load_definitions(self) -> Project:
        """Read the project's sources and pipelines without checking the parameters of steps.

        Raises `DefinitionError` naming file and field.
        """
        from slackwater.project.project import load_definitions

        return load_definitions(self.project)

    def connect_cloud(self) -> str:
        """Choose the cloud for this process and its children; return the cloud's name for messages.

        The cloud is the endpoint in `AWS_ENDPOINT_URL` if it is set, else the root's local cloud if it runs, else AWS.
        With the environment variable SLACKWATER_AWS, it is AWS also while the local cloud runs. For AWS, the profile
        may ask for an MFA code on the terminal.

        Raises `InputError` if the root has used a local cloud and none runs, unless AWS is chosen: with SLACKWATER_AWS,
        SLACKWATER_ENVIRONMENT or `--environment`.
        """
        endpoint = os.environ.get("AWS_ENDPOINT_URL")
        if endpoint:
            return endpoint
        # Without this file there is no local cloud, and commands that use AWS need not wait for the slow import.
        if (self.state / "cloud.json").exists() and not os.environ.get(AWS_VARIABLE):
            from slackwater.local import cloud

            local_cloud = cloud.status(self.root)
            if local_cloud:
                environment = local_cloud.environment()
                # Of two settings with one name, the last counts: the one of the user.
                settings = f"{environment['SLACKWATER_SET']} {os.environ.get('SLACKWATER_SET', '')}".strip()
                os.environ.update(environment | {"SLACKWATER_SET": settings})
                return f"the local cloud at {local_cloud.endpoint}"
            if not (self.chosen_environment or os.environ.get(ENVIRONMENT_VARIABLE)):
                raise InputError(
                    "no local cloud runs here: start it with `slackwater local up`, or add --aws to use AWS (for an "
                    f"environment, set {ENVIRONMENT_VARIABLE}, or give --environment to a command that has it)"
                )
        from slackwater.aws.profiles import use_terminal

        use_terminal()
        return "AWS"

    def save_local_cloud(self) -> None:
        """Have the local cloud that `connect_cloud` has chosen write all that it has answered to disk.

        A kill then keeps it. Nothing happens for AWS.
        """
        if uses_local_cloud():
            from slackwater.local import cloud

            cloud.save(os.environ["AWS_ENDPOINT_URL"])


def uses_local_cloud() -> bool:
    """Return whether the cloud of this process, which `Workspace.connect_cloud` has chosen, is on this machine."""
    return urlsplit(os.environ.get("AWS_ENDPOINT_URL", "")).hostname in {"127.0.0.1", "localhost"}


def find_workspace(project: Path | None) -> Workspace:
    """Return the workspace for the option `--project` and the current folder.

    The project is `--project`, else the current folder if it is one (it has `sources/` or `pipelines/`), else the
    clone's example. The root is the nearest folder with a `cdk.json` among the project given by `--project` and its
    parents, else among the current folder and its parents, else the project, else the clone that this package is
    installed from: a project outside of a clone has a cloud of its own.
    """
    current, files = Path.cwd(), deployed_files()
    if project is not None:
        project = project.resolve()
    elif is_project(current):
        project = current
    configured = (f for f in (*_with_parents(project), *_with_parents(current)) if (f / "cdk.json").is_file())
    root = next(configured, None) or project or (files if is_clone(files) else current)
    return Workspace(root=root, project=project or (root / EXAMPLE if is_clone(files) else current))


def is_project(folder: Path) -> bool:
    """Return whether a folder is a project: whether it has sources or pipelines."""
    return any((folder / name).is_dir() for name in ("sources", "pipelines"))


def project_of(file: Path, project: Path | None) -> Path:
    """Return the folder of the project around a pipeline: `--project`, or else the one that the file is in."""
    folder = file.resolve().parent
    if project is None and folder.name == "pipelines":
        return folder.parent
    return find_workspace(project).project


def _with_parents(folder: Path | None) -> tuple[Path, ...]:
    return (folder, *folder.parents) if folder else ()
