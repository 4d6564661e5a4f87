"""Packs a folder of installed packages into a zip: only what is used, for the Python and the machine that load it."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from uv import find_uv_bin

from slackwater.errors import SlackwaterError

# Unloadable files that an error names.
_NAMED_FILES = 5

# Parts of the wheels that the library never loads: installers' notes, headers, stubs, tests, Arrow's RPC, encryption
# and other formats, second copies of shared objects, pyiceberg's command line and its catalog of Hive.
UNUSED = (
    "bin",
    "**/__pycache__",
    "**/*.pyi",
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
    "pyarrow/*parquet_encryption*",
    "pyarrow/parquet/encryption.py",
    "pyarrow/_pyarrow_cpp_tests*",
    "pyarrow/libarrow_python*.so",
    "pyarrow/*.so.*.*.*",
    "pyiceberg/cli",
    "rich",
    "pygments",
    "hive_metastore",
    "fb303",
    "zstandard/*_cffi*",
)

# zlib's level 6 takes twice as long and saves 4 %.
_COMPRESSION_LEVEL = 4
# The earliest timestamp that a zip file can contain.
_ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)


_SHARED_OBJECT = re.compile(r"\.so(\.\d+)*$")
# CPython imports an extension by its suffix: `.cpython-313-x86_64-linux-gnu.so`, `.abi3.so` or `.so`.
_ABI_TAG = re.compile(r"\.cpython-(\w+)-")
_GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)")
_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}


class BuildFailed(SlackwaterError):
    """An artefact could not be built."""


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
    for pattern in UNUSED:
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


@dataclass(frozen=True, kw_only=True)
class Target:
    """What an artefact runs on."""

    python: str
    """`3.13`."""
    machine: str
    """`x86_64` or `aarch64`."""
    wheels: str
    """The newest wheels that are installed for it, as a platform tag: `manylinux_2_28`."""
    glibc: tuple[int, int]
    """Version of the C library."""

    def __str__(self) -> str:
        return f"Python {self.python} on {self.machine} with glibc {_dotted(self.glibc)}"


def find_unloadable(tree: Path, target: Target) -> Iterator[str]:
    """Yield a sentence for each shared object below `tree` that the target cannot load, and why."""
    for path in sorted(tree.rglob("*.so*")):
        if _SHARED_OBJECT.search(path.name) and (needs := _unmet_need(path, target)):
            yield f"{path.relative_to(tree)} {needs}"


def _unmet_need(path: Path, target: Target) -> str:
    """Return the first thing that a shared object needs and the target lacks; empty if there is none."""
    tag = _ABI_TAG.search(path.name)
    if tag and tag[1] != target.python.replace(".", ""):
        return f"is built for CPython {tag[1][0]}.{tag[1][1:]}"
    with path.open("rb") as file:
        try:
            elf = ELFFile(file)
        except ELFError as error:
            return f"is no ELF file: {error}"
        machine = _MACHINES.get(elf["e_machine"], elf["e_machine"])
        if machine != target.machine:
            return f"is built for {machine}"
        glibc = max(_glibc_versions(elf), default=(0, 0))
    return f"needs glibc {_dotted(glibc)}" if glibc > target.glibc else ""


def _glibc_versions(elf: ELFFile) -> Iterator[tuple[int, int]]:
    """Yield the versions of glibc whose symbols a shared object needs."""
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, versions in section.iter_versions():
                for version in versions:
                    if match := _GLIBC.match(version.name):
                        yield int(match[1]), int(match[2])


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


@functools.cache
def find_python(version: str) -> Path | None:
    """Return an interpreter on this machine that writes bytecode of the Python `version`; None if there is none."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    options = ("--no-project", "--no-config", "--no-python-downloads")
    command = [find_uv_bin(), "python", "find", *options, f"cpython{version}"]
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
