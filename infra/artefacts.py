"""Builds the artefacts that contain the library: a Lambda layer, and an archive for Spark jobs.

`python -m infra.artefacts` prepares them for the local cloud.

Both contain the library and locked wheels with verified hashes, for the Python, the processor and the C library that
run them, and nothing else of the local environment. Builds are reproducible byte for byte; only machines that lack the
target's Python leave out the bytecode. They are cached in the folder `build/<digest of the inputs>/` of the cache
(`slackwater.project.installation`).
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from uv import find_uv_bin

from infra import shared_objects
from infra.code_digest import code_digests, name_of
from infra.settings import Architecture, Settings, load_settings
from infra.shared_objects import Target, find_unloadable
from slackwater.errors import SlackwaterError
from slackwater.local import layout
from slackwater.project.installation import cache_folder, deployed_files, library_folder
from slackwater.project.project import CodeDigests, Project
from slackwater.steps.registry import ENTRY_POINTS, installed_steps

# Bytes, unpacked. Lambda's limit for a function with its layers is 250 MB.
LAYER_LIMIT = 250 * 1024 * 1024

_MACHINES = {Architecture.X86_64: "x86_64", Architecture.ARM64: "aarch64"}
# Unloadable files that an error names.
_NAMED_FILES = 5

# Parts of the wheels that the library never loads: installers' notes, headers, tests, Arrow's RPC and other formats,
# second copies of shared objects, pyiceberg's command line and its catalog of Hive.
_UNUSED = (
    "bin",
    "**/__pycache__",
    "**/*.dist-info/RECORD",
    "**/*.dist-info/INSTALLER",
    "**/*.dist-info/REQUESTED",
    "pyarrow/include",
    "pyarrow/src",
    "pyarrow/tests",
    "pyarrow/**/*.pxd",
    "pyarrow/**/*.pxi",
    "pyarrow/**/*.pyx",
    "pyarrow/**/*.h",
    "pyarrow/**/*.cc",
    "pyarrow/*flight*",
    "pyarrow/_substrait*",
    "pyarrow/substrait.py",
    "pyarrow/*gandiva*",
    "pyarrow/_cuda*",
    "pyarrow/cuda.py",
    "pyarrow/_dataset_orc*",
    "pyarrow/_orc*",
    "pyarrow/orc.py",
    "pyarrow/libarrow_python*.so",
    "pyarrow/*.so.*.*.*",
    "pyiceberg/cli",
    "rich",
    "pygments",
    "hive_metastore",
    "fb303",
    "zstandard/*_cffi*",
)

# Folders in the library's folder that are not part of the library.
_NOT_LIBRARY = frozenset({"__pycache__", "_deployed"})

# zlib's level 6 takes twice as long and saves 4 %.
_COMPRESSION_LEVEL = 4
# The earliest timestamp that a zip file can contain.
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


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


class BuildFailed(SlackwaterError):
    """An artefact could not be built."""


def build_artefacts(*, root: Path, settings: Settings) -> Artefacts:
    """Build all artefacts of the deployed files in `root`, or reuse cached ones. Raises `BuildFailed` when uv fails."""
    builder = ArtefactBuilder(root=root, settings=settings)
    with ThreadPoolExecutor() as pool:
        archive, layer = pool.map(lambda build: build(), (builder.archive, builder.layer))
    missing = {name for name, _ in installed_steps()} - archived_steps(archive)
    return Artefacts(layer=layer, archive=archive, code=code_digests(root), missing_steps=frozenset(missing))


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
    if settings.lambda_python == "3.11":
        return _target(settings, settings.lambda_python, wheels="manylinux_2_17", glibc=(2, 26))
    return _target(settings, settings.lambda_python, wheels="manylinux_2_28", glibc=(2, 34))


def spark_target(settings: Settings) -> Target:
    """Return what Spark jobs run on: Amazon Linux 2023."""
    return _target(settings, settings.spark_python, wheels="manylinux_2_28", glibc=(2, 34))


def _target(settings: Settings, python: str, *, wheels: str, glibc: tuple[int, int]) -> Target:
    return Target(python=python, machine=_MACHINES[settings.architecture], wheels=wheels, glibc=glibc)


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

    def archive(self) -> Path:
        """Build the archive for Spark jobs. Raises `BuildFailed` when a package cannot be built or loaded."""
        return self.build(_ARCHIVE, [self.root / package for package in self.settings.step_packages])

    def prepare(self) -> None:
        """Build and cache the packages of both artefacts, without our own code. Raises `BuildFailed`."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.packages, (_LAYER, _ARCHIVE)))

    def build(self, kind: _Kind, packages: Sequence[Path] = ()) -> Path:
        """Return the cached artefact of the same inputs, or pack the locked wheels, the library, and `packages`.

        `packages` are wheels and folders of packages. Raises `BuildFailed` when uv fails, when the target cannot load a
        shared object, or when two packages contain a file of the same name.
        """
        library = library_folder(self.root) / "slackwater"
        files = sorted_files(library)
        sources = [path for path in files if not _NOT_LIBRARY.intersection(path.relative_to(library).parts)]
        added = [file for package in packages for file in package_files(package)]
        path = self._cached(kind, kind.name, [*sources, *added])
        if path.exists():
            return path
        locked = self.packages(kind)
        with _scratch(path) as scratch:
            tree, wheels, packed = scratch / "tree", scratch / "wheel", scratch / kind.name
            shutil.copytree(library, tree / "slackwater", ignore=shutil.ignore_patterns(*_NOT_LIBRARY))
            for folder in (package for package in packages if package.is_dir()):
                self._run_uv("build", "--quiet", "--wheel", "--out-dir", str(wheels), str(folder))
            for file in (*sorted(wheels.glob("*.whl")), *(package for package in packages if package.is_file())):
                with zipfile.ZipFile(file) as wheel:
                    wheel.extractall(tree)
            self._finish(tree, kind)
            shutil.copyfile(locked, packed)
            pack_zip(tree, packed, under=kind.folder)
            # Renamed last, within one file system: an interrupted build leaves no artefact that looks complete.
            packed.replace(path)
        return path

    def packages(self, kind: _Kind) -> Path:
        """Return a cached zip with the locked wheels only. Building it takes long, and our own code changes more often.

        Raises `BuildFailed` when a package cannot be built or loaded.
        """
        path = self._cached(kind, f"packages-{kind.name}", [])
        if path.exists():
            return path
        target = kind.target(self.settings)
        # `slackwater deploy` shows this line.
        remark = f" without bytecode, so it loads more slowly: this machine has no Python {target.python}"
        sys.stderr.write(f"building {kind.name}{'' if find_python(target.python) else remark}\n")
        with _scratch(path) as scratch:
            tree, packed = scratch / "tree", scratch / kind.name
            tree.mkdir()
            self._run_uv(
                *("pip", "install", "--quiet", "--no-config", "--target", str(tree), "--link-mode", "copy"),
                *("--python-platform", f"{target.machine}-{target.wheels}", "--python-version", target.python),
                *("--only-binary", ":all:", "--no-deps", "--require-hashes", "--requirement", kind.lock),
            )
            self._finish(tree, kind)
            pack_zip(tree, packed, under=kind.folder)
            packed.replace(path)
        return path

    def _cached(self, kind: _Kind, name: str, inputs: Iterable[Path]) -> Path:
        """Return the path of a file in the cache, which contains a digest of its inputs."""
        target = kind.target(self.settings)
        compiled = find_python(target.python) is not None
        digest = hashlib.sha256(f"{target} {target.wheels} {compiled} {_UNUSED}".encode())
        for file in (*inputs, self.root / kind.lock, Path(__file__), Path(shared_objects.__file__)):
            digest.update(f"\n{name_of(self.root, file)}\n".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        return cache_folder(self.root) / "build" / digest.hexdigest()[:16] / name

    def _finish(self, tree: Path, kind: _Kind) -> None:
        """Remove what is not used, check what remains, and compile it."""
        target = kind.target(self.settings)
        remove_unused(tree)
        check_shared_objects(kind.name, tree, target, lock=kind.lock)
        if compiler := find_python(target.python):
            add_bytecode(tree, compiler)

    def _run_uv(self, *arguments: str) -> None:
        try:
            command = [find_uv_bin(), *arguments]
            subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True)  # noqa: S603
        except subprocess.CalledProcessError as error:
            raise BuildFailed(f"uv {' '.join(arguments[:2])} failed:\n{error.stderr.strip()}") from error


@contextmanager
def _scratch(artefact: Path) -> Iterator[Path]:
    """Create an empty folder next to an artefact, in the same file system."""
    artefact.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=artefact.parent) as folder:
        yield Path(folder)


def sorted_files(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted by path."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def package_files(package: Path) -> Iterator[Path]:
    """Yield the files that decide the content of a package: its wheel, or the files in its folder.

    Raises `BuildFailed` if it is neither a wheel nor a folder with a `pyproject.toml`.
    """
    if package.suffix == ".whl" and package.is_file():
        yield package
    elif (package / "pyproject.toml").is_file():
        for file in sorted_files(package):
            parts = file.relative_to(package).parts
            # Not the files of an environment, of git, or of an earlier build.
            if parts[0] not in {"build", "dist"} and not any(part[0] == "." or part == "__pycache__" for part in parts):
                yield file
    else:
        raise BuildFailed(f"step_packages: {package} is neither a wheel nor a folder with a pyproject.toml")


def remove_unused(tree: Path) -> None:
    """Remove the parts of installed wheels that the library never loads."""
    for pattern in _UNUSED:
        for path in list(tree.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def check_shared_objects(name: str, tree: Path, target: Target, *, lock: str) -> None:
    """Raise `BuildFailed` that names files in `tree`, the content of the artefact `name`, that `target` cannot load."""
    unloadable = list(find_unloadable(tree, target))
    if unloadable:
        files = "\n  ".join(unloadable[:_NAMED_FILES])
        raise BuildFailed(
            f"{target} cannot load {len(unloadable)} files of {name}, such as\n  {files}\n"
            f"In pyproject.toml, require versions of their packages with wheels for it, and write {lock} again with "
            "`make lock`; or change the setting lambda_python, spark_python or architecture"
        )


@functools.cache
def find_python(version: str) -> Path | None:
    """Return an interpreter on this machine that writes bytecode of the Python `version`; None if there is none."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    command = [
        find_uv_bin(),
        "python",
        "find",
        "--no-project",
        "--no-config",
        "--no-python-downloads",
        f"cpython{version}",
    ]
    found = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603
    return Path(found.stdout.strip()) if found.returncode == 0 else None


def add_bytecode(tree: Path, compiler: Path) -> None:
    """Compile all modules with the Python `compiler`, whose version is the only one that can read the result.

    Functions and jobs cannot cache bytecode: their folders are read-only or always new.
    """
    # By default, Python compares the timestamps of a module and its bytecode, and packing changes them.
    # `unchecked-hash` turns the comparison off: the files of an artefact never change.
    options = ("-q", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(tree))
    subprocess.run([str(compiler), "-I", "-m", "compileall", *options, str(tree)], check=True)  # noqa: S603


def pack_zip(tree: Path, out: Path, *, under: str) -> None:
    """Add a folder to a zip, with all names below `under`. The same content gives the same bytes.

    Raises `BuildFailed` if the zip has a file of the same name.
    """
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION_LEVEL) as packed:
        present = set(packed.namelist())
        for path in sorted_files(tree):
            entry = zipfile.ZipInfo(f"{under}{path.relative_to(tree)}", date_time=_ZIP_EPOCH)
            if entry.filename in present:
                raise BuildFailed(f"two packages contain {path.relative_to(tree)}: see the setting step_packages")
            entry.external_attr = 0o100644 << 16  # in the upper 16 bits: a regular file that everyone may read
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, path.read_bytes())


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
