"""Airflow in its own virtual environment; skipped, with the reason, where there is none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.airflow.home import BIN, Home, make_home


@pytest.fixture(scope="session", autouse=True)
def _installed() -> None:
    if not (BIN / "airflow").exists():
        pytest.skip("no Airflow here: `make airflow` installs it, where there is a Python 3.11 or 3.12")


@pytest.fixture(scope="session")
def parser(tmp_path_factory) -> Home:
    """An Airflow that only reads DAGs: it has no cloud, no credentials and no database."""
    return make_home(tmp_path_factory.mktemp("parser"))


@pytest.fixture(scope="session")
def home(tmp_path_factory, cloud) -> Iterator[Home]:
    """An Airflow with its database, whose DAGs start the machines of the local cloud."""
    machines = cloud.outputs()["PipelineMachinePrefix"].removesuffix("pipeline-")
    aws = {name: value for name, value in cloud.environment.items() if name.startswith("AWS_")}
    made = make_home(tmp_path_factory.mktemp("airflow"), machines=machines, project=cloud.project, **aws)
    migrated = made.airflow("db", "migrate")
    assert migrated.returncode == 0, migrated.stderr
    return made
