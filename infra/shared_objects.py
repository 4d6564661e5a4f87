"""Checks that the shared objects of an artefact load where it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

_SHARED_OBJECT = re.compile(r"\.so(\.\d+)*$")
# CPython imports an extension by its suffix: `.cpython-313-x86_64-linux-gnu.so`, `.abi3.so` or `.so`.
_ABI_TAG = re.compile(r"\.cpython-(\w+)-")
_GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)")
_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}


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
