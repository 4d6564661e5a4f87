"""Where a command works: the folder that holds `.slackwater`, the project, and the cloud that it talks to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import slackwater

if TYPE_CHECKING:
    from slackwater.project import Project

EXAMPLE = Path("examples") / "nyc_flights"


@dataclass(frozen=True)
class Place:
    """What a command line's options and the current folder decide."""

    root: Path
    """The repository: it holds `cdk.json` and `.slackwater/`."""
    project: Path

    @property
    def state(self) -> Path:
        """Where the local cloud and the command line keep what is theirs."""
        return self.root / ".slackwater"


def find_place(project: Path | None) -> Place:
    """Return where to work.

    The project is `--project`, else the current folder if it has `sources/`, else the repository's example. The root
    is the nearest folder upward from there with a `cdk.json`, then upward from the current folder, then the
    repository from which this package is installed, and the current folder when there is none of these.
    """
    here = Path.cwd()
    given = project.resolve() if project else None
    root = _upward(given) if given else None
    root = root or _upward(here) or _repository() or here
    if given is None:
        given = here if (here / "sources").is_dir() else root / EXAMPLE
    return Place(root=root, project=given)


def load(place: Place) -> Project:
    """Read and check the place's project. Raises `DefinitionError` naming file and field."""
    from slackwater.project import load_project

    return load_project(place.project)


def reach_cloud(place: Place) -> str:
    """Let this process and its children talk to the right cloud, and return its name for people.

    `AWS_ENDPOINT_URL` decides when it is set; else a live local cloud of the root; else AWS proper.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        return endpoint
    if (place.state / "cloud.json").exists():
        from slackwater.local import cloud

        found = cloud.status(place.root)
        if found:
            os.environ.update(found.environment())
            return f"the local cloud at {found.endpoint}"
    return "AWS"


def _upward(start: Path) -> Path | None:
    return next((folder for folder in (start, *start.parents) if (folder / "cdk.json").is_file()), None)


def _repository() -> Path | None:
    """Return the checkout that this package is imported from, if it is one."""
    folder = Path(slackwater.__file__).resolve().parents[2]
    return folder if (folder / "cdk.json").is_file() else None
