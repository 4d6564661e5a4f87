"""One local cloud for all tests that need one: deployed once, with the example's project and a partner's server."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import Template
from typing import Any

import boto3
import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from examples.nyc_flights.feed import Feed, make_feed
from examples.nyc_flights.partner import PartnerServer
from slackwater.local import cloud as local_cloud
from tests.sftp_server import SftpServer

# No test depends on a duration: a busy machine would exceed the default of 200 ms for each example.
settings.register_profile("slackwater", deadline=None)
settings.load_profile("slackwater")

ROOT = Path(__file__).resolve().parents[1]
DATES = ("2013-03-08", "2013-03-09", "2013-03-10", "2013-03-11", "2013-03-12")
LONG_DAY = "2013-11-03"
"""The day of 25 hours."""

LATE = "2013-03-10"
"""The day with late data; it has 23 hours."""
LATE_FILES = (f"flights-{LATE}-04.csv", f"flights-{LATE}-20.csv")
LATE_HOUR = (datetime(2013, 3, 10, 20, tzinfo=UTC), datetime(2013, 3, 10, 21, tzinfo=UTC))
"""Start and end of the hour whose weather arrives late."""

BROKEN = """
pipeline: broken
sources: [weather]
steps:
  wrong:
    step: sql
    depends_on: [weather]
    with: {query: SELECT no_such_column FROM weather}
publish: {step: wrong, key: [date]}
"""


GROUPS = ("cloud", "spark", "airflow", "recovery", "infra")
"""Groups of tests that share a cloud, a Spark session or templates, in the order in which processes start them."""


def group_of(file: str) -> str:
    """Return the group that a test file runs with: its folder's, or the file itself."""
    if file == "tests/cloud/test_emr_serverless.py":
        return file  # starts clouds of its own
    if file == "tests/cloud/test_recovery.py":
        return "recovery"  # kills the cloud, so it would hold up the group of tests/cloud
    folder = Path(file).parent.name
    return folder if folder in GROUPS else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the slow groups first; the short files keep both processes busy until the end."""
    order = {group: index for index, group in enumerate(GROUPS)}
    items.sort(key=lambda item: order.get(group_of(item.nodeid.partition("::")[0]), len(order)))


class ByGroup(LoadScopeScheduling):
    """Distributes tests to processes: all tests of a group run in one process, other tests by their file."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    return ByGroup(config, log)


@dataclass(frozen=True)
class CommandResult:
    """Result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Cloud:
    """The deployed local cloud, used through the command line, HTTP and boto3."""

    root: Path
    project: Path
    endpoint: str
    environment: dict[str, str]

    def slackwater(self, *arguments: str, code: int | None = 0) -> CommandResult:
        """Run a command and assert its exit code, unless `code` is None."""
        run = subprocess.run(
            [sys.executable, "-m", "slackwater.cli", *arguments, "--project", str(self.project)],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=540,
            check=False,
        )
        assert code is None or run.returncode == code, f"{arguments}: exit {run.returncode}\n{run.stdout}\n{run.stderr}"
        return CommandResult(run.returncode, run.stdout, run.stderr)

    def json(self, *arguments: str, code: int | None = 0) -> Any:
        """Run a command with `--json`; return its document."""
        return self.slackwater(*arguments, "--json", code=code).json

    def query(self, sql: str) -> list[list[Any]]:
        return self.json("query", sql)["rows"]

    def client(self, service: str) -> Any:
        session = boto3.session.Session(
            aws_access_key_id="test", aws_secret_access_key="test", region_name=self.environment["AWS_REGION"]
        )
        return session.client(service, endpoint_url=self.endpoint)

    def outputs(self) -> dict[str, str]:
        stacks = self.client("cloudformation").describe_stacks()["Stacks"]
        return {o["OutputKey"]: o["OutputValue"] for stack in stacks for o in stack.get("Outputs", [])}

    def jobs(self) -> list[dict[str, Any]]:
        application = self.outputs()["ApplicationId"]
        pages = self.client("emr-serverless").get_paginator("list_job_runs").paginate(applicationId=application)
        return [job for page in pages for job in page["jobRuns"]]


@pytest.fixture(scope="session")
def feed(tmp_path_factory) -> Feed:
    """The partners' data of the five days and of the day of 25 hours. The late data is held back."""
    feed = make_feed(tmp_path_factory.mktemp("partner"), [*DATES, LONG_DAY])
    feed.hold_back(LATE_FILES, weather=LATE_HOUR)
    return feed


@pytest.fixture(scope="session")
def partner(feed) -> Iterator[PartnerServer]:
    """The partner's server, with the flights of the feed."""
    with PartnerServer(feed.flights) as server:
        yield server


@pytest.fixture(scope="session")
def weather(feed) -> Path:
    """The weather of the same days as NDJSON, without the late data."""
    return feed.weather


@pytest.fixture(scope="session")
def sftp(tmp_path_factory) -> Iterator[SftpServer]:
    """A partner's SFTP server with an empty folder."""
    with SftpServer(tmp_path_factory.mktemp("sftp")) as server:
        yield server


@pytest.fixture(scope="session")
def project(tmp_path_factory, partner, sftp) -> Path:
    """The example's project with this partner's URL, more sources of all types, and one pipeline that fails."""
    folder = tmp_path_factory.mktemp("project") / "nyc_flights"
    for name in ("sources", "pipelines"):
        shutil.copytree(ROOT / "examples" / "nyc_flights" / name, folder / name)
    flights = folder / "sources" / "flights.yaml"
    flights.write_text(flights.read_text().replace("http://127.0.0.1:8713/flights", partner.url))
    (folder / "pipelines" / "broken.yaml").write_text(BROKEN)
    values = {"PARTNER_URL": partner.url, "SFTP_URL": sftp.url, "HOST_KEY": sftp.host_key}
    for path in (ROOT / "tests" / "sources").glob("*.yaml"):
        (folder / "sources" / path.name).write_text(Template(path.read_text()).substitute(values))
    return folder


@pytest.fixture(scope="session")
def cloud(tmp_path_factory, project) -> Iterator[Cloud]:
    """The local cloud, started and deployed. It shares the checkout's jars and nothing else."""
    root = tmp_path_factory.mktemp("cloud")
    (root / ".slackwater").mkdir()
    (root / ".slackwater" / "jars").symlink_to(ROOT / ".slackwater" / "jars")
    started = local_cloud.up(root)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment = {**inherited, **started.environment()}
    deployed = Cloud(root=root, project=project, endpoint=started.endpoint, environment=environment)
    try:
        with (ROOT / ".slackwater" / "deploy.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two concurrent deployments would share `cdk.out` and build twice
            deployed.slackwater("deploy")
        token = deployed.json("token", "create", "tests", "--source", "weather")["token"]
        environment["SLACKWATER_TOKEN"] = token
        yield deployed
    finally:
        local_cloud.down(root)
