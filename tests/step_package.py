"""A package that adds a step outside of the project: the example of docs/steps/README.md."""

from __future__ import annotations

import re
import sys
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
