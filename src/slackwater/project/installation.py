"""Where this installation has the files that it deploys, and where it keeps what it downloads and builds.

Installed from a clone, the package uses the clone for both. A wheel contains the files (`hatch_build.py`), and its
downloads are in the user's cache.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# The folder of the files in an installed wheel.
_IN_PACKAGE = "_deployed"
_UNUSED_SECONDS = 7 * 86_400


def deployed_files() -> Path:
    """Return the folder that contains `infra/`, `lambdas/`, `requirements/` and so on: a clone, or part of a wheel."""
    package = Path(__file__).resolve().parents[1]
    return package / _IN_PACKAGE if (package / _IN_PACKAGE).is_dir() else package.parents[1]


def is_clone(files: Path) -> bool:
    """Return whether a folder of deployed files is a clone, and not part of an installed wheel."""
    return files.name != _IN_PACKAGE


def library_folder(files: Path) -> Path:
    """Return the folder that contains the package `slackwater` which belongs to a folder of deployed files."""
    return files / "src" if is_clone(files) else files.parents[1]


def cache_folder(files: Path) -> Path:
    """Return the folder of downloads and builds, which all projects share.

    It is the environment variable SLACKWATER_CACHE if it is set, else `.slackwater` in the clone, else `slackwater` in
    the user's cache folder.
    """
    if folder := os.environ.get("SLACKWATER_CACHE"):
        return Path(folder).resolve()
    if is_clone(files):
        return files / ".slackwater"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "slackwater"


def remove_unused_folders(cache: Path) -> None:
    """Remove the folders in a cache that have not been used for seven days. Whoever uses one sets its time to now."""
    oldest = time.time() - _UNUSED_SECONDS
    for folder in cache.glob("*/"):
        if folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)


def pipeline_frame() -> dict[str, Any]:
    """Return the state machine that `slackwater.pipeline.compile` completes with the stages of a pipeline."""
    frame: dict[str, Any] = json.loads((deployed_files() / "step_functions" / "pipeline.asl.json").read_text("utf-8"))
    return frame


@contextmanager
def locked(cache: Path) -> Iterator[None]:
    """Create a cache folder, and wait until no other process installs something into it."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_state_folder(root: Path) -> Path:
    """Create the folder `.slackwater` in `root`, which git ignores, and return it."""
    folder = root / ".slackwater"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    return folder
