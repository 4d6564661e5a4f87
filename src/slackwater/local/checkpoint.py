"""Keeps the emulator's state on disk while it runs, so that a kill loses a second and not the deployed stacks.

The emulator saves only when it shuts down in order. Here, whenever something may have changed, the states of all
services are taken at one instant, on the event loop, between two requests; the files that differ are written beside
the old ones and then take their places together.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from slackwater.local import emulator

_LOG = logging.getLogger("slackwater.local")
_SETTLING_SECONDS = 5
"""How long after a request its effects may still go on."""
_SHARE = 20
"""Taking states for S seconds is followed by about this times S seconds without."""
_LEAST_PAUSE, _MOST_PAUSE = 1.0, 5.0


class Checkpointer:
    """Writes what changed since the last time."""

    def __init__(self, folder: Path, *, busy: Callable[[], bool]) -> None:
        """`busy` says whether something is at work that no request announces."""
        self._folder, self._busy = folder, busy
        self._written: dict[str, str] = {}
        self._touched = 0.0

    def touch(self) -> None:
        """Say that a request came in."""
        self._touched = time.monotonic()

    async def run(self) -> None:
        """Write a checkpoint about once a second while there is something to write."""
        pause = _LEAST_PAUSE
        while True:
            await asyncio.sleep(pause)
            if not self._busy() and time.monotonic() - self._touched > _SETTLING_SECONDS:
                continue
            began = time.monotonic()
            try:
                changed = self.take()
                pause = min(_MOST_PAUSE, max(_LEAST_PAUSE, _SHARE * (time.monotonic() - began)))
                await asyncio.to_thread(self.write, changed)
            except Exception:  # noqa: BLE001 - what went wrong this time must not end all checkpoints
                _LOG.exception("This checkpoint failed; the one before it stands")
                self._written.clear()

    def take(self) -> dict[str, Any]:
        """Return a copy of the state of every service that changed. Call it on the event loop, which it holds up."""
        changed = {}
        for service, get_state in emulator.service_states().items():
            state = _taken(service, get_state)
            if state is None:
                continue
            fingerprint = _fingerprint(state)
            if self._written.get(service) != fingerprint:
                changed[service] = copy.deepcopy(state)
                self._written[service] = fingerprint
        return changed

    def write(self, states: Mapping[str, Any]) -> None:
        """Write states, all of them or, after a kill, as good as none."""
        self._folder.mkdir(parents=True, exist_ok=True)
        new = {}
        for service, state in states.items():
            path = self._folder / f"{service}.json"
            new[path] = path.with_suffix(".json.new")
            with new[path].open("w", encoding="utf-8") as file:
                emulator.write_state(service, state, file)
        for path, beside in new.items():
            beside.replace(path)


def _taken(service: str, get_state: Callable[[], Any]) -> Any:
    """Return a service's state; its own threads may change it meanwhile, which Python notices and we try again."""
    for _ in range(5):
        try:
            return get_state()
        except RuntimeError as error:
            _LOG.debug("The state of %s changed while it was taken: %s", service, error)
    return None


def _fingerprint(state: Any) -> str:
    """Return a digest of a state that is far cheaper than its document: Lambda's packages are not encoded for it."""
    return hashlib.sha256(json.dumps(state, default=_sketched).encode()).hexdigest()


def _sketched(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return [len(value), hash(bytes(value))]
    return emulator.plain(value)


def noting_requests(app: Callable[..., Awaitable[None]], touch: Callable[[], None]) -> Callable[..., Awaitable[None]]:
    """Return `app`, calling `touch` before and after every request."""

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        touch()
        try:
            await app(scope, receive, send)
        finally:
            touch()

    return noting
