"""The code of steps that installed packages add: which files it is, and importing it again after a change."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from contextlib import suppress
from pathlib import Path

from slackwater.steps.registry import installed_steps


class StepCode:
    """The Python files of the packages that add steps. The library's own steps do not change meanwhile."""

    def __init__(self) -> None:
        self._packages = {name: module.partition(".")[0] for name, module in installed_steps()}
        self._folders = {package: _folders_of(package) for package in set(self._packages.values())}
        self._digests = {package: self._digest(package) for package in self._folders}

    def files(self) -> list[Path]:
        """Return the files of all packages, in order."""
        return [path for package in sorted(self._folders) for path in self._files_of(package)]

    def reload(self) -> None:
        """Forget the modules of each package that has changed: the next use of a step imports them again."""
        for package, before in self._digests.items():
            self._digests[package] = self._digest(package)
            if self._digests[package] != before:
                for name in [name for name in sys.modules if name.partition(".")[0] == package]:
                    del sys.modules[name]
        importlib.invalidate_caches()

    def digest_of(self, step: str) -> str:
        """Return the digest of the package that adds a step; empty for a step of the library."""
        return self._digests.get(self._packages.get(step, ""), "")

    def _files_of(self, package: str) -> list[Path]:
        return sorted(
            file
            for place in self._folders[package]
            for file in (place.rglob("*.py") if place.is_dir() else [place] if place.is_file() else [])
        )

    def _digest(self, package: str) -> str:
        digest = hashlib.sha256()
        for path in self._files_of(package):
            with suppress(FileNotFoundError):  # an editor is replacing it
                digest.update(f"{path}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()


def _folders_of(package: str) -> list[Path]:
    """Return the folders of a package, or the file of a module; nothing if it is not installed as Python files."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return []
    places = spec.submodule_search_locations or ([spec.origin] if spec.origin else [])
    return [Path(place) for place in places]
