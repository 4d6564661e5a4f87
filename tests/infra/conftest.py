"""The app, synthesised by default, with Airflow and as `prod`, once each for all tests that only read its templates."""

from __future__ import annotations

import pytest

from infra.app import ROOT
from infra.artefacts import Artefacts, build_artefacts
from infra.lint import context, placeholder_artefacts, synthesise
from infra.settings import load_settings
from tests.infra.assembly import THIS_MACHINE, Assembly


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    scratch = tmp_path_factory.mktemp("assembly")
    folder = scratch / "cdk.out"
    templates = synthesise(folder, settings=load_settings(context()), artefacts=placeholder_artefacts(scratch))
    return Assembly(folder, templates)


@pytest.fixture(scope="session")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The app with Airflow's stack, dashboards and jars, which removes Arrow files as soon as a day is published."""
    scratch = tmp_path_factory.mktemp("scheduled")
    folder = scratch / "cdk.out"
    more = {"schedule": "airflow", "intermediate_days": 0, "subject_dashboards": True, "alarm_usd_per_day": 2.5}
    more |= {"spark_jars": "s3://code/iceberg.jar, /usr/lib/first.jar"}
    settings = load_settings({**context(), **{f"slackwater:{name}": value for name, value in more.items()}})
    return Assembly(folder, synthesise(folder, settings=settings, artefacts=placeholder_artefacts(scratch)))


@pytest.fixture(scope="session")
def divided(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The app with each group of alarms in a stack of its own, as a large project has them."""
    scratch = tmp_path_factory.mktemp("divided")
    folder, settings = scratch / "cdk.out", load_settings({**context(), "slackwater:alarm_usd_per_day": 2.5})
    templates = synthesise(folder, settings=settings, artefacts=placeholder_artefacts(scratch), most_alarms=0)
    return Assembly(folder, templates)


@pytest.fixture(scope="session")
def prod(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The app as `--environment prod` deploys it, with a key of its own."""
    scratch = tmp_path_factory.mktemp("prod")
    settings = load_settings({**context(), "slackwater:environment": "prod", "slackwater:kms_key": "create"})
    folder = scratch / "cdk.out"
    return Assembly(folder, synthesise(folder, settings=settings, artefacts=placeholder_artefacts(scratch)))


@pytest.fixture(scope="session")
def artefacts() -> Artefacts:
    """The real artefacts for this machine, built if they do not exist."""
    return build_artefacts(root=ROOT, settings=THIS_MACHINE)


@pytest.fixture
def assembly_manifest(assembly: Assembly) -> str:
    """The assembly's manifest. It would list each value that synthesis reads from the account."""
    return (assembly.folder / "manifest.json").read_text(encoding="utf-8")
