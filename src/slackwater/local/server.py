"""The local cloud's process: `python -m slackwater.local.server --root DIR --listener FD`.

`slackwater.local.cloud` starts it with a socket that listens already, so that the port is known and cannot be lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from slackwater.local import emulator, emulator_queues, layout
from slackwater.local.checkpoint import Checkpointer, noting_requests
from slackwater.local.emr.api import EmrServerlessApi
from slackwater.local.emr.applications import Applications
from slackwater.local.emr.cloudformation import ApplicationResource
from slackwater.local.emr.jobs import JobRuns
from slackwater.local.emr.runner import SparkRunner
from slackwater.local.emr.step_functions import Integration
from slackwater.local.emr.store import Store
from slackwater.local.layers import shared_layer
from slackwater.local.monitoring import Monitoring

_KEEP_ALIVE_SECONDS = 75
Asgi = Callable[..., Awaitable[None]]


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="slackwater.local.server")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--listener", type=int, required=True, help="file descriptor of a listening socket")
    arguments = parser.parse_args()
    listener = socket.socket(fileno=arguments.listener)
    asyncio.run(_serve(layout.Layout(arguments.root.resolve()), listener))


async def _serve(place: layout.Layout, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    emulator.configure(state=place.state, objects=place.objects, port=port)
    from hypercorn.asyncio import serve  # noqa: PLC0415 - the emulator adjusts it, and must be imported first
    from hypercorn.config import Config  # noqa: PLC0415

    endpoint = f"http://{layout.HOST}:{port}"
    emulator.address_apis_by_path(endpoint)
    emulator.share_layers(lambda layer: shared_layer(layer, place.layers))
    emulator_queues.gather_batches()
    job_runs = _add_emr_serverless(place, endpoint=endpoint)
    checkpointer = Checkpointer(place.state, busy=lambda: job_runs.running() or emulator.executions_running())
    monitoring = Monitoring(checkpointer.touch)
    monitoring.register()
    app = _with_status(noting_requests(emulator.application(), checkpointer.touch), _facts(place, port))
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.keep_alive_timeout = _KEEP_ALIVE_SECONDS
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    going_on = [asyncio.create_task(checkpointer.run()), asyncio.create_task(monitoring.run())]
    try:
        await serve(app, config, shutdown_trigger=stopping.wait)
    finally:
        for task in going_on:
            task.cancel()
        job_runs.stop_all()


def _add_emr_serverless(place: layout.Layout, *, endpoint: str) -> JobRuns:
    store = Store()
    job_runs = JobRuns(store, SparkRunner(endpoint=endpoint, jars=place.jars, folder=place.jobs))
    api = EmrServerlessApi(store, Applications(store), job_runs, scope=emulator.request_scope)
    emulator.register_service("emr-serverless", api)
    Integration(api, job_runs).register()
    ApplicationResource(api).register()
    return job_runs


def _facts(place: layout.Layout, port: int) -> dict[str, Any]:
    return {
        "endpoint": f"http://{layout.HOST}:{port}",
        "pid": os.getpid(),
        "region": layout.REGION,
        "account": layout.ACCOUNT,
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "root": str(place.root),
    }


def _with_status(app: Asgi, facts: dict[str, Any]) -> Asgi:
    """Return `app`, answering with `facts` on the path by which a local cloud is known."""
    body = json.dumps(facts).encode()

    async def answering(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != layout.STATUS_PATH:
            await app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    return answering


if __name__ == "__main__":
    main()
