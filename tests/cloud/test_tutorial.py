"""The tutorial: its commands run in order, in one shell, and print what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from slackwater.local import cloud as local_cloud
from tests.conftest import ROOT

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
"""What each block is, and its content: commands have no name, and what they print is `text`."""
PORT = "8765"
VARYING = (
    r"[0-9a-f]{32}",
    r"20\d\d-\d\d-\d\d \d\d:\d\d UTC",
    r"(?<=^rides )20\d\d-\d\d-\d\d",
    r"\d+\.\d(?= s\b|$)",
    r"[\d.]+ kB",
)
"""What differs from run to run: ids, times of this run, durations, sizes of objects."""


def masked(line: str) -> str:
    """Return a line without what differs from run to run, and with single blanks."""
    line = " ".join(line.split())
    return re.sub("|".join(VARYING), "#", line)


def test_the_commands_of_the_tutorial_work_in_order_and_print_what_it_shows(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    script = "".join(block.replace(PORT, port) for kind, block in BLOCKS if kind == "")
    # Without it, the cloud's files would be those of the clone.
    (tmp_path / "cdk.json").write_text("{}")
    (tmp_path / "bin").mkdir()
    for name, program in (("slackwater", "-m slackwater.cli"), ("python3", "")):
        path = tmp_path / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {program} "$@"\n')
        path.chmod(0o755)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SLACKWATER_"))},
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT))),
    }
    output = tmp_path / "output"
    with output.open("w") as file:
        shell = subprocess.Popen(
            ["bash", "-e", "-c", script],
            cwd=tmp_path,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        code = shell.wait()
    finally:
        local_cloud.down(tmp_path)
        # The web server, if a command before the end has failed.
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)
    printed = output.read_text()
    assert code == 0, printed
    lines = [masked(line) for line in printed.splitlines()]
    # The page leaves out what follows three dots.
    page = [masked(line.partition("...")[0]) for kind, block in BLOCKS if kind == "text" for line in block.splitlines()]
    missing = [shown for shown in page if not any(line.startswith(shown) for line in lines)]
    assert missing == [], printed
