"""One local cloud for all tests that need one: deployed once, with the example's project and a partner's server."""

from __future__ import annotations

import fcntl
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from pathlib import Path
from string import Template
from typing import Any

import boto3
import pyarrow
import pytest
from botocore.loaders import JSONFileLoader
from hypothesis import settings

from examples.all_steps import run as all_steps
from examples.all_steps.inputs import write_pages
from examples.nyc_flights.feed import Feed, make_feed
from examples.nyc_flights.partner import PartnerServer
from slackwater.cli.main import run as run_command
from slackwater.local import cloud as local_cloud
from tests.cloud.emr_fixtures import BareCloud, bare_cloud
from tests.cloud.ways import mix_ways, set_ways
from tests.lineage_consumer import LineageConsumer
from tests.postgres import PostgresServer, running_postgres
from tests.processes import (
    SITES,
    pytest_collection_modifyitems,
    pytest_runtest_setup,
    pytest_xdist_make_scheduler,
)
from tests.sftp_server import SftpServer
from tests.step_package import show_site, write_site

# Pytest finds its hooks here.
__all__ = ["pytest_collection_modifyitems", "pytest_runtest_setup", "pytest_xdist_make_scheduler"]

# Several processes share the cores, and tests read small files: more threads take a fifth of the processor's time.
pyarrow.set_cpu_count(1)

# No test depends on a duration: a busy machine would exceed the default of 200 ms for each example.
settings.register_profile("slackwater", deadline=None, max_examples=40)
# `--hypothesis-profile long` tries other examples each time, until one fails or `MODEL_EXAMPLES` have been tried.
MODEL_EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "100000"))
settings.register_profile("long", deadline=None, max_examples=MODEL_EXAMPLES, database=None)
settings.load_profile("slackwater")

# Each session of boto3 would parse the same descriptions of services and endpoints again: 0.1 s for each command.
_load_json = cache(partial(JSONFileLoader.load_file, JSONFileLoader()))
JSONFileLoader.load_file = lambda self, file_path: _load_json(file_path)

# Without it, the CDK records a stack trace for each construct, which takes a third of a synthesis.
os.environ.setdefault("CDK_DISABLE_STACK_TRACE", "1")
# The CDK's own validation takes another third. In tests cfn-lint validates templates; `make machines` does both.
os.environ.setdefault("CDK_VALIDATION", "false")

ROOT = Path(__file__).resolve().parents[1]
DATES = ("2013-03-09", "2013-03-10", "2013-03-11")
"""The day before the late data, the day that it changes, and the current day."""
LATE = "2013-03-10"
"""The day with late data; it has 23 hours."""
LATE_FILES = (f"flights-{LATE}-04.csv", f"flights-{LATE}-20.csv")
LATE_HOUR = (datetime(2013, 3, 10, 20, tzinfo=UTC), datetime(2013, 3, 10, 21, tzinfo=UTC))
"""Start and end of the hour whose weather arrives late."""

ENDS_OF_STAGES = ("data_quality", "select")
"""The steps of the example's pipeline that end a stage each in `staged_delays`; both stages run in parallel."""
LOAD = """
load:
  report:
    step: write_csv
    depends_on: [delays_by_carrier]
    with: {path: "reports/delays-{date}.csv"}
"""
SALES = "sales_by_shop"
"""The pipeline of which some days are large."""


@dataclass(frozen=True)
class CommandResult:
    """Result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def _checked(arguments: Sequence[str], result: CommandResult, code: int | None) -> CommandResult:
    assert code is None or result.code == code, f"{arguments}: exit {result.code}\n{result.out}\n{result.err}"
    return result


@dataclass(frozen=True)
class Cloud:
    """The deployed local cloud, used through the command line, HTTP and boto3."""

    root: Path
    project: Path
    endpoint: str
    environment: dict[str, str]
    previous: dict[str, str] = field(default_factory=dict)
    """The physical ids of the resources with data that the version before has created, by logical id."""

    def slackwater(self, *arguments: str, code: int | None = 0) -> CommandResult:
        """Run a command in this process, which saves its start, and assert its exit code, unless `code` is None."""
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.chdir(ROOT)
            for name in os.environ:
                if name not in self.environment:
                    patch.delenv(name)
            for name, value in self.environment.items():
                patch.setenv(name, value)
            result = CommandResult(run_command(self._with_project(arguments)), out.getvalue(), err.getvalue())
        return _checked(arguments, result, code)

    def json(self, *arguments: str, code: int | None = 0) -> Any:
        """Run a command with `--json`; return its document."""
        return self.slackwater(*arguments, "--json", code=code).json

    def process(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command as a process of its own, which can be killed, or run at the same time as another one."""
        return subprocess.Popen(
            [sys.executable, "-m", "slackwater.cli", *self._with_project(arguments)],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def json_of_process(self, *arguments: str, code: int | None = 0) -> Any:
        """Run a command with `--json` as a process of its own; return its document."""
        process = self.process(*arguments, "--json")
        out, err = process.communicate(timeout=540)
        return _checked(arguments, CommandResult(process.returncode, out, err), code).json

    def _with_project(self, arguments: Sequence[str]) -> list[str]:
        return [*arguments, "--project", str(self.project)]

    def query(self, sql: str) -> list[list[Any]]:
        return self.json("query", sql)["rows"]

    def client(self, service: str) -> Any:
        """Return the client of a service. Creating one takes as long as many calls."""
        if service not in self._clients:
            session = boto3.session.Session("test", "test", region_name=self.environment["AWS_REGION"])
            self._clients[service] = session.client(service, endpoint_url=self.endpoint)
        return self._clients[service]

    @cached_property
    def _clients(self) -> dict[str, Any]:
        return {}

    def outputs(self) -> dict[str, str]:
        return self._outputs

    @cached_property
    def _outputs(self) -> dict[str, str]:
        stacks = self.client("cloudformation").describe_stacks()["Stacks"]
        return {o["OutputKey"]: o["OutputValue"] for stack in stacks for o in stack.get("Outputs", [])}

    def jobs(self) -> list[dict[str, Any]]:
        application = self.outputs()["ApplicationId"]
        pages = self.client("emr-serverless").get_paginator("list_job_runs").paginate(applicationId=application)
        return [job for page in pages for job in page["jobRuns"]]


@pytest.fixture(scope="session")
def feed(tmp_path_factory) -> Feed:
    """The partners' data of the days. The late data is held back."""
    feed = make_feed(tmp_path_factory.mktemp("partner"), DATES)
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
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL with an empty database."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def lineage() -> Iterator[LineageConsumer]:
    """What receives the OpenLineage events of the shared cloud."""
    with LineageConsumer() as consumer:
        yield consumer


@pytest.fixture(scope="session")
def rates_api(tmp_path_factory) -> Iterator[PartnerServer]:
    """The API of the example with all steps."""
    folder = tmp_path_factory.mktemp("api") / "pages"
    write_pages(folder)
    with PartnerServer(folder, path=all_steps.API_PATH) as server:
        yield server


@pytest.fixture(scope="session")
def project(tmp_path_factory, partner, sftp, rates_api, postgres) -> Path:
    """Two examples' definitions with the URLs of these servers, and more sources and pipelines.

    There are sources of all types, pipelines with all steps, one of three stages, and a pipeline that fails.
    """
    folder = tmp_path_factory.mktemp("project") / "nyc_flights"
    all_steps.copy_project(folder, api_port=rates_api.port, database_port=postgres.port)
    for name in ("sources", "pipelines"):
        shutil.copytree(ROOT / "examples" / "nyc_flights" / name, folder / name, dirs_exist_ok=True)
    flights = folder / "sources" / "flights.yaml"
    counts = 'counts: {window: 1h, files: "flights-{date}-counts.json"}\n'
    flights.write_text(f"{flights.read_text().replace('http://127.0.0.1:8713/flights', partner.url)}{counts}")
    # Tests run the same days again within minutes.
    daily, weekly = (folder / "pipelines" / f"{name}_delays.yaml" for name in ("daily", "weekly"))
    daily.write_text(
        daily.read_text().replace("late:\n", "late:\n  cool_down_hours: 0\n  on_removed: {flights: hold}\n")
    )
    weekly.write_text(f"{weekly.read_text()}team: finance\nlate: {{cool_down_hours: 0}}\n")
    shutil.copytree(ROOT / "tests" / "pipelines", folder / "pipelines", dirs_exist_ok=True)
    delays = (folder / "pipelines" / "daily_delays.yaml").read_text()
    staged = delays.replace("pipeline: daily_delays", "pipeline: staged_delays") + LOAD
    staged = staged.replace("late:\n", "late:\n  budget_per_day: 0.001\n")  # less than any run costs
    for step in ENDS_OF_STAGES:
        staged = staged.replace(f"    step: {step}\n", f"    step: {step}\n    exchange: true\n")
    (folder / "pipelines" / "staged_delays.yaml").write_text(staged)
    values = {"PARTNER_URL": partner.url, "SFTP_URL": sftp.url, "HOST_KEY": sftp.host_key}
    for path in (ROOT / "tests" / "sources").glob("*.yaml"):
        (folder / "sources" / path.name).write_text(Template(path.read_text()).substitute(values))
    return folder


def deploy_previous_storage(cloud: Cloud) -> dict[str, str]:
    """Create the stack with data as the version before has it, and put data into it. Return the names by logical id.

    `stored.json` has items of tables and messages of queues as the version before wrote them (docs/development.md).
    `tests/cloud/test_upgrade.py` looks at what this version's deployment has made of it.
    """
    cloudformation, stack = cloud.client("cloudformation"), "slackwater-storage"
    previous = ROOT / "tests" / "infra" / "previous"
    template = (previous / "storage.template.json").read_text()
    stored = json.loads((previous / "stored.json").read_text())
    cloudformation.create_stack(StackName=stack, TemplateBody=template, Capabilities=["CAPABILITY_IAM"])
    cloudformation.get_waiter("stack_create_complete").wait(StackName=stack, WaiterConfig={"Delay": 1})
    resources = cloudformation.describe_stack_resources(StackName=stack)["StackResources"]
    names = {resource["LogicalResourceId"]: resource["PhysicalResourceId"] for resource in resources}
    for name, physical in names.items():
        written = stored.get(name[:-8], [])  # the CDK's logical ids end with eight digits
        match next(item["ResourceType"] for item in resources if item["LogicalResourceId"] == name):
            case "AWS::S3::Bucket":
                cloud.client("s3").put_object(Bucket=physical, Key=f"before/{name}", Body=name.encode())
            case "AWS::DynamoDB::Table":
                table = cloud.client("dynamodb").describe_table(TableName=physical)["Table"]
                item = {key["AttributeName"]: {"S": "before"} for key in table["KeySchema"]}
                for each in ({**item, "note": {"S": name}}, *written):
                    cloud.client("dynamodb").put_item(TableName=physical, Item=each)
            case "AWS::SQS::Queue":
                for message in written:
                    cloud.client("sqs").send_message(QueueUrl=physical, MessageBody=message)
    return names


@pytest.fixture(scope="session")
def cloud(tmp_path_factory, project, lineage) -> Iterator[Cloud]:
    """The local cloud, started and deployed. It shares the checkout's jars and nothing else."""
    root = tmp_path_factory.mktemp("cloud")
    (root / ".slackwater").mkdir()
    (root / ".slackwater" / "jars").symlink_to(ROOT / ".slackwater" / "jars")
    started = local_cloud.up(root)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment = {**inherited, **started.environment()}
    # Processes that this one starts, such as the synthesis, see the package too.
    SITES.append(write_site(tmp_path_factory.mktemp("site"), all_steps.PACKAGE))
    show_site(SITES[0], visible=True)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), str(SITES[0]))))
    environment["SLACKWATER_SET"] += f" step_packages={all_steps.PACKAGE}"
    # The source `large` needs jobs that reach its partner's server, and so do steps with a URL.
    environment["SLACKWATER_SET"] += " job_subnets=subnet-0123456789abcdef0 job_security_groups=sg-0123456789abcdef0"
    # No schedule and no arrival may start work that a test does not expect.
    environment["SLACKWATER_SET"] += " intermediate_days=0 schedule=none collect_minutes=0"
    environment["SLACKWATER_SET"] += " alarm_usd_per_day=0.001"  # less than any run costs
    teams = {"operations": {"queue": "create", "severities": ["warning"]}, "finance": {"queue": "create"}}
    environment["SLACKWATER_SET"] += f' openlineage={{"url":"{lineage.url}"}}'
    environment["SLACKWATER_SET"] += f" teams={json.dumps(teams, separators=(',', ':'))}"
    # tests/infra and `make check` let the CDK validate the app, which takes as long as its synthesis.
    environment["CDK_VALIDATION"] = "false"
    deployed = Cloud(root=root, project=project, endpoint=started.endpoint, environment=environment)
    try:
        with (ROOT / ".slackwater" / "deploy.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two concurrent deployments would share `cdk.out` and build twice
            deployed.previous.update(deploy_previous_storage(deployed))
            deployed.slackwater("deploy")
        # The rule of a source with `pack` invokes it each hour.
        deployed.client("events").disable_rule(Name="slackwater-pack-objects")
        set_ways(deployed.client("emr-serverless"))
        mix_ways(deployed)
        token = deployed.json("token", "create", "tests", "--source", "weather")["token"]
        environment["SLACKWATER_TOKEN"] = token
        yield deployed
    finally:
        local_cloud.down(root)
        show_site(SITES.pop(), visible=False)


@pytest.fixture(scope="session")
def bare(tmp_path_factory) -> Iterator[BareCloud]:
    """A local cloud in which nothing is deployed."""
    yield from bare_cloud(tmp_path_factory.mktemp("bare"))
