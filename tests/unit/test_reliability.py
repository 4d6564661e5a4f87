"""Each fault on the page about reliability names a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
ROW = re.compile(r"^\|(?! Fault|---).*\|$", re.MULTILINE)
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
ROWS = ROW.findall(PAGE.read_text(encoding="utf-8"))


@cache
def names_of_tests(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_page_has_a_row_for_every_step():
    assert len(ROWS) > 20


@pytest.mark.parametrize("row", ROWS)
def test_the_test_of_a_fault_exists(row):
    references = REFERENCE.findall(row)
    assert references, f"docs/reliability.md names no test: {row}"
    for path, name in references:
        assert (ROOT / path).is_file(), f"docs/reliability.md: {path} does not exist"
        assert name in names_of_tests(ROOT / path), f"docs/reliability.md: {path} has no test {name}"
