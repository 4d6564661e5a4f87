"""A bare local cloud for the tests of EMR Serverless: a bucket, applications and small drivers, nothing deployed."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from slackwater.local import cloud as local_cloud
from slackwater.local import jars
from slackwater.local.layout import Layout
from tests.cloud.roles import create_role

ROOT = Path(__file__).resolve().parents[2]
ROLE = "arn:aws:iam::000000000000:role/job"
BUCKET = "emr-tests"
FINAL = ("SUCCESS", "FAILED", "CANCELLED")

HELLO = "import sys; print('hello', *sys.argv[1:])"
SLEEPER = "import time; print('started', flush=True); time.sleep(600)"


class BareCloud:
    """A local cloud with nothing deployed; `client` returns an AWS client for it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = Layout(root)
        (self.files.base).mkdir()
        self.files.jars.symlink_to(ROOT / ".slackwater" / "jars")
        self.up()

    def up(self) -> None:
        self.cloud = local_cloud.up(self.root)
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        """Return the client of a service. Creating one takes as long as many calls."""
        if service not in self._clients:
            config = Config(retries={"total_max_attempts": 1}, request_checksum_calculation="when_required")
            session = boto3.session.Session("test", "test", region_name="us-east-1")
            self._clients[service] = session.client(service, endpoint_url=self.cloud.endpoint, config=config)
        return self._clients[service]

    @property
    def emr(self) -> Any:
        return self.client("emr-serverless")

    def code(self, name: str, program: str) -> str:
        """Write an entry point to S3. Return its URI."""
        self.client("s3").put_object(Bucket=BUCKET, Key=f"code/{name}", Body=program.encode())
        return f"s3://{BUCKET}/code/{name}"

    def application(self, **settings: Any) -> str:
        response = self.emr.create_application(releaseLabel="emr-spark-8.1.0", type="SPARK", **settings)
        return response["applicationId"]

    def start(self, application: str, entry_point: str, *arguments: str, parameters: str = "", **more: Any) -> str:
        driver: dict[str, Any] = {"entryPoint": entry_point, "entryPointArguments": list(arguments)}
        if parameters:
            driver["sparkSubmitParameters"] = parameters
        more = {"clientToken": str(uuid.uuid4()), "executionRoleArn": ROLE, **more}
        response = self.emr.start_job_run(applicationId=application, jobDriver={"sparkSubmit": driver}, **more)
        return response["jobRunId"]

    def job(self, application: str, job_run: str) -> dict[str, Any]:
        return self.emr.get_job_run(applicationId=application, jobRunId=job_run)["jobRun"]

    def until(self, application: str, job_run: str, *states: str, seconds: float = 180) -> dict[str, Any]:
        """Wait until a job run is in one of `states`, all final ones by default."""
        return wait_for(lambda: self.job(application, job_run), lambda job: job["state"] in (states or FINAL), seconds)

    def log(self, job_run: str, name: str = "stdout") -> str:
        return (self.files.jobs / job_run / name).read_text()


def wait_for(read: Callable[[], Any], accept: Callable[[Any], bool], seconds: float = 60) -> Any:
    """Call `read` until `accept` accepts its result; fail with the last result."""
    deadline = time.monotonic() + seconds
    while not accept(result := read()):
        assert time.monotonic() < deadline, f"after {seconds} s: {result}"
        time.sleep(0.1)
    return result


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z")


def bare_cloud(root: Path) -> Iterator[BareCloud]:
    """Start a bare cloud, and stop it."""
    jars.fetch(Layout(ROOT).jars)
    cloud = BareCloud(root)
    try:
        cloud.client("s3").create_bucket(Bucket=BUCKET)
        assert create_role(cloud.client("iam"), "job", "emr-serverless", "states") == ROLE
        yield cloud
    finally:
        local_cloud.down(root)
