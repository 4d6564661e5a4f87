"""A home of Airflow's own, for tests: its configuration, its database, and the DAGs beside a project."""

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
MACHINES = "arn:aws:states:us-east-1:123456789012:stateMachine:slackwater-"


@dataclass(frozen=True)
class Home:
    """Where one Airflow keeps all it has; nothing of this machine's own Airflow is seen."""

    folder: Path
    environment: dict[str, str]

    @property
    def dags(self) -> Path:
        return self.folder / "dags"

    def python(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run Airflow's Python, in which every warning is an error."""
        return self._run([str(BIN / "python"), "-W", "error", *words], given)

    def airflow(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Airflow's command line."""
        return self._run([str(BIN / "airflow"), *words], "")

    def test(self, dag_id: str, moment: str) -> subprocess.CompletedProcess[str]:
        """Run a DAG once, for a moment, from its start to its end."""
        return self.airflow("dags", "test", dag_id, moment)

    def inspect(self, folders: Sequence[Path], moments: Sequence[str | None] = ()) -> list[dict[str, Any]]:
        """What becomes of each project folder, with every task rendered for each moment."""
        request = json.dumps({"folders": [str(folder) for folder in folders], "moments": list(moments)})
        done = self.python(str(Path(__file__).with_name("inspect_dags.py")), given=request)
        assert done.returncode == 0, done.stderr
        answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
        return answers

    def _run(self, command: list[str], given: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


def make_home(folder: Path, *, machines: str = MACHINES, project: Path | None = None, **more: str) -> Home:
    """Make a home as MWAA's bucket is laid out: the DAGs, and the project beside them."""
    dags = folder / "dags"
    shutil.copytree(ROOT / "mwaa_dags", dags, ignore=shutil.ignore_patterns("__pycache__"))
    if project:
        shutil.copytree(project, dags / "project")
    return Home(folder, {**_settings(folder, dags, machines), **more})


def _settings(folder: Path, dags: Path, machines: str) -> Mapping[str, str]:
    return {
        "HOME": str(folder),
        "PATH": f"{BIN}:/usr/bin:/bin",
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
        "AIRFLOW__SLACKWATER__MACHINES": machines,
    }
