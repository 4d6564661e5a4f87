"""Contents of layers and archives, each unpacked once for all local clouds of this machine."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Lock


class Unpacked:
    """A folder of unpacked contents, each named by a digest. Several processes may use it at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = Lock()

    def find(self, digest: str) -> Path | None:
        """Return the folder of a content, if it has been unpacked; it counts as used now."""
        found = self.folder / digest
        try:
            os.utime(found)
        except FileNotFoundError:
            return None
        return found

    def add(self, digest: str, unpack: Callable[[Path], None]) -> Path:
        """Return the folder of a content, which `unpack` writes into an empty folder if it is not there.

        Raises what `unpack` raises; then nothing is added.
        """
        with self._lock:
            if found := self.find(digest):
                return found
            self.folder.mkdir(parents=True, exist_ok=True)
            # Renamed when it is complete: a process that is killed leaves no folder that others would find.
            partial = Path(tempfile.mkdtemp(dir=self.folder, prefix="partial-"))
            try:
                unpack(partial)
                partial.rename(self.folder / digest)
            except OSError:
                if not (self.folder / digest).exists():  # another process has not been faster
                    raise
            finally:
                shutil.rmtree(partial, ignore_errors=True)
            return self.folder / digest
