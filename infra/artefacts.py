"""Builds the artefacts that contain the library: a Lambda layer, and an archive for Spark jobs.

`python -m infra.artefacts` prepares them for the local cloud.

Both contain the library and locked wheels with verified hashes, for the Python, the processor and the C library that
run them, and nothing else of the local environment. Builds are reproducible byte for byte; only machines that lack the
target's Python leave out the bytecode. They are cached in the folder `build/<digest of the inputs>/` of the cache
(`slackwater.project.installation`).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from uv import find_uv_bin

from infra import packing
from infra.code_digest import code_digests, name_of
from infra.packing import (
    UNUSED,
    BuildFailed,
    Target,
    add_bytecode,
    check_shared_objects,
    find_python,
    pack_zip,
    package_files,
    remove_unused,
    sorted_files,
)
from infra.settings import Architecture, Settings, load_settings
from slackwater.errors import SlackwaterError
from slackwater.local import layout
from slackwater.project.installation import cache_folder, deployed_files, library_folder, remove_unused_folders
from slackwater.project.project import CodeDigests, Project
from slackwater.steps.registry import ENTRY_POINTS, installed_steps

# Bytes, unpacked. Lambda's limit for a function with its layers is 250 MB.
LAYER_LIMIT = 250 * 1024 * 1024

# Lock files by a text that each pipeline contains which needs their packages.
_OPTIONAL = {"snowflake://": "requirements/archive-snowflake.txt"}
_MACHINES = {Architecture.X86_64: "x86_64", Architecture.ARM64: "aarch64"}
# Folders in the library's folder that are not part of the library.
_NOT_LIBRARY = frozenset({"__pycache__", "_deployed"})


@dataclass(frozen=True, kw_only=True)
class Artefacts:
    """The files that are built before synthesis."""

    layer: Path
    """A zip for Lambda, with all files under `python/`."""
    archive: Path
    """A zip for Spark. Its root is a site-packages folder."""
    code: CodeDigests
    """Digests of the code that decides a run's output."""
    missing_steps: frozenset[str] = frozenset()
    """Steps of installed packages that the archive lacks."""


def build_artefacts(*, root: Path, settings: Settings, locks: Sequence[str] = ()) -> Artefacts:
    """Build all artefacts of the deployed files in `root`, or reuse cached ones. Raises `BuildFailed` when uv fails.

    The packages of `locks`, names of lock files in `root`, are added to the archive.
    """
    builder = ArtefactBuilder(root=root, settings=settings)
    with ThreadPoolExecutor() as pool:
        archive, layer = pool.map(lambda build: build(), (lambda: builder.archive(locks), builder.layer))
    missing = {name for name, _ in installed_steps()} - archived_steps(archive)
    return Artefacts(layer=layer, archive=archive, code=code_digests(root), missing_steps=frozenset(missing))


def optional_locks(project: Path) -> list[str]:
    """Return the names of the lock files of packages that only some pipelines need, and those of `project` do."""
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in project.glob("pipelines/*.yaml")]
    return [lock for needed_by, lock in _OPTIONAL.items() if any(needed_by in text for text in texts)]


def archived_steps(archive: Path) -> set[str]:
    """Return the names of the steps that packages in an archive add."""
    packages = metadata.distributions(path=[str(archive)])
    return {entry.name for package in packages for entry in package.entry_points if entry.group == ENTRY_POINTS}


def write_project(*, root: Path, project: Project) -> Path:
    """Write the `project.json` that Lambda functions and Spark jobs read; return its path."""
    content = project.model_dump_json(by_alias=True).encode()
    path = cache_folder(root) / "build" / hashlib.sha256(content).hexdigest()[:16] / "project.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def lambda_target(settings: Settings) -> Target:
    """Return what functions run on: Python 3.11 on Amazon Linux 2, later ones on Amazon Linux 2023."""
    target = _amazon_linux_2023(settings, settings.lambda_python)
    return replace(target, wheels="manylinux_2_17", glibc=(2, 26)) if settings.lambda_python == "3.11" else target


def spark_target(settings: Settings) -> Target:
    """Return what Spark jobs run on: Amazon Linux 2023."""
    return _amazon_linux_2023(settings, settings.spark_python)


def _amazon_linux_2023(settings: Settings, python: str) -> Target:
    return Target(python=python, machine=_MACHINES[settings.architecture], wheels="manylinux_2_28", glibc=(2, 34))


def unpacked_size(archive: Path) -> int:
    """Return the total size of a zip's files in bytes, uncompressed."""
    with zipfile.ZipFile(archive) as opened:
        return sum(entry.file_size for entry in opened.infolist())


class _Kind(NamedTuple):
    """What is built."""

    name: str
    """The name of the file."""
    lock: str
    """The lock file, relative to the folder of deployed files."""
    folder: str
    """The folder of all files in the zip."""
    target: Callable[[Settings], Target]


_LAYER = _Kind("layer.zip", "requirements/layer.txt", "python/", lambda_target)
# Spark unpacks an archive by the end of its name, and the CDK's name for `environment.tar.gz` ends with `.gz` only,
# which Spark would not unpack.
_ARCHIVE = _Kind("environment.zip", "requirements/archive.txt", "", spark_target)


@dataclass(frozen=True, kw_only=True)
class ArtefactBuilder:
    """Builds artefacts for the Python versions and the architecture of the settings."""

    root: Path
    """The folder of deployed files: a clone, or a part of an installed wheel."""
    settings: Settings

    def layer(self) -> Path:
        """Build the Lambda layer. Raises `BuildFailed`, also for a layer that is too large."""
        path = self.build(_LAYER)
        size = unpacked_size(path)
        if size > LAYER_LIMIT:
            raise BuildFailed(
                f"the layer has {size} bytes unpacked; Lambda's limit is {LAYER_LIMIT}: remove a dependency from "
                f"{_LAYER.lock}"
            )
        return path

    def archive(self, locks: Sequence[str] = ()) -> Path:
        """Build the archive for Spark jobs, with the packages of more lock files.

        Raises `BuildFailed` when a package cannot be built or loaded.
        """
        return self.build(_ARCHIVE, [self.root / package for package in self.settings.step_packages], locks)

    def prepare(self) -> None:
        """Build and cache the packages of both artefacts, without our own code. Raises `BuildFailed`."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.packages, (_LAYER, _ARCHIVE)))

    def build(self, kind: _Kind, packages: Sequence[Path] = (), locks: Sequence[str] = ()) -> Path:
        """Return the cached artefact of the same inputs, or pack the locked wheels, the library, and `packages`.

        `packages` are wheels and folders of packages, `locks` names of more lock files. Raises `BuildFailed` when uv
        fails, when the target cannot load a shared object, or when two packages contain a file of the same name.
        """
        library = library_folder(self.root) / "slackwater"
        files = sorted_files(library)
        sources = [path for path in files if not _NOT_LIBRARY.intersection(path.relative_to(library).parts)]
        added = [file for package in packages for file in package_files(package)]

        def fill(tree: Path) -> Path:
            locked, wheels = self.packages(kind), tree.parent / "wheel"
            for lock in locks:
                self._install(lock, tree, kind.target(self.settings))
            shutil.copytree(library, tree / "slackwater", ignore=shutil.ignore_patterns(*_NOT_LIBRARY))
            for folder in (package for package in packages if package.is_dir()):
                self._run_uv("build", "--quiet", "--wheel", "--out-dir", str(wheels), str(folder))
            for file in (*sorted(wheels.glob("*.whl")), *(package for package in packages if package.is_file())):
                with zipfile.ZipFile(file) as wheel:
                    wheel.extractall(tree)
            return locked

        return self._cached(kind, kind.name, [*sources, *added, *(self.root / lock for lock in locks)], fill)

    def packages(self, kind: _Kind) -> Path:
        """Return a cached zip with the locked wheels only. Building it takes long, and our own code changes more often.

        Raises `BuildFailed` when a package cannot be built or loaded.
        """
        target = kind.target(self.settings)

        def fill(tree: Path) -> None:
            # `slackwater deploy` shows this line.
            remark = f" without bytecode, so it loads more slowly: this machine has no Python {target.python}"
            sys.stderr.write(f"building {kind.name}{'' if find_python(target.python) else remark}\n")
            self._install(kind.lock, tree, target)

        return self._cached(kind, f"packages-{kind.name}", [], fill)

    def _cached(self, kind: _Kind, name: str, inputs: Iterable[Path], fill: Callable[[Path], Path | None]) -> Path:
        """Return the cached zip of these inputs, or make it.

        `fill` writes its files into a folder, and returns a zip to which they are added, if there is one.
        """
        target = kind.target(self.settings)
        compiler = find_python(target.python)
        digest = hashlib.sha256(f"{target} {target.wheels} {compiler is not None} {UNUSED}".encode())
        for file in (*inputs, self.root / kind.lock, Path(__file__), Path(packing.__file__)):
            digest.update(f"\n{name_of(self.root, file)}\n".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        path = cache_folder(self.root) / "build" / digest.hexdigest()[:16] / name
        if path.exists():
            os.utime(path.parent)
            return path
        remove_unused_folders(path.parents[1])
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            tree, packed = Path(folder, "tree"), Path(folder, kind.name)
            tree.mkdir()
            base = fill(tree)
            remove_unused(tree)
            check_shared_objects(kind.name, tree, target, lock=kind.lock)
            if compiler:
                add_bytecode(tree, compiler)
            if base:
                shutil.copyfile(base, packed)
            pack_zip(tree, packed, under=kind.folder)
            # Renamed last, within one file system: an interrupted build leaves no artefact that looks complete.
            packed.replace(path)
        return path

    def _install(self, lock: str, tree: Path, target: Target) -> None:
        self._run_uv(
            *("pip", "install", "--quiet", "--no-config", "--target", str(tree), "--link-mode", "copy"),
            *("--python-platform", f"{target.machine}-{target.wheels}", "--python-version", target.python),
            *("--only-binary", ":all:", "--no-deps", "--require-hashes", "--requirement", lock),
        )
        (tree / ".lock").unlink(missing_ok=True)  # uv's own

    def _run_uv(self, *arguments: str) -> None:
        try:
            command = [find_uv_bin(), *arguments]
            subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True)  # noqa: S603
        except subprocess.CalledProcessError as error:
            raise BuildFailed(f"uv {' '.join(arguments[:2])} failed:\n{error.stderr.strip()}") from error


def main() -> int:
    """Prepare the artefacts for the local cloud, so that its first deployment takes less time."""
    local = {"lambda_python": layout.PYTHON, "spark_python": layout.PYTHON, "architecture": layout.ARCHITECTURE}
    try:
        settings = load_settings({f"slackwater:{name}": value for name, value in local.items()})
        ArtefactBuilder(root=deployed_files(), settings=settings).prepare()
    except SlackwaterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
