"""An Airflow home for tests: configuration, and the DAG files with a schedule beside them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv-airflow" / "bin"
STATE_MACHINE_PREFIX = "arn:aws:states:us-east-1:123456789012:stateMachine:slackwater-"


@dataclass(frozen=True)
class Home:
    """Folder and environment of one Airflow, independent of any other Airflow on the computer."""

    folder: Path
    environment: dict[str, str]

    @property
    def dags(self) -> Path:
        return self.folder / "dags"

    def python(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run Airflow's Python with every warning turned into an error."""
        return subprocess.run(
            [str(BIN / "python"), "-W", "error", *arguments],
            cwd=self.folder,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def inspect(self, loads: Sequence[tuple[Mapping[str, str], Sequence[str | None]]]) -> list[dict[str, Any]]:
        """Load the DAGs with each set of environment variables, and render every task for each of its instants."""
        request = json.dumps([{"environment": environment, "instants": instants} for environment, instants in loads])
        completed = self.python(str(Path(__file__).with_name("inspect_dags.py")), stdin=request)
        assert completed.returncode == 0, completed.stderr
        results: list[dict[str, Any]] = json.loads(completed.stdout.splitlines()[-1])
        return results


def make_home(folder: Path, *, prefix: str = STATE_MACHINE_PREFIX, schedule: str | None = None, **more: str) -> Home:
    """Create a home laid out like MWAA's bucket: the DAG files, and the content of `schedule.json` beside them."""
    dags = folder / "dags"
    shutil.copytree(ROOT / "mwaa_dags", dags, ignore=shutil.ignore_patterns("__pycache__"))
    if schedule is not None:
        (dags / "schedule.json").write_text(schedule)
    settings = {
        "HOME": str(folder),
        "PATH": f"{BIN}:/usr/bin:/bin",
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
        "AIRFLOW__SLACKWATER__STATE_MACHINE_PREFIX": prefix,
    }
    return Home(folder, {**settings, **more})
