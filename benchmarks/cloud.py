"""The local cloud with a deployed project and the data of a day, and plain PySpark scripts beside its pipelines.

Also what the processes of a local cloud use: processor time, memory and bytes, which only Linux reports.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar
from unittest.mock import patch

from examples.nyc_flights import feed
from examples.nyc_flights.partner import PartnerServer
from slackwater import Client
from slackwater.client.events import read_events
from slackwater.client.workspace import Workspace
from slackwater.deploy.deploy import deploy
from slackwater.local import cloud, layout
from slackwater.local.emr.drivers import INPUT_BYTES
from slackwater.local.emr.runner import SparkRunner
from slackwater.local.emr.spark import Image
from slackwater.local.emr.submit import Submission
from slackwater.local.unpacked import Unpacked

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "nyc_flights"
DAY = "2013-03-08"
SOURCES = ("flights", "weather")
# `sources/flights.yaml` has the same port.
_PORT = 8713
_T = TypeVar("_T")


@contextmanager
def local_cloud(folder: Path, project: Path, settings: Mapping[str, str]) -> Iterator[Client]:
    """Deploy a project to a local cloud of its own, which starts nothing by itself unless the settings say so."""
    state = layout.Layout(folder)
    state.base.mkdir()
    state.jars.symlink_to(ROOT / ".slackwater" / "jars")
    running = cloud.up(folder)
    # The commands read the name of the cloud from the environment, not from a folder.
    workspace = Workspace(root=ROOT, project=project)
    try:
        with patch.dict(os.environ, running.environment()):
            deploy(workspace, {"schedule": "none", "collect_minutes": "0", **settings})
            with Client.open(workspace) as client:
                yield client
    finally:
        cloud.down(folder)


@contextmanager
def deployed(folder: Path, project: Path) -> Iterator[Client]:
    """Deploy a project with the example's sources to a local cloud of its own, and receive the data of `DAY`."""
    with local_cloud(folder, project, {}) as client:
        data = feed.make_feed(folder / "feed", [DAY])
        with PartnerServer(data.flights, port=_PORT):
            client.pull("flights", as_of=DAY)
        client.push("weather", read_events(str(data.weather)))
        yield client


def script(client: Client, folder: Path, path: Path, arguments: Sequence[str]) -> Callable[[], None]:
    """Return a function that runs a PySpark script with the catalog and the sizes of the pipelines' jobs.

    The script's arguments are `DAY`, the URIs of the objects of each source, and `arguments`. `folder` is that of
    `deployed`.
    """
    deployment = client.connection.deployment
    conf = dict(re.findall(r"--conf (\S+?)=(\S+)", deployment.spark_submit_parameters))
    # The script imports nothing but PySpark.
    conf = {key: value for key, value in conf.items() if key != "spark.archives" and "PYTHONPATH" not in key}
    # The UTC hours of a local day are of two dates.
    uris = [_objects(client, f"source={source}/") for source in SOURCES]
    submission = Submission(_uploaded(client, path), [DAY, *uris, *arguments], conf)
    jars, archives = layout.Layout(folder).jars.resolve(), Unpacked(folder / "archives")
    image = Image(os.environ["AWS_ENDPOINT_URL"], jars, archives)
    runner = SparkRunner(image=image, folder=folder / "plain", credentials=lambda _: layout.ROOT_CREDENTIALS)

    def run_script() -> None:
        result = runner.run("script", submission, log_prefix=None, stop=threading.Event())
        if result.exit_code:
            raise RuntimeError(f"the script failed: {result.error}")

    return run_script


def job(client: Client, path: Path, day: str, source: str, arguments: Sequence[str]) -> Callable[[], None]:
    """Return a function that runs a PySpark script as a job of the deployed application, as the pipelines' jobs run.

    The script's arguments are `day`, the URIs of the objects of the source on that day, and `arguments`.
    """
    deployment, prefix = client.connection.deployment, f"source={source}/date={day}/"
    input_bytes = sum(item.size for item in client.store.list(f"s3://{deployment.raw_bucket}/raw/{prefix}"))
    emr, application = client.connection.clients("emr-serverless"), deployment.application_id
    spark_submit = {
        "entryPoint": _uploaded(client, path),
        "entryPointArguments": [day, _objects(client, prefix), *arguments],
        # The same properties as those of a pipeline's job.
        "sparkSubmitParameters": f"{deployment.spark_submit_parameters} --conf {INPUT_BYTES}={input_bytes}",
    }
    role = _make_role(client)

    def run_job() -> None:
        run = emr.start_job_run(
            applicationId=application, executionRoleArn=role, jobDriver={"sparkSubmit": spark_submit}
        )["jobRunId"]
        while (state := emr.get_job_run(applicationId=application, jobRunId=run)["jobRun"])["state"] != "SUCCESS":
            if state["state"] in {"FAILED", "CANCELLED"}:
                raise RuntimeError(f"the script failed: {state['stateDetails']}")
            time.sleep(0.1)

    return run_job


def _uploaded(client: Client, path: Path) -> str:
    """Store a script where jobs find it. Return its URI."""
    uri = f"s3://{client.connection.deployment.exchange_bucket}/benchmark/{path.name}"
    client.store.put(uri, path.read_bytes())
    return uri


def _objects(client: Client, prefix: str) -> str:
    """Return the URIs of the raw objects below a prefix, separated by commas."""
    raw = f"s3://{client.connection.deployment.raw_bucket}/raw/{prefix}"
    return ",".join(item.uri for item in client.store.list(raw))


def _make_role(client: Client) -> str:
    """Return the ARN of a role for jobs that may do everything: the role of a pipeline may write its own table only."""
    trusted = {"Effect": "Allow", "Principal": {"Service": "emr-serverless.amazonaws.com"}, "Action": "sts:AssumeRole"}
    everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    iam, name = client.connection.clients("iam"), "benchmark"
    with suppress(iam.exceptions.EntityAlreadyExistsException):
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=_policy(trusted))
    iam.put_role_policy(RoleName=name, PolicyName=name, PolicyDocument=_policy(everything))
    arn: str = iam.get_role(RoleName=name)["Role"]["Arn"]
    return arn


def _policy(statement: Mapping[str, object]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def timed(call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    began = time.monotonic()
    call()
    return time.monotonic() - began


@dataclass
class Usage:
    """What the processes of a local cloud used during a call."""

    seconds: float = 0
    cpu: float = 0
    """Seconds of user and system time, with those of processes that have ended."""
    emulator_cpu: float = 0
    """Those of the emulator alone: on AWS, nobody pays for them."""
    peaks: dict[str, int] = field(default_factory=dict)
    """The largest resident memory in bytes that one process of a kind had, by kind. Sampled."""
    s3_read: int = 0
    """Bytes that the emulator has read from files: of a range, only the bytes of the range."""
    s3_written: int = 0
    """Bytes that the emulator has written to files: objects, and its state."""
    spark_written: int = 0
    """Bytes that processes of Spark have written to local disk, such as shuffles and spilled rows."""


class _Process(NamedTuple):
    kind: str
    parent: int
    own_cpu: float
    cpu: float
    rss: int
    read: int
    written: int
    on_disk: int


_SAMPLE_SECONDS = 0.2
# The emulator names a folder after the function; the others are named by a part of their command.
_FUNCTION = re.compile(r"/ministack-lambda-slackwater-(.+)-[^-/]+/_worker")
_KINDS = {
    "pyspark.daemon": "executor Python",
    "job_program.py": "driver Python",
    "org.apache.spark.deploy": "driver JVM",
}


def used(root: int, call: Callable[[], _T]) -> tuple[_T, Usage]:
    """Return the result of a call, and what the process `root` and all of its descendants use during it."""
    usage, first, done = Usage(), _processes(root), threading.Event()
    last = dict(first)

    def sample() -> None:
        while not done.wait(_SAMPLE_SECONDS):
            last.update(_processes(root))
            for process in last.values():
                usage.peaks[process.kind] = max(usage.peaks.get(process.kind, 0), process.rss)

    sampler = threading.Thread(target=sample)
    sampler.start()
    began = time.monotonic()
    try:
        result = call()
    finally:
        usage.seconds = time.monotonic() - began
        done.set()
        sampler.join()
    end = _processes(root)
    last.update(end)
    usage.cpu = sum(process.cpu for process in end.values()) - sum(process.cpu for process in first.values())
    usage.emulator_cpu = end[root].own_cpu - first[root].own_cpu
    usage.s3_read, usage.s3_written = end[root].read - first[root].read, end[root].written - first[root].written
    before = {pid: process.on_disk for pid, process in first.items()}
    usage.spark_written = sum(
        process.on_disk - before.get(pid, 0) for pid, process in last.items() if process.kind in _KINDS.values()
    )
    return result, usage


def _processes(root: int) -> dict[int, _Process]:
    """Return the process `root` and its descendants, by id."""
    everything = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            everything[int(folder.name)] = _read_process(folder, is_root=int(folder.name) == root)
    found, parents = {root: everything[root]}, {root}
    while parents := {pid for pid, process in everything.items() if process.parent in parents}:
        found |= {pid: everything[pid] for pid in parents}
    return found


def _read_process(folder: Path, *, is_root: bool) -> _Process:
    # Behind the name, which may have blanks, are the state and the parent, in fields 11 to 14 the ticks of user and
    # system time, its own and those of children that have ended, and in field 21 the pages of resident memory.
    fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    counts = dict(line.split(": ") for line in (folder / "io").read_text(encoding="utf-8").splitlines())
    command = (folder / "cmdline").read_text(encoding="utf-8", errors="replace")
    return _Process(
        kind="emulator" if is_root else _kind(command),
        parent=int(fields[1]),
        own_cpu=sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK"),
        cpu=sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"),
        rss=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        read=int(counts["rchar"]),
        written=int(counts["wchar"]),
        on_disk=int(counts["write_bytes"]),
    )


def _kind(command: str) -> str:
    if function := _FUNCTION.search(command):
        return function[1]
    return next((kind for part, kind in _KINDS.items() if part in command), "other")
