"""What carries the library to where it runs: a Lambda layer, and an archive for Spark jobs.

Both hold our own wheel and locked wheels, hashes checked, for the machine and the Python that will run them; neither
takes anything from this machine's environment. They are built the same from the same inputs, byte for byte, and kept
under `.slackwater/build/<digest of the inputs>/`, so that only a change costs time.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from infra.settings import Architecture, Settings
from slackwater.errors import SlackwaterError
from slackwater.project import Project

LAYER_LIMIT = 250 * 1024 * 1024
"""Bytes that Lambda takes of a function and its layers, unpacked."""

_LAYER_LOCK, _ARCHIVE_LOCK = "requirements/layer.txt", "requirements/archive.txt"
_LIBRARY = "src/slackwater"
_NOT_IN_RUNS = ("cli", "local")
"""Packages that decide no pipeline's output: a new command line runs no day again."""

_GLIBC = {"3.11": "manylinux_2_17", "3.12": "manylinux_2_28", "3.13": "manylinux_2_28"}
"""Lambda's Python 3.11 runs on Amazon Linux 2 (glibc 2.26), the later ones on Amazon Linux 2023."""
_SPARK_GLIBC = "manylinux_2_28"
"""EMR Serverless runs on Amazon Linux 2023."""
_MACHINES = {Architecture.X86_64: "x86_64", Architecture.ARM64: "aarch64"}

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
)
"""What no module of ours imports: installers' notes, headers, tests, Arrow's RPC and other formats, second copies."""

_EFFORT = 4
"""Of zlib: 6 takes twice as long for 4 % less."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest moment that a zip can name."""


@dataclass(frozen=True, kw_only=True)
class Artefacts:
    """What is built before synthesis."""

    layer: Path
    """A zip for Lambda, its tree under `python/`."""
    archive: Path
    """A tar.gz for Spark, whose root is a site-packages tree."""
    code: str
    """Digest of all code that decides a run's output."""


class BuildFailed(SlackwaterError):
    """An artefact could not be built."""


def build_artefacts(*, root: Path, settings: Settings) -> Artefacts:
    """Build, or find built, all artefacts of the repository at `root`. Raises `BuildFailed`."""
    builder = _Builder(root=root, settings=settings)
    return Artefacts(layer=builder.layer(), archive=builder.archive(), code=code_digest(root))


def write_project(*, root: Path, project: Project) -> Path:
    """Write the form of a project that Lambdas and Spark jobs read, and return its path."""
    content = project.model_dump_json(by_alias=True).encode()
    path = _build_folder(root) / hashlib.sha256(content).hexdigest()[:16] / "project.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def code_digest(root: Path) -> str:
    """SHA-256 of the library without its command line and local cloud, of the Spark jobs and their lock."""
    library = (
        path for path in _files(root / _LIBRARY) if path.relative_to(root / _LIBRARY).parts[0] not in _NOT_IN_RUNS
    )
    return _digest(root, [*library, *sorted((root / "glue_jobs").glob("*.py")), root / _ARCHIVE_LOCK])


def unpacked_size(archive: Path) -> int:
    """Bytes of a zip's content."""
    with zipfile.ZipFile(archive) as opened:
        return sum(entry.file_size for entry in opened.infolist())


@dataclass(frozen=True, kw_only=True)
class _Builder:
    root: Path
    settings: Settings

    def layer(self) -> Path:
        glibc = _GLIBC[self.settings.python_version]
        path = self._built("layer.zip", _LAYER_LOCK, glibc, lambda tree, out: pack_zip(tree, out, under="python/"))
        size = unpacked_size(path)
        if size > LAYER_LIMIT:
            raise BuildFailed(f"the layer takes {size} bytes unpacked, and Lambda takes at most {LAYER_LIMIT}")
        return path

    def archive(self) -> Path:
        return self._built("environment.tar.gz", _ARCHIVE_LOCK, _SPARK_GLIBC, pack_tar)

    def _built(self, name: str, lock: str, glibc: str, pack: Callable[[Path, Path], None]) -> Path:
        platform = f"{_MACHINES[self.settings.architecture]}-{glibc}"
        target = f"{platform} {self.settings.python_version} {self._can_compile} {_UNUSED}"
        inputs = [*_files(self.root / _LIBRARY), self.root / "pyproject.toml", self.root / lock, Path(__file__)]
        path = _build_folder(self.root) / _digest(self.root, inputs, target)[:16] / name
        if path.exists():
            return path
        sys.stderr.write(f"building {name}\n")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            tree, packed = Path(scratch, "tree"), Path(scratch, name)
            self._install(tree, lock, platform)
            self._add_library(tree, Path(scratch, "wheel"))
            _prune(tree)
            if self._can_compile:
                _compile(tree)
            pack(tree, packed)
            packed.replace(path)
        return path

    @property
    def _can_compile(self) -> bool:
        """Bytecode is of one Python version: for another one than this, the artefact goes without."""
        return self.settings.python_version == f"{sys.version_info.major}.{sys.version_info.minor}"

    def _install(self, tree: Path, lock: str, platform: str) -> None:
        self._run(
            *("pip", "install", "--quiet", "--no-config", "--target", str(tree), "--link-mode", "copy"),
            *("--python-platform", platform, "--python-version", self.settings.python_version),
            *("--only-binary", ":all:", "--no-deps", "--require-hashes", "--requirement", lock),
        )

    def _add_library(self, tree: Path, wheels: Path) -> None:
        self._run("build", "--quiet", "--wheel", "--out-dir", str(wheels))
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
            wheel.extractall(tree)  # noqa: S202 - our own wheel, built a moment ago

    def _run(self, *arguments: str) -> None:
        try:
            command = [find_uv_bin(), *arguments]
            subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True)  # noqa: S603
        except subprocess.CalledProcessError as error:
            raise BuildFailed(f"uv {' '.join(arguments[:2])} failed:\n{error.stderr.strip()}") from error


def _build_folder(root: Path) -> Path:
    return root / ".slackwater" / "build"


def _everything(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _files(folder: Path) -> list[Path]:
    return [path for path in _everything(folder) if "__pycache__" not in path.parts]


def _digest(root: Path, files: Iterable[Path], *more: str) -> str:
    digest = hashlib.sha256("\n".join(more).encode())
    for path in files:
        digest.update(f"\n{path.relative_to(root) if path.is_relative_to(root) else path.name}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _prune(tree: Path) -> None:
    for pattern in _UNUSED:
        for path in list(tree.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _compile(tree: Path) -> None:
    """Add bytecode: a function's folder is read-only, and a job's is new each time, so that none could keep its own."""
    words = ["-I", "-m", "compileall", "-q", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(tree), str(tree)]
    subprocess.run([sys.executable, *words], check=True)  # noqa: S603 - our own interpreter, our own tree


def pack_zip(tree: Path, out: Path, *, under: str) -> None:
    """Pack a tree under a folder, the same bytes for the same content."""
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=_EFFORT) as packed:
        for path in _everything(tree):
            entry = zipfile.ZipInfo(f"{under}{path.relative_to(tree)}", date_time=_EPOCH)
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, path.read_bytes())


def pack_tar(tree: Path, out: Path) -> None:
    """Pack a tree as tar.gz, the same bytes for the same content."""
    with (
        out.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=_EFFORT, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in _everything(tree):
            entry = tarfile.TarInfo(str(path.relative_to(tree)))
            entry.size, entry.mode = path.stat().st_size, 0o644
            with path.open("rb") as content:
                archive.addfile(entry, content)
