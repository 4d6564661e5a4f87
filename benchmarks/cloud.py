"""The local cloud with a deployed project and the data of a day, and plain PySpark scripts beside its pipelines."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from examples.nyc_flights import feed
from examples.nyc_flights.partner import PartnerServer
from slackwater import Client
from slackwater.cli.cdk import deploy
from slackwater.client.sending.events import read_events
from slackwater.client.workspace import Workspace
from slackwater.local import cloud, layout
from slackwater.local.emr.execution.runner import SparkRunner
from slackwater.local.emr.execution.submit import Submission

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "nyc_flights"
DAY = "2013-03-08"
SOURCES = ("flights", "weather")
# `sources/flights.yaml` has the same port.
_PORT = 8713


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
def deployed(folder: Path, project: Path, settings: Mapping[str, str]) -> Iterator[Client]:
    """Deploy a project with the example's sources to a local cloud of its own, and receive the data of `DAY`."""
    with local_cloud(folder, project, settings) as client:
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
    entry_point = f"s3://{deployment.exchange_bucket}/benchmark/{path.name}"
    client.store.put(entry_point, path.read_bytes())
    # The UTC hours of a local day are of two dates.
    uris = [
        ",".join(item.uri for item in client.store.list(f"s3://{deployment.raw_bucket}/raw/source={source}/"))
        for source in SOURCES
    ]
    submission = Submission(entry_point, [DAY, *uris, *arguments], conf)
    runner = SparkRunner(
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        jars=layout.Layout(folder).jars,
        folder=folder / "plain",
        credentials=lambda _: layout.ROOT_CREDENTIALS,
    )

    def run_script() -> None:
        result = runner.run("script", submission, log_prefix=None, stop=threading.Event())
        if result.exit_code:
            raise RuntimeError(f"the script failed: {result.error}")

    return run_script


def timed(call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    began = time.monotonic()
    call()
    return time.monotonic() - began
