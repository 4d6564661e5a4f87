"""The partner of this example: an HTTP server that lists and serves the files of a folder.

    python examples/nyc_flights/partner.py --port 8713 --folder DIR

`GET /flights` returns a JSON listing (name, size, modified, etag), `GET /flights/` an index page, and
`GET /flights/<name>` a file or the requested range of it; HEAD returns the same headers. Files may be added, changed
and removed while the server runs. It listens on loopback only.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import json
import re
import threading
from collections import Counter
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

HOST = "127.0.0.1"
ROOT = "/flights"
# One range of bytes: `bytes=0-99`, `bytes=100-` or `bytes=-50` (the last 50). For several ranges, the server sends the
# whole file, which HTTP allows.
_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)")


class PartnerServer:
    """The server. As a context manager, it runs until the block ends. `path` is that of the listing.

    Tests make it fail with `vanishing`, `failing` and `cutting`.
    """

    def __init__(self, folder: Path, *, port: int = 0, path: str = ROOT) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.path = path
        self.requests: Counter[str] = Counter()
        """Number of requests by path."""
        self.vanishing: set[str] = set()
        """Names of files that are listed, but cannot be fetched."""
        self.failing: dict[str, int] = {}
        """How many of the next requests get status 503, by path."""
        self.cutting: dict[str, list[int]] = {}
        """For the next responses, by path: the number of bytes after which the connection breaks off."""
        self._server = ThreadingHTTPServer((HOST, port), _handler(self))
        # `shutdown` waits for the next poll, which by default would be up to 0.5 s for each test.
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def port(self) -> int:
        """The port that the server listens on. With port 0 in the constructor, it is a free one."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """URL of the listing."""
        return f"http://{HOST}:{self.port}{self.path}"

    def start(self) -> PartnerServer:
        """Start serving in a thread, and return the server."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> PartnerServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def put(self, name: str, content: bytes | str) -> None:
        """Add or replace a file atomically."""
        # Names that begin with a dot are neither listed nor served.
        new = self.folder / f".{name}"
        new.write_bytes(content.encode() if isinstance(content, str) else content)
        new.rename(self.folder / name)

    def remove(self, name: str) -> None:
        """Remove a file."""
        (self.folder / name).unlink()

    def listing(self) -> list[dict[str, Any]]:
        """Return the listing of `GET /flights`."""
        paths = sorted(path for path in self.folder.iterdir() if path.is_file() and not path.name.startswith("."))
        return [_entry(path) for path in paths]

    def index(self) -> str:
        """Return the page of `GET /flights/`."""
        names = [entry["name"] for entry in self.listing()]
        links = "".join(f'<li><a href="{quote(name)}">{html.escape(name)}</a></li>\n' for name in names)
        return f"<!DOCTYPE html>\n<title>Index of {self.path}/</title>\n<ul>\n{links}</ul>\n"

    def count_request(self, path: str) -> bool:
        """Count a request; return whether it must fail."""
        self.requests[path] += 1
        left = self.failing.get(path, 0)
        self.failing[path] = max(0, left - 1)
        return left > 0

    def read(self, name: str) -> bytes | None:
        """Return a file's content, or None if the folder has no such file or it is in `vanishing`."""
        path = self.folder / name
        if name in self.vanishing or name.startswith(".") or path.parent != self.folder or not path.is_file():
            return None
        return path.read_bytes()


def _entry(path: Path) -> dict[str, Any]:
    content, modified = path.read_bytes(), datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return {"name": path.name, "size": len(content), "modified": modified.isoformat(), "etag": _etag(content)}


def _etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def _handler(partner: PartnerServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and body are two writes: the second would wait for an acknowledgement

        def do_GET(self) -> None:
            path = unquote(self.path.partition("?")[0])
            if partner.count_request(path):
                # `Retry-After: 0`, so that tests of retries do not wait.
                self._send(HTTPStatus.SERVICE_UNAVAILABLE, b"busy\n", {"Retry-After": "0"})
            elif path == partner.path:
                listing = json.dumps(partner.listing()).encode()
                self._send(HTTPStatus.OK, listing, {"Content-Type": "application/json"})
            elif path == f"{partner.path}/":
                self._send(HTTPStatus.OK, partner.index().encode(), {"Content-Type": "text/html; charset=utf-8"})
            elif (
                path.startswith(f"{partner.path}/")
                and (content := partner.read(path[len(partner.path) + 1 :])) is not None
            ):
                self._send_file(content)
            else:
                self._send(HTTPStatus.NOT_FOUND, b"no such file\n", {})

        def do_HEAD(self) -> None:
            self.do_GET()

        def _send_file(self, content: bytes) -> None:
            headers = {"Content-Type": "text/csv", "ETag": _etag(content), "Accept-Ranges": "bytes"}
            requested = _RANGE.fullmatch(self.headers.get("Range", ""))
            is_current = self.headers.get("If-Range", headers["ETag"]) == headers["ETag"]
            if requested is None or not any(requested.groups()) or not is_current:
                self._send(HTTPStatus.OK, content, headers)
                return
            first, end = _bounds(requested, len(content))
            if first >= end:
                headers["Content-Range"] = f"bytes */{len(content)}"
                self._send(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, b"", headers)
                return
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{len(content)}"
            self._send(HTTPStatus.PARTIAL_CONTENT, content[first:end], headers)

        def _send(self, status: HTTPStatus, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            if cuts := partner.cutting.get(unquote(self.path)):
                body = body[: cuts.pop(0)]
                self.close_connection = True
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write no log."""

    return Handler


def _bounds(requested: re.Match[str], size: int) -> tuple[int, int]:
    """Return the first byte of the requested range, and the end (exclusive), for a file of that size."""
    first, last = requested.groups()
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size


def main() -> None:
    """Serve a folder until interrupted."""
    parser = argparse.ArgumentParser(description="The partner of the nyc_flights example: serves a folder's files.")
    parser.add_argument("--port", type=int, default=8713)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    with PartnerServer(arguments.folder, port=arguments.port) as partner:
        print(f"serving {arguments.folder} at {partner.url}", flush=True)  # noqa: T201
        threading.Event().wait()


if __name__ == "__main__":
    main()
