"""The functions of the receiver import nothing of late data, which is a layer above the receiver."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]


def test_the_functions_of_the_receiver_import_nothing_of_late_data():
    functions = [
        f"lambdas.{name}" for name in ("receive_events", "store_events", "list_files", "fetch_file", "remove_stale")
    ]
    code = f"import json, sys, {', '.join(functions)}; print(json.dumps(list(sys.modules)))"
    process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    modules = json.loads(process.stdout)
    assert set(functions) <= set(modules)
    assert [name for name in modules if f"{name}.".startswith("slackwater.late.")] == []
