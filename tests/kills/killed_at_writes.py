"""The handler of a deployed function that a test has set in its place: it kills the function's process at its writes.

For each write, by its operation and its position in the invocation, one process dies before it and one after it. After
a death, the next invocation lives: a message is delivered five times only. No part of the product knows this module;
the test changes the configuration of the deployed functions (`tests.cloud.deaths`).
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from botocore.client import BaseClient

FUNCTION, FOLDER = os.environ["AWS_LAMBDA_FUNCTION_NAME"], Path(os.environ["KILLED_FOLDER"])
WRITES = ("Put", "Update", "Delete", "Transact", "BatchWrite", "Send", "Invoke", "Start", "Complete", "Create")
READS = {"DeleteMessage"}
MAX_POSITION = 12

_call = BaseClient._make_api_call
_lock = threading.Lock()


class Invocation:
    """What the current invocation has done."""

    may_die = False
    positions = count(1)


def _die(side: str, position: int, operation: str) -> None:
    """Kill this process, unless one has died here before, or this function is spared."""
    with _lock:
        if not Invocation.may_die or (FOLDER / f"spared-{FUNCTION}").exists():
            return
        try:
            (FOLDER / f"{FUNCTION}@{position:02}-{operation}-{side}").touch(exist_ok=False)
        except FileExistsError:
            return
        (FOLDER / f"died-{FUNCTION}").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def _killing_call(client: Any, operation: str, arguments: Any) -> Any:
    if not operation.startswith(WRITES) or operation in READS:
        return _call(client, operation, arguments)
    position = next(Invocation.positions)
    if position > MAX_POSITION:
        return _call(client, operation, arguments)
    _die("before", position, operation)
    result = _call(client, operation, arguments)
    _die("after", position, operation)
    return result


BaseClient._make_api_call = _killing_call
_module, _, _name = os.environ["KILLED_HANDLER"].rpartition(".")
_handler = getattr(importlib.import_module(_module), _name)


def handler(event: Any, context: Any) -> Any:
    """Call the function's own handler."""
    Invocation.positions = count(1)
    Invocation.may_die = True
    with suppress(FileNotFoundError):
        (FOLDER / f"died-{FUNCTION}").unlink()
        Invocation.may_die = False
    return _handler(event, context)
