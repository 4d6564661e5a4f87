"""Slackwater without a clone: its wheel in an environment of its own, and the project that `slackwater init` writes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import partial
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import boto3
import pytest
from uv import find_uv_bin

from infra.app import ROOT
from infra.code_digest import code_digests
from slackwater.project import CodeDigests

pytestmark = pytest.mark.cloud

_DIGESTS = """
from slackwater.installation import deployed_files
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


def clients(endpoint: str) -> Callable[[str], Any]:
    return partial(
        boto3.client,
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def start_by_schedule(endpoint: str, name: str) -> tuple[datetime, dict[str, Any]]:
    """Make a deployed schedule due once, in two seconds.

    Return when, and the input of the execution that it starts, which has ended.
    """
    scheduler, states = clients(endpoint)("scheduler"), clients(endpoint)("stepfunctions")
    schedule = scheduler.get_schedule(GroupName="slackwater", Name=name)
    members = ("GroupName", "Name", "FlexibleTimeWindow", "ScheduleExpressionTimezone", "Target")
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    local = due.astimezone(ZoneInfo(schedule["ScheduleExpressionTimezone"]))
    scheduler.update_schedule(
        **{member: schedule[member] for member in members}, ScheduleExpression=f"at({local:%Y-%m-%dT%H:%M:%S})"
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for machine in states.list_state_machines()["stateMachines"]:
            for execution in states.list_executions(stateMachineArn=machine["stateMachineArn"])["executions"]:
                if execution["name"].startswith(name):
                    described = states.describe_execution(executionArn=execution["executionArn"])
                    if described["status"] != "RUNNING":
                        return due, json.loads(described["input"])
        time.sleep(0.5)
    raise AssertionError(f"no execution that the schedule {name} has started has ended")


def check_destroyed(result: dict[str, Any], endpoint: str) -> None:
    """Check that no stack is left, and that what partners have sent and what was published is still there."""
    client = clients(endpoint)
    stacks = [stack["StackName"] for stack in client("cloudformation").describe_stacks()["Stacks"]]
    assert [name for name in stacks if name.startswith("slackwater-")] == []
    kept = Counter(resource["type"].rpartition("::")[2] for resource in result["kept"])
    assert kept == {"Bucket": 3, "Table": 3, "Queue": 2}
    objects = {
        resource["name"].split("-")[1]: client("s3").list_objects_v2(Bucket=resource["name"])["KeyCount"]
        for resource in result["kept"]
        if resource["type"] == "AWS::S3::Bucket"
    }
    assert all(objects.values()), objects


def test_the_commands_of_a_new_projects_readme_publish_its_day_and_destroy_keeps_it(
    folder: Path, environment: dict[str, str]
) -> None:
    def run(command: str, cwd: Path) -> Any:
        done = subprocess.run(
            [*shlex.split(command), "--json"], cwd=cwd, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)

    project = Path(run("slackwater init my_project", folder)["project"])
    first_block = re.findall(r"```\n(.*?)```", (project / "README.md").read_text(), re.DOTALL)[0]
    commands = first_block.splitlines()
    assert [command.split()[1] for command in commands] == ["local", "deploy", "push", "run", "query"]
    try:
        results = [run(command, project) for command in commands]
        due, started = start_by_schedule(results[0]["endpoint"], "process-daily_sales")
        destroyed = run("slackwater destroy --yes", project)
        check_destroyed(destroyed, results[0]["endpoint"])
    finally:
        run("slackwater local down", project)
    _, deployed, pushed, _, sales = results
    assert sorted(deployed["changed"]) == sorted(destroyed["deleted"])
    assert len(deployed["changed"]) == 14
    # The latest day of Berlin that ended at least `buffer_hours` before the scheduled time.
    two_hours_before = (due - timedelta(hours=2)).astimezone(ZoneInfo("Europe/Berlin"))
    assert started["date"] == str(two_hours_before.date() - timedelta(days=1))
    assert started["correlation_id"] == f"process-daily_sales-{due:%Y%m%dT%H%M%SZ}"
    # A feature flag of the wheel's cdk.json: otherwise, tags of the app are also tags of its stacks.
    assembly = json.loads((project / "cdk.out" / "manifest.json").read_text())
    assert "tags" not in assembly["artifacts"]["slackwater-storage"]["properties"]
    assert (pushed["accepted"], pushed["duplicates"], len(pushed["rejected"])) == (8, 1, 1)
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
    assert CodeDigests.model_validate_json(digests) == code_digests(ROOT)
