"""Slackwater without a clone: its wheel in a new environment, the tutorial, and the project of `slackwater init`.

The commands of docs/tutorial.md run in order, in one shell, and print what the page shows.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import boto3
import pytest
from pyiceberg.catalog.glue import GlueCatalog
from uv import find_uv_bin

from infra.app import ROOT
from infra.code_digest import code_digests
from slackwater.project.project import CodeDigests

pytestmark = pytest.mark.cloud

DEFAULT, STAGING = "slackwater", "slackwater-staging"
"""The prefixes of two deployments. The names of the second one begin like those of the first one."""
APIS = {"ApiGateway", "WAFv2"}
TUTORIAL = re.findall(
    r"^```(\w*)\n(.*?)^```$", (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
"""What each block of the page is, and its content: commands have no name, and what they print is `text`."""
TUTORIAL_PORT = "8765"
VARYING = (
    r"[0-9a-f]{32}",
    r"20\d\d-\d\d-\d\d \d\d:\d\d UTC",
    r"(?<=^rides )20\d\d-\d\d-\d\d",
    r"\d+\.\d(?= s\b|$)",
    r"[\d.]+ kB",
)
"""What differs from run to run: ids, times of this run, durations, sizes of objects."""
_DIGESTS = """
from slackwater.project.installation import deployed_files
from infra.code_digest import code_digests
print(deployed_files())
print(code_digests(deployed_files()).model_dump_json())
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The programs of a new environment in which the wheel is installed, with the versions of the lock."""
    folder = tmp_path_factory.mktemp("environment")
    uv, python = find_uv_bin(), folder / "venv" / "bin" / "python"
    # PySpark is no wheel: without this, uv fetches and builds it to read what it depends on.
    pyspark = f'{{name = "pyspark", version = "{version("pyspark")}", requires-dist = {requires("pyspark")}}}'
    (folder / "uv.toml").write_text(f"dependency-metadata = [{pyspark}]\n")
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT], check=True)
    subprocess.run([uv, "venv", "--quiet", "--no-project", "--python", sys.executable, folder / "venv"], check=True)
    [wheel] = folder.glob("*.whl")
    install = [uv, "pip", "install", "--quiet", "--python", python, "--config-file", folder / "uv.toml"]
    lock = ["--constraint", ROOT / "requirements" / "dev.txt"]
    subprocess.run([*install, *lock, f"slackwater[cli,infra,local] @ {wheel.as_uri()}"], check=True)
    yield python.parent
    shutil.rmtree(folder)


@pytest.fixture
def environment(programs: Path) -> dict[str, str]:
    """The variables of a user who has no clone, and whose cache has the downloads and builds of this one."""
    ours = ("AWS_", "PYTHON", "SLACKWATER_", "VIRTUAL_ENV")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = f"{programs}{os.pathsep}{inherited['PATH']}"
    return {**inherited, "PATH": path, "SLACKWATER_CACHE": str(ROOT / ".slackwater")}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, which is removed with everything in it."""
    yield tmp_path
    shutil.rmtree(tmp_path)


def expected_sales(orders: Path, day: date) -> list[list[Any]]:
    """The orders and the revenue of each shop on a day, computed without our code."""
    by_id = {order["order_id"]: order for order in map(json.loads, orders.read_text().splitlines())}
    amounts: dict[str, list[float]] = {}
    for order in by_id.values():
        local = datetime.fromisoformat(order["ordered_at"]).astimezone(ZoneInfo("Europe/Berlin"))
        if local.date() == day and isinstance(order["amount"], float) and order["amount"] >= 0:
            amounts.setdefault(order["shop"], []).append(order["amount"])
    return [[str(day), shop, len(paid), round(sum(paid), 2)] for shop, paid in sorted(amounts.items())]


@cache
def client(endpoint: str, service: str) -> Any:
    """Return the client of a service. Creating one takes as long as many calls."""
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    return boto3.client(service, endpoint_url=endpoint, region_name="us-east-1", **keys)


def start_by_schedule(endpoint: str, group: str, name: str) -> tuple[datetime, dict[str, Any]]:
    """Make a deployed schedule of a group due once, in two seconds.

    Return when, and the input of the execution that it starts, which has ended.
    """
    scheduler, states = client(endpoint, "scheduler"), client(endpoint, "stepfunctions")
    schedule = scheduler.get_schedule(GroupName=group, Name=name)
    members = ("GroupName", "Name", "FlexibleTimeWindow", "ScheduleExpressionTimezone", "Target")
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    local = due.astimezone(ZoneInfo(schedule["ScheduleExpressionTimezone"]))
    scheduler.update_schedule(
        **{member: schedule[member] for member in members}, ScheduleExpression=f"at({local:%Y-%m-%dT%H:%M:%S})"
    )
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        for machine in states.list_state_machines()["stateMachines"]:
            for execution in states.list_executions(stateMachineArn=machine["stateMachineArn"])["executions"]:
                if execution["name"].startswith(name):
                    described = states.describe_execution(executionArn=execution["executionArn"])
                    if described["status"] != "RUNNING":
                        return due, json.loads(described["input"])
        time.sleep(0.5)
    raise AssertionError(f"no execution that the schedule {name} has started has ended")


def resources(endpoint: str, prefix: str) -> set[tuple[str, str]]:
    """Return types and physical ids of the resources in the stacks of a deployment."""
    cloudformation = client(endpoint, "cloudformation")
    stacks = [stack["StackName"] for stack in cloudformation.describe_stacks()["Stacks"]]
    listed = cloudformation.get_paginator("list_stack_resources")
    return {
        (resource["ResourceType"], resource["PhysicalResourceId"])
        for stack in stacks
        if stack.startswith(f"{prefix}-") and stack.startswith(f"{STAGING}-") == (prefix == STAGING)
        for page in listed.paginate(StackName=stack)
        for resource in page["StackResourceSummaries"]
    }


def rows_of(endpoint: str, table: str) -> list[list[Any]]:
    """Read a published table as Athena does: Glue names its files, and no definition is needed."""
    s3 = {"endpoint": endpoint, "access-key-id": "test", "secret-access-key": "test", "region": "us-east-1"}
    catalog = GlueCatalog("glue", client(endpoint, "glue"), **{f"s3.{name}": value for name, value in s3.items()})
    rows = catalog.load_table(f"slackwater_staging_warehouse.{table}").scan().to_arrow().to_pylist()
    return [[str(row.pop("date")), *row.values()] for row in rows]


def contents(endpoint: str, of: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the objects of buckets and the items of tables, by the names of these. Other resources have none."""
    found = {}
    for kind, name in of:
        if kind == "AWS::S3::Bucket":
            objects = client(endpoint, "s3").get_paginator("list_objects_v2").paginate(Bucket=name)
            found[name] = sorted(
                f"{item['Key']} {item['ETag']}" for page in objects for item in page.get("Contents", [])
            )
        if kind == "AWS::DynamoDB::Table":
            items = client(endpoint, "dynamodb").get_paginator("scan").paginate(TableName=name)
            found[name] = sorted(json.dumps(item, sort_keys=True) for page in items for item in page["Items"])
    return found


def check_destroyed(result: dict[str, Any], endpoint: str, prefix: str, before: dict[str, list[str]]) -> None:
    """Check that no stack is left, and that buckets, tables and queues are, with the same objects and items."""
    assert resources(endpoint, prefix) == set()
    kept = [(resource["type"], resource["name"]) for resource in result["kept"]]
    assert Counter(kind.rpartition("::")[2] for kind, _ in kept) == {"Bucket": 3, "Table": 4, "Queue": 2}
    assert contents(endpoint, kept) == before
    queues = client(endpoint, "sqs").list_queues()["QueueUrls"]
    assert {name for kind, name in kept if kind == "AWS::SQS::Queue"} <= set(queues)


@dataclass(frozen=True)
class Shell:
    """A shell of a user, in a folder."""

    folder: Path
    environment: dict[str, str]

    def run(self, command: str) -> Any:
        """Run a command with `--json`; return its document."""
        words = [*shlex.split(command), "--json"]
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)

    def refused(self, command: str) -> str:
        """Run a command that refuses to do what it is told; return what it prints for people."""
        words = shlex.split(command)
        done = subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, ""), f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stderr


@pytest.fixture
def tutorial(folder: Path, environment: dict[str, str]) -> Iterator[Shell]:
    """The project of the tutorial, after all its commands but the last ones, which stop its cloud and its web server.

    Its buckets and tables are compared with those of minutes before: no arrival may start a check in between.
    """
    *commands, last = (block for kind, block in TUTORIAL if kind == "")
    assert last == "slackwater local down\nkill %1\n"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    project = Shell(folder / "tutorial" / "rides", environment)
    output = folder / "output"
    with output.open("w") as file:
        shell = subprocess.Popen(
            ["bash", "-e", "-c", "".join(commands).replace(TUTORIAL_PORT, port)],
            cwd=folder,
            env={**environment, "SLACKWATER_SET": "collect_minutes=0"},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        assert shell.wait() == 0, output.read_text()
        check_output(output.read_text())
        yield project
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGTERM)  # the web server
        if project.folder.exists():
            project.run(last.splitlines()[0])


def check_output(printed: str) -> None:
    """Check that the commands have printed what the page shows, which leaves out what follows three dots."""
    lines = [masked(line) for line in printed.splitlines()]
    shown = [line for kind, block in TUTORIAL if kind == "text" for line in block.splitlines()]
    page = [masked(line.partition("...")[0]) for line in shown]
    missing = [line for line in page if not any(printed_line.startswith(line) for printed_line in lines)]
    assert (bool(page), missing) == (True, []), printed


def masked(line: str) -> str:
    """Return a line without what differs from run to run, and with single blanks."""
    return re.sub("|".join(VARYING), "#", " ".join(line.split()))


def test_the_tutorial_and_the_readme_of_a_new_project_work_side_by_side_and_destroy_keeps_the_data_of_each(
    folder: Path, environment: dict[str, str], tutorial: Shell
) -> None:
    """The tutorial's project is the default deployment of an account, and that of `slackwater init` is in `staging`."""
    project = Path(Shell(folder, environment).run("slackwater init my_project")["project"])
    first_block = re.findall(r"```\n(.*?)```", (project / "README.md").read_text(), re.DOTALL)[0]
    up, deploy, push, run, query = commands = first_block.splitlines()
    assert [command.split()[1] for command in commands] == ["local", "deploy", "push", "run", "query"]
    cloud = tutorial.run("slackwater local status")
    endpoint = cloud["endpoint"]
    # `slackwater local up` would start a cloud of the project's own.
    staging = Shell(project, {**environment, **cloud["environment"], "SLACKWATER_ENVIRONMENT": "staging"})
    in_default = resources(endpoint, DEFAULT)
    of_default = contents(endpoint, in_default)
    deployed = staging.run(f"{deploy} --set waf=true --set collect_minutes=0")
    in_staging = resources(endpoint, STAGING)
    assert {kind for kind, _ in in_staging & in_default} == {"AWS::ApiGateway::Stage"}
    apis = [{kind.split("::")[1] for kind, _ in of} & APIS for of in (in_default, in_staging)]
    assert apis == [{"ApiGateway"}, {"ApiGateway", "WAFv2"}]
    pushed = staging.run(push)
    staging.run(run)
    # What a command has reported is on disk: the published day survives a kill directly after it.
    os.kill(cloud["pid"], signal.SIGKILL)
    assert "no local cloud runs here" in (refused := tutorial.refused("slackwater monitor"))
    assert "or add --aws to use AWS" in refused
    assert tutorial.run(up)["endpoint"] == endpoint
    sales = staging.run(query)
    due, started = start_by_schedule(endpoint, STAGING, "process-daily_sales")
    assert sorted(rows_of(endpoint, "daily_sales")) == sorted(sales["rows"])
    of_staging = contents(endpoint, in_staging)
    assert contents(endpoint, in_default) == of_default
    destroyed = staging.run("slackwater destroy --yes")
    check_destroyed(destroyed, endpoint, STAGING, of_staging)
    assert resources(endpoint, DEFAULT) == in_default
    assert contents(endpoint, in_default) == of_default
    definition = tutorial.folder / "pipelines" / "daily_rides.yaml"
    text = definition.read_text()
    definition.unlink()
    assert "this removes pipelines/daily_rides.yaml" in (refused := tutorial.refused("slackwater deploy"))
    assert "add --yes (slackwater deploy --yes), or restore the files" in refused
    definition.write_text(text)
    assert contents(endpoint, in_default) == of_default
    assert tutorial.run("slackwater pull rides --as-of 2024-03-11")["unchanged"] == 3
    of_default = contents(endpoint, in_default)
    check_destroyed(tutorial.run("slackwater destroy --yes"), endpoint, DEFAULT, of_default)
    assert contents(endpoint, in_staging) == of_staging
    assert sorted(deployed["changed"]) == sorted(destroyed["deleted"])
    assert len(deployed["changed"]) == 6
    # The latest day of Berlin that ended at least `buffer_hours` before the scheduled time.
    two_hours_before = (due - timedelta(hours=2)).astimezone(ZoneInfo("Europe/Berlin"))
    assert started["date"] == str(two_hours_before.date() - timedelta(days=1))
    assert started["correlation_id"] == f"process-daily_sales-{due:%Y%m%dT%H%M%SZ}"
    # A feature flag of the wheel's cdk.json: otherwise, tags of the app are also tags of its stacks.
    assembly = json.loads((project / "cdk.out" / "manifest.json").read_text())
    assert "tags" not in assembly["artifacts"][f"{STAGING}-storage"]["properties"]
    assert (pushed["accepted"], pushed["duplicates"], len(pushed["rejected"])) == (8, 1, 1)
    # No source has `counts`.
    [state] = [name for kind, name in in_staging if kind == "AWS::DynamoDB::Table" and "-StateTable" in name]
    assert {name for name, content in of_staging.items() if not content} == {state}
    assert sales["columns"] == ["date", "shop", "orders", "revenue"]
    assert sorted(sales["rows"]) == expected_sales(project / "data" / "orders.ndjson", date(2024, 3, 4))


def test_a_wheel_and_its_clone_give_runs_the_same_identity(
    programs: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    deployed = programs.parent / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    files = deployed / "slackwater" / "_deployed"
    done = subprocess.run(
        [programs / "python", "-P", "-c", _DIGESTS],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(files)},
        capture_output=True,
        text=True,
        check=True,
    )
    folder, digests = done.stdout.splitlines()
    assert folder == str(files)
    assert (files / "docs" / "site.yml").is_file()  # `slackwater docs serve` reads it
    assert CodeDigests.model_validate_json(digests) == code_digests(ROOT)
