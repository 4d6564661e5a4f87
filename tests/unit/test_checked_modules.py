"""mypy checks every module of the CDK that we import. It does not follow imports of the others."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


def test_every_imported_module_of_the_cdk_is_checked():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    checked = {module for item in settings if item.get("follow_imports") == "normal" for module in item["module"]}
    imported = set()
    for file in (ROOT / "infra").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aws_cdk"):
                names = {f"{node.module}.{name.name}" for name in node.names if name.name.startswith("aws_")}
                imported |= names | {node.module}
    assert imported <= checked
    assert "aws_cdk.aws_s3" in imported
