"""A bare local cloud for the tests of EMR Serverless: nothing deployed, a bucket, an application, small drivers."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from slackwater.local import cloud as local_cloud
from slackwater.local import jars
from slackwater.local.layout import Layout

ROOT = Path(__file__).resolve().parents[2]
ROLE = "arn:aws:iam::000000000000:role/job"
BUCKET = "emr-tests"
FINAL = ("SUCCESS", "FAILED", "CANCELLED")

HELLO = "import sys; print('hello', *sys.argv[1:])"
SLEEPER = "import time; print('started', flush=True); time.sleep(600)"


class Bare:
    """A local cloud with a bucket; `client` reaches it as any AWS SDK does."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.place = Layout(root)
        (self.place.base).mkdir()
        self.place.jars.symlink_to(ROOT / ".slackwater" / "jars")
        self.up()

    def up(self) -> None:
        self.cloud = local_cloud.up(self.root)

    def client(self, service: str) -> Any:
        config = Config(retries={"total_max_attempts": 1}, request_checksum_calculation="when_required")
        session = boto3.session.Session("test", "test", region_name="us-east-1")
        return session.client(service, endpoint_url=self.cloud.endpoint, config=config)

    @property
    def emr(self) -> Any:
        return self.client("emr-serverless")

    def code(self, name: str, text: str) -> str:
        """Keep an entry point in S3; return its address."""
        self.client("s3").put_object(Bucket=BUCKET, Key=f"code/{name}", Body=text.encode())
        return f"s3://{BUCKET}/code/{name}"

    def application(self, **settings: Any) -> str:
        created = self.emr.create_application(releaseLabel="emr-spark-8.0.0", type="SPARK", **settings)
        return created["applicationId"]

    def start(self, application: str, entry_point: str, *arguments: str, parameters: str = "", **more: Any) -> str:
        driver: dict[str, Any] = {"entryPoint": entry_point, "entryPointArguments": list(arguments)}
        if parameters:
            driver["sparkSubmitParameters"] = parameters
        more.setdefault("clientToken", str(uuid.uuid4()))
        answer = self.emr.start_job_run(
            applicationId=application, executionRoleArn=ROLE, jobDriver={"sparkSubmit": driver}, **more
        )
        return answer["jobRunId"]

    def job(self, application: str, job_run: str) -> dict[str, Any]:
        return self.emr.get_job_run(applicationId=application, jobRunId=job_run)["jobRun"]

    def until(self, application: str, job_run: str, *states: str, seconds: float = 180) -> dict[str, Any]:
        """Wait until a job run is in one of `states`, all final ones by default."""
        return waited(lambda: self.job(application, job_run), lambda job: job["state"] in (states or FINAL), seconds)

    def log(self, job_run: str, name: str = "stdout") -> str:
        return (self.place.jobs / job_run / name).read_text()


def waited(read: Callable[[], Any], enough: Callable[[Any], bool], seconds: float = 60) -> Any:
    """Read until it is enough; fail with what was read last."""
    deadline = time.monotonic() + seconds
    while not enough(found := read()):
        assert time.monotonic() < deadline, f"after {seconds} s: {found}"
        time.sleep(0.1)
    return found


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    """One bare cloud for a module's tests."""
    yield from _bare(tmp_path_factory.mktemp("bare"))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Bare]:
    """A bare cloud for one test, which may kill it."""
    yield from _bare(tmp_path)


def _bare(root: Path) -> Iterator[Bare]:
    jars.fetch(Layout(ROOT).jars)
    cloud = Bare(root)
    try:
        cloud.client("s3").create_bucket(Bucket=BUCKET)
        yield cloud
    finally:
        local_cloud.down(root)
