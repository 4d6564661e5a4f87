"""Versity S3 Gateway: a second implementation of S3, on a folder. `make peers` builds it."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[1] / ".slackwater" / "peers" / "versitygw"
ACCESS_KEY, SECRET_KEY = "test", "test"
_START_SECONDS = 60


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Run the gateway, with its buckets in an empty `folder`, until the block ends. The result is its endpoint."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(PROGRAM), "--quiet", "--keep-alive", "--access", ACCESS_KEY, "--secret", SECRET_KEY]
    command += ["--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(folder / "metadata"), str(folder / "buckets")]
    for name in ("metadata", "buckets"):
        (folder / name).mkdir()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _accepts(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"versitygw did not start:\n{(folder / 'log').read_text()}")
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
