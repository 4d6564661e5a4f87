"""The app, synthesised by default, with Airflow and as `prod`, once each for all tests that only read its templates."""

from __future__ import annotations

import shutil

import pytest

from infra.app import ROOT
from infra.artefacts import Artefacts, build_artefacts
from slackwater.project.project import Project, load_project
from tests.infra.assembly import THIS_MACHINE, Assembly, synthesised

EXAMPLE = ROOT / "examples" / "nyc_flights"


@pytest.fixture(scope="session")
def project() -> Project:
    """The example that is deployed by default."""
    return load_project(EXAMPLE)


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return synthesised(tmp_path_factory.mktemp("assembly"))


@pytest.fixture(scope="session")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The app with Airflow's stack, dashboards, jars and a receiver of lineage.

    It removes Arrow files as soon as a day is published.
    """
    more = {"schedule": "airflow", "intermediate_days": 0, "subject_dashboards": True, "alarm_usd_per_day": 2.5}
    more["openlineage"] = {"url": "https://lineage.example", "api_key_secret": "secretsmanager:lineage"}
    jars = "s3://code/iceberg.jar, /usr/lib/first.jar"
    return synthesised(tmp_path_factory.mktemp("scheduled"), spark_jars=jars, **more)


@pytest.fixture(scope="session")
def divided(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The app without a scheduler, with each group of alarms in a stack of its own, as a large project has them."""
    more = {"schedule": "none", "alarm_usd_per_day": 2.5}
    return synthesised(tmp_path_factory.mktemp("divided"), most_alarms=0, **more)


BOOTSTRAP_KEY, FLIGHTS_KEY, UNREAD_KEY = (
    f"arn:aws:kms:eu-west-1:123456789012:key/{number:08}-12ab-34cd-56ef-1234567890ab" for number in range(3)
)


@pytest.fixture(scope="session")
def prod(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The app as `--environment prod` deploys it, with all that only settings add: keys, a web ACL, and addresses.

    The CDK bootstrap has a name and a key of its own. A second source, which no pipeline reads, has a key too.
    """
    scratch = tmp_path_factory.mktemp("prod")
    shutil.copytree(EXAMPLE, scratch / "project", ignore=shutil.ignore_patterns("*.py"))
    unread = "source: unread\ntimestamp: {field: at}\nfields: {at: timestamp}\npush: {}\n"
    (scratch / "project" / "sources" / "unread.yaml").write_text(unread)
    return synthesised(
        scratch,
        project=str(scratch / "project"),
        environment="prod",
        kms_key="create",
        source_kms_keys={"flights": FLIGHTS_KEY, "unread": UNREAD_KEY},
        waf=True,
        alarm_emails="on@call.example, too@call.example",
        warning_emails="by@day.example",
        change_emails=["reader@example.org"],
        teams={"operations": {"emails": ["team@example.org"], "queue": "create", "severities": ["warning"]}},
        bootstrap_bucket="acme-assets",
        bootstrap_kms_key=BOOTSTRAP_KEY,
        qualifier="acme",
    )


@pytest.fixture(scope="session")
def artefacts() -> Artefacts:
    """The real artefacts for this machine, built if they do not exist."""
    return build_artefacts(root=ROOT, settings=THIS_MACHINE)
