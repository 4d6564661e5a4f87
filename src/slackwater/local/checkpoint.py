"""Saves the emulator's state while it runs: a kill then loses seconds of changes, and not the deployed stacks.

The emulator itself saves its state only when it shuts down cleanly.
"""

from __future__ import annotations

import asyncio
import hashlib
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
# The pause after a checkpoint, as a multiple of its duration. Its snapshot blocks all requests, so snapshots may
# take less than a fiftieth of the time.
_PAUSE_FACTOR = 50
_MIN_PAUSE, _MAX_PAUSE = 2.0, 5.0  # seconds
# Bytes of this length or more are in a file of their own: two layers of functions make a document of 180 MB.
_LARGE_BYTES = 64 * 1024
_LARGE_FOLDER, _FILE_KEY = "bytes", "__slackwater_file__"
# The emulator's own folder for the code of functions: files with the digest as their name, and this suffix.
_CODE_FOLDER, _CODE_SUFFIX = "lambda-blobs", ".zip"


class Checkpointer:
    """Saves the state of the services that changed since the last checkpoint."""

    def __init__(self, folder: Path, *, busy: Callable[[], bool]) -> None:
        """`busy` returns whether state may change without a request."""
        self._folder, self._busy = folder, busy
        # The documents of the last checkpoint, by service, and the files of large bytes in it and in the present one.
        self._saved: dict[str, str] = {}
        self._files: dict[bytes, Path] = {}
        self._present: dict[bytes, Path] = {}
        self._last_request = 0.0
        self._order, self._saving = asyncio.Lock(), threading.Lock()
        self._ended = False

    def register(self) -> None:
        """Load large bytes from their files, and save at the end only what has changed since the last checkpoint."""
        emulator.load_values_with(self._from_json_value)
        emulator.keep_function_code()
        emulator.save_at_the_end(self._save_last)

    def touch(self) -> None:
        """Record that a request has changed something."""
        self._last_request = time.monotonic()

    async def run(self) -> None:
        """Save a checkpoint every few seconds while something may change; it runs until it is cancelled."""
        pause = _MIN_PAUSE
        while True:
            await asyncio.sleep(pause)
            if not self._busy() and time.monotonic() - self._last_request > _SETTLING_SECONDS:
                continue
            started = time.monotonic()
            try:
                await self.checkpoint()
            except Exception:  # noqa: BLE001 - one failure must not end all checkpoints
                _LOG.exception("The checkpoint failed; the previous one stays valid")
            pause = min(_MAX_PAUSE, max(_MIN_PAUSE, _PAUSE_FACTOR * (time.monotonic() - started)))

    async def checkpoint(self) -> None:
        """Save what has changed until now, after the checkpoints that have begun before. Raises `OSError`."""
        async with self._order:  # an older snapshot must not replace the files of a newer one
            await asyncio.to_thread(self.save, self.snapshot())

    def snapshot(self) -> dict[str, str]:
        """Return the JSON document of every state that changed since it was saved.

        It is called on the event loop, which it blocks, so that all states are taken between the same two requests.
        """
        documents = {}
        self._present = {}
        for service, get_state in emulator.service_states().items():
            # A thread of the service may change the state meanwhile, which Python notices: try again.
            for _ in range(5):
                try:
                    document = emulator.encode_state(service, get_state(), self._to_json_value)
                    break
                except RuntimeError as error:
                    reason = error
            else:
                _LOG.warning("The state of %s was not saved, the next checkpoint tries again: %s", service, reason)
                continue
            if document is not None and self._saved.get(service) != document:
                documents[service] = document
        self._files = self._present  # what no state has any more must not stay in memory
        return documents

    def save(self, documents: Mapping[str, str]) -> None:
        """Write the documents to files, one for each service; nothing after the last save."""
        with self._saving:
            if not self._ended:  # its thread may start late
                self._write(documents)

    def _write(self, documents: Mapping[str, str]) -> None:
        # All documents are written beside the old files before the first one is renamed. Renaming takes microseconds,
        # so a kill hardly ever leaves files of two checkpoints, which could contradict each other.
        self._folder.mkdir(parents=True, exist_ok=True)
        written = {}
        for service, document in documents.items():
            written[service] = self._folder / f"{service}.json.new"
            written[service].write_text(document, encoding="utf-8")
        for service, path in written.items():
            path.replace(path.with_suffix(""))
            self._saved[service] = documents[service]

    def _save_last(self) -> None:
        # The snapshot waits for a checkpoint that is being written: what it lacks is compared with that one.
        with self._saving:
            self._write(self.snapshot())
            self._ended = True
        # Only now: after a kill the cloud loads the last state that was saved, which may name files of earlier states.
        documents = [path.read_text(encoding="utf-8") for path in self._folder.glob("*.json")]
        for path in (*(self._folder / _LARGE_FOLDER).glob("*"), *(self._folder / _CODE_FOLDER).glob("*")):
            digest = path.name.removesuffix(_CODE_SUFFIX)
            if not any(digest in document for document in documents):
                path.unlink()

    def _to_json_value(self, value: Any) -> Any:
        """Return a value that JSON lacks as JSON; large bytes as the name of the file with them."""
        if not isinstance(value, bytes) or len(value) < _LARGE_BYTES:
            return emulator.to_json_value(value)
        path = self._files.get(value)  # Python keeps the hash of bytes: only the first look reads all of them
        if path is None:
            path = self._folder / _LARGE_FOLDER / hashlib.sha256(value).hexdigest()
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.with_suffix(".new").write_bytes(value)
                path.with_suffix(".new").replace(path)
        self._files[value] = self._present[value] = path
        return {_FILE_KEY: path.name}

    def _from_json_value(self, value: dict[str, Any]) -> Any:
        """Return the bytes that a JSON object stands for, and other objects as they are."""
        if _FILE_KEY not in value:
            return value
        path = self._folder / _LARGE_FOLDER / value[_FILE_KEY]
        content = path.read_bytes()
        self._files[content] = path
        return content
