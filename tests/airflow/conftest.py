"""Airflow in its own virtual environment. Where it is not installed, the tests are skipped with the reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from slackwater.project.project import load_project
from slackwater.project.schedule import schedule_json
from tests.airflow.home import BIN, ROOT, Home, make_home
from tests.airflow.projects import (
    CHATHAM,
    CHATHAM_PULL,
    FAULTS,
    HOURLY,
    INSTANTS,
    LONG_NAMED,
    NEW_YORK,
    PIPELINE,
    SOURCE,
    STAGES,
    schedule_file,
    schedule_of_copies,
    write_project,
)


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


@pytest.fixture(scope="session")
def projects(tmp_path_factory) -> dict[str, Path]:
    """The example, a project that uses all defaults, and two that override every one."""
    folder = tmp_path_factory.mktemp("projects")
    return {
        "example": ROOT / "examples" / "nyc_flights",
        "defaults": write_project(folder / "defaults"),
        "all settings": write_project(folder / "all", source=SOURCE + CHATHAM_PULL, pipeline=PIPELINE + CHATHAM % 30),
        "push only": write_project(folder / "push", source=f"{SOURCE}push: {{}}\n", pipeline=LONG_NAMED + CHATHAM % 0),
        "stages": write_project(folder / "stages", pipeline=STAGES),
        "hours": write_project(folder / "hours", pipeline=HOURLY),
    }


@pytest.fixture(scope="session")
def schedules(projects, tmp_path_factory) -> dict[str, Path]:
    """The schedules of the projects, malformed ones, and the path of a missing one, by name."""
    folder = tmp_path_factory.mktemp("schedules")
    paths = {name: schedule_file(folder / f"{name}.json", project) for name, project in projects.items()}
    for index, content in enumerate(FAULTS):
        paths[content] = folder / f"fault-{index}.json"
        paths[content].write_text(content)
    paths["unknown timezone"] = folder / "timezone.json"
    paths["unknown timezone"].write_text(paths["example"].read_text().replace("America/New_York", "Mars/X"))
    paths["missing"] = folder / "none.json"
    return paths


@pytest.fixture(scope="session")
def inspected(parser, schedules, tmp_path_factory) -> dict[str, Any]:
    """What Airflow loads with each schedule, every task rendered for every instant, by one process.

    Also of a project with 1 and with 500 copies of a pipeline, and of these by a worker; without any instant.
    """
    instants = [f"{instant}:00+00:00" for instant in NEW_YORK] + [instant.isoformat() for instant in INSTANTS]
    environments = {name: {"AIRFLOW__SLACKWATER__SCHEDULE": str(path)} for name, path in schedules.items()}
    environments["no prefix"] = environments["example"] | {"AIRFLOW__SLACKWATER__STATE_MACHINE_PREFIX": ""}
    loads = {name: (environment, [None, *instants]) for name, environment in environments.items()}
    folder = tmp_path_factory.mktemp("copies")
    project = write_project(folder / "project")
    one, many = (folder / f"{count}.json" for count in (1, 500))
    one.write_text(schedule_of_copies(project, 1))
    many.write_text(schedule_of_copies(project, 500))
    loads["1 copy"], loads["500 copies"] = (({"AIRFLOW__SLACKWATER__SCHEDULE": str(path)}, []) for path in (one, many))
    worker = {"_AIRFLOW_PARSING_CONTEXT_DAG_ID": "monitor_heights_7", "AIRFLOW__SLACKWATER__SCHEDULE": str(many)}
    loads["worker"] = worker, []
    return dict(zip(loads, parser.inspect(list(loads.values())), strict=True))
