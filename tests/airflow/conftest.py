"""Airflow in its own virtual environment. Where it is not installed, the tests are skipped with the reason."""

from __future__ import annotations

import re

import pytest

from slackwater.project.project import load_project
from slackwater.project.schedule import schedule_json
from tests.airflow.home import BIN, ROOT, Home, make_home


@pytest.fixture(scope="session", autouse=True)
def _installed() -> None:
    if not (BIN / "airflow").exists():
        pytest.skip("no Airflow here: `make airflow` installs it, where there is a Python 3.11 or 3.12")


@pytest.fixture(scope="session")
def parser(tmp_path_factory) -> Home:
    """An Airflow that only parses DAGs: it has no cloud, no credentials and no database."""
    return make_home(tmp_path_factory.mktemp("parser"))


@pytest.fixture(scope="session")
def home(tmp_path_factory, cloud) -> Home:
    """An Airflow whose DAGs start the state machines of the local cloud; with the DAG of a user in docs/airflow.md."""
    prefix = cloud.outputs()["PipelineMachinePrefix"].removesuffix("pipeline-")
    aws = {name: value for name, value in cloud.environment.items() if name.startswith("AWS_")}
    schedule = schedule_json(load_project(cloud.project))
    home = make_home(tmp_path_factory.mktemp("airflow"), prefix=prefix, schedule=schedule, **aws)
    [dag] = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "airflow.md").read_text(), re.DOTALL | re.MULTILINE)
    (home.dags / "daily_report.py").write_text(dag)
    return home
