"""Saves the emulator's state while it runs: a kill then loses a second of changes, and not the deployed stacks.

The emulator itself saves its state only when it shuts down cleanly.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from slackwater.local import emulator

_LOG = logging.getLogger("slackwater.local")
# A request may have effects in other threads for this long after its response.
_SETTLING_SECONDS = 5
# The pause after a snapshot, as a multiple of the snapshot's duration. A snapshot blocks all requests, so snapshots may
# take about a twentieth of the time.
_PAUSE_FACTOR = 20
_MIN_PAUSE, _MAX_PAUSE = 1.0, 5.0  # seconds


class Checkpointer:
    """Saves the state of the services that changed since the last checkpoint."""

    def __init__(self, folder: Path, *, busy: Callable[[], bool]) -> None:
        """`busy` returns whether state may change without a request."""
        self._folder, self._busy = folder, busy
        self._saved_digests: dict[str, str] = {}
        self._last_request = 0.0
        self._saving = threading.Lock()

    def register(self) -> None:
        """Save at the end only what has changed since the last checkpoint: Lambda's layers take seconds."""
        emulator.save_at_the_end(lambda: self.save(self.snapshot()))

    def touch(self) -> None:
        """Record that a request has changed something."""
        self._last_request = time.monotonic()

    async def run(self) -> None:
        """Save a checkpoint about once a second while something may change; it runs until it is cancelled."""
        pause = _MIN_PAUSE
        while True:
            await asyncio.sleep(pause)
            if not self._busy() and time.monotonic() - self._last_request > _SETTLING_SECONDS:
                continue
            started = time.monotonic()
            try:
                states = self.snapshot()
                pause = min(_MAX_PAUSE, max(_MIN_PAUSE, _PAUSE_FACTOR * (time.monotonic() - started)))
                await asyncio.to_thread(self.save, states)
            except Exception:  # noqa: BLE001 - one failure must not end all checkpoints
                _LOG.exception("The checkpoint failed; the previous one stays valid")
                self._saved_digests.clear()  # the digests of states that were not written; write all of them next time

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of every state that changed.

        It is called on the event loop, which it blocks, so that all states are taken between the same two requests.
        """
        states = {}
        for service, get_state in emulator.service_states().items():
            # A thread of the service may change the state meanwhile, which Python notices: try again.
            for _ in range(5):
                try:
                    state = get_state()
                    break
                except RuntimeError as error:
                    _LOG.debug("The state of %s changed while it was copied: %s", service, error)
            else:
                continue  # the next checkpoint saves it
            digest = hashlib.sha256(json.dumps(state, default=_digest_value).encode()).hexdigest()
            if state is not None and self._saved_digests.get(service) != digest:
                states[service] = copy.deepcopy(state)
                self._saved_digests[service] = digest
        return states

    def save(self, states: Mapping[str, Any]) -> None:
        """Write the states to files, one for each service."""
        # All states are written beside the old files before the first one is renamed. Renaming takes microseconds, so a
        # kill hardly ever leaves files of two checkpoints, which could contradict each other.
        self._folder.mkdir(parents=True, exist_ok=True)
        paths = [self._folder / f"{service}.json" for service in states]
        # The last save waits for a checkpoint that is being written.
        with self._saving:
            for path, (service, state) in zip(paths, states.items(), strict=True):
                with path.with_suffix(".json.new").open("w", encoding="utf-8") as file:
                    emulator.write_state(service, state, file)
            for path in paths:
                path.with_suffix(".json.new").replace(path)


def _digest_value(value: Any) -> Any:
    """Return a JSON value that stands for `value` in a digest. Bytes are hashed: encoding big packages takes long."""
    if isinstance(value, bytes | bytearray):
        return [len(value), hash(bytes(value))]
    return emulator.to_json_value(value)
