"""The process of the local cloud: `python -m slackwater.local.server --root DIR --listener FD`.

`slackwater.local.cloud` starts it with a socket that already listens, so that no other process can take the port.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slackwater.local import emulator, lambda_workers, layout
from slackwater.local.checkpoint import Checkpointer
from slackwater.local.emr import cloudformation, spark, step_functions
from slackwater.local.emr.api import EmrServerlessApi
from slackwater.local.emr.drivers import Drivers
from slackwater.local.emr.jobs import JobRuns
from slackwater.local.emr.runner import SparkRunner
from slackwater.local.emr.store import EmrStore
from slackwater.local.fork_server import ForkServers
from slackwater.local.services import (
    airflow,
    composite_alarms,
    permissions,
    queues,
    recursive_loops,
    rest_apis,
    state_machines,
    tables,
    task_tokens,
    web_acls,
)
from slackwater.local.services.monitoring import Monitoring
from slackwater.local.services.schedules import Schedules
from slackwater.local.unpacked import Unpacked
from slackwater.project.installation import cache_folder, deployed_files, remove_unused_folders

# Hypercorn's default of 5 s would close connections that SDKs still keep in their pools.
_KEEP_ALIVE_SECONDS = 75
# How long jobs may take to end when the cloud is stopped. Most end at once.
_JOB_SECONDS = 10
Asgi = Callable[..., Awaitable[None]]


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="slackwater.local.server")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--listener", type=int, required=True, help="file descriptor of a listening socket")
    arguments = parser.parse_args()
    listener = socket.socket(fileno=arguments.listener)
    asyncio.run(_serve(layout.Layout(arguments.root.resolve()), listener))


async def _serve(files: layout.Layout, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    endpoint = f"http://{layout.HOST}:{port}"
    # The order matters: settings before the emulator is imported, extensions before it loads its state and serves.
    emulator.configure(state=files.state, objects=files.objects, port=port)
    from hypercorn.asyncio import serve  # noqa: PLC0415 - the emulator patches it and must be imported first
    from hypercorn.config import Config  # noqa: PLC0415

    emulator.name_services()
    emulator.read_objects_in_parts()
    emulator.list_objects_in_pages()
    _remove_leftovers(files.jobs)
    _register_apis(endpoint, files)
    forks = ForkServers()
    lambda_workers.register(_unpacked("layers"), forks, cores=os.cpu_count() or 1)
    for service in (permissions, queues, recursive_loops, tables, task_tokens):
        service.register()
    Schedules().register()
    state_machines.complete_states()
    state_machines.require_permissions()
    state_machines.stop_with_parents()
    store = EmrStore()
    image = spark.Image(endpoint, files.jars.resolve(), _unpacked("archives"))
    drivers = Drivers(store, image=image, folder=files.jobs, forks=forks)
    job_runs = JobRuns(
        store, SparkRunner(image=image, folder=files.jobs, credentials=store.job_credentials, drivers=drivers)
    )
    api = EmrServerlessApi(store, job_runs)
    emulator.register_service("emr-serverless", api)
    step_functions.register(api, store, job_runs)
    cloudformation.register(api)
    composite_alarms.register()
    checkpointer = Checkpointer(files.state, busy=lambda: job_runs.running() or state_machines.executions_running())
    checkpointer.register()
    monitoring = Monitoring(checkpointer.touch)
    monitoring.register()
    status = {
        "endpoint": endpoint,
        "pid": os.getpid(),
        "region": layout.REGION,
        "account": layout.ACCOUNT,
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "root": str(files.root),
    }
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.keep_alive_timeout = _KEEP_ALIVE_SECONDS
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    tasks = [asyncio.create_task(checkpointer.run()), asyncio.create_task(monitoring.run())]
    threading.Thread(target=drivers.run, name="drivers", daemon=True).start()
    try:
        app = _with_status(emulator.application(), status, checkpointer)
        await serve(app, config, shutdown_trigger=stop.wait)
    finally:
        for task in tasks:
            task.cancel()
        job_runs.stop_all(_JOB_SECONDS)
        drivers.close()
        _remove_leftovers(files.jobs)


def _register_apis(endpoint: str, files: layout.Layout) -> None:
    """Extend the services of REST APIs: API Gateway, its web ACLs, and Airflow's."""
    rest_apis.register(endpoint)
    web_acls.register()
    airflow.register(files.airflow)


def _unpacked(name: str) -> Unpacked:
    """Return the contents that all local clouds share below a name, without those that none has used for long."""
    folder = cache_folder(deployed_files()) / "unpacked" / name
    remove_unused_folders(folder)
    return Unpacked(folder)


def _remove_leftovers(jobs: Path) -> None:
    """Remove the credentials and the temporary files of jobs that ran when a process was killed or stopped."""
    for folder in jobs.glob("*"):
        spark.remove_private_files(folder)


def _with_status(app: Asgi, status: dict[str, Any], checkpointer: Checkpointer) -> Asgi:
    """Return `app` with responses for the paths of the status and of a checkpoint; every other request is recorded."""
    body = json.dumps(status).encode()

    async def respond(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] in {layout.STATUS_PATH, layout.SAVE_PATH}:
            if scope["path"] == layout.SAVE_PATH:
                await checkpointer.checkpoint()
            headers = [(b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        checkpointer.touch()
        try:
            await app(scope, receive, send)
        finally:
            checkpointer.touch()

    return respond


if __name__ == "__main__":
    main()
