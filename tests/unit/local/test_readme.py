"""The README of slackwater.local names every module, with a contract test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]
LOCAL = ROOT / "src" / "slackwater" / "local"
ROWS = re.findall(r"^\| `([\w.]+)` \| .+ \| `([\w/.]+)::(\w+)` \|$", (LOCAL / "README.md").read_text(), re.MULTILINE)


def test_the_readme_lists_every_module_once():
    modules = [path.relative_to(LOCAL) for path in LOCAL.rglob("*.py") if path.name != "__init__.py"]
    assert sorted(name for name, _, _ in ROWS) == sorted(str(path)[: -len(".py")].replace("/", ".") for path in modules)


@pytest.mark.parametrize(("file", "test"), sorted({(file, test) for _, file, test in ROWS}))
def test_the_readme_names_tests_that_exist(file, test):
    assert f"def {test}(" in (ROOT / file).read_text()
