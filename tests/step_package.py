"""A package that adds a step outside of the project: the example of docs/steps/README.md."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slackwater.steps import registry

_PAGE = (Path(__file__).resolve().parents[1] / "docs" / "steps" / "README.md").read_text(encoding="utf-8")
_BLOCKS = dict(re.findall(r"```(python|toml)\n(.*?)```", _PAGE, re.DOTALL))
MODULE, PYPROJECT = _BLOCKS["python"], _BLOCKS["toml"]
"""The last example of each type on the page."""


def write_package(folder: Path) -> Path:
    """Write the package's source to a folder, and return the folder."""
    package = folder / "acme_steps"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "in_celsius.py").write_text(MODULE)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return folder


@contextmanager
def installed_package(folder: Path) -> Iterator[None]:
    """Install the package into a folder on Python's path, for as long as the `with` block runs."""
    information = write_package(folder) / "acme_steps-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-steps\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[slackwater.steps]\nin_celsius = acme_steps.in_celsius\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        registry.registry.cache_clear()
        try:
            yield
        finally:
            registry.registry.cache_clear()
            for name in [name for name in sys.modules if name.partition(".")[0] == "acme_steps"]:
                del sys.modules[name]


def write_site(folder: Path, package: Path) -> Path:
    """Write a folder in which Python finds a package of steps as if it were installed; return the folder."""
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    entries = project["entry-points"][registry.ENTRY_POINTS]
    information = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    information.mkdir(parents=True)
    for module in {module.partition(".")[0] for module in entries.values()}:
        (folder / module).symlink_to(package / module)
    names = f"Name: {project['name']}\nVersion: {project['version']}\n"
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\n{names}")
    lines = "".join(f"{name} = {module}\n" for name, module in entries.items())
    (information / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\n{lines}")
    return folder


def show_site(folder: Path, *, visible: bool) -> None:
    """Put the folder on Python's path, or remove it there."""
    if visible != (str(folder) in sys.path):
        sys.path[:] = [name for name in sys.path if name != str(folder)] + [str(folder)] * visible
        importlib.invalidate_caches()
        registry.registry.cache_clear()


@contextmanager
def example_package(folder: Path) -> Iterator[None]:
    """Let Python find the package of `examples/all_steps` for as long as the `with` block runs; `folder` is empty."""
    site = write_site(folder, Path(__file__).resolve().parents[1] / "examples" / "all_steps" / "step_package")
    try:
        show_site(site, visible=True)
        yield
    finally:
        show_site(site, visible=False)
