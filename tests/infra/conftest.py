"""The app, synthesised by default, with Airflow and as `prod`, once each for all tests that only read its templates."""

from __future__ import annotations

import pytest

from infra.app import ROOT
from infra.artefacts import Artefacts, build_artefacts
from slackwater.project.project import Project, load_project
from tests.infra.assembly import THIS_MACHINE, Assembly, synthesised


@pytest.fixture(scope="session")
def project() -> Project:
    """The example that is deployed by default."""
    return load_project(ROOT / "examples" / "nyc_flights")


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return synthesised(tmp_path_factory.mktemp("assembly"))


@pytest.fixture(scope="session")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The app with Airflow's stack, dashboards and jars, which removes Arrow files as soon as a day is published."""
    more = {"schedule": "airflow", "intermediate_days": 0, "subject_dashboards": True, "alarm_usd_per_day": 2.5}
    jars = "s3://code/iceberg.jar, /usr/lib/first.jar"
    return synthesised(tmp_path_factory.mktemp("scheduled"), spark_jars=jars, **more)


@pytest.fixture(scope="session")
def divided(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The app with each group of alarms in a stack of its own, as a large project has them."""
    return synthesised(tmp_path_factory.mktemp("divided"), most_alarms=0, alarm_usd_per_day=2.5)


@pytest.fixture(scope="session")
def prod(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The app as `--environment prod` deploys it, with a key of its own."""
    return synthesised(tmp_path_factory.mktemp("prod"), environment="prod", kms_key="create")


@pytest.fixture(scope="session")
def artefacts() -> Artefacts:
    """The real artefacts for this machine, built if they do not exist."""
    return build_artefacts(root=ROOT, settings=THIS_MACHINE)
