"""The functions of the receiver import nothing of late data, which is a layer above the receiver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("function", ["receive_events", "store_events", "list_files", "fetch_file", "remove_stale"])
def test_a_function_of_the_receiver_imports_nothing_of_late_data(function):
    code = f"import json, sys, lambdas.{function}; print(json.dumps(list(sys.modules)))"
    process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    modules = json.loads(process.stdout)
    assert f"lambdas.{function}" in modules
    assert [name for name in modules if f"{name}.".startswith("slackwater.late.")] == []
