"""Serve files of a folder as bodies of HTTP responses: `python -m benchmarks.hop_server FOLDER` prints the port."""

from __future__ import annotations

import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_CONTENT_TYPE = "application/vnd.apache.arrow.stream"


def main(folder: Path) -> None:
    bodies = {f"/{path.name}": path.read_bytes() for path in folder.iterdir()}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # a small body would wait 40 ms for the acknowledgement of the headers

        def do_GET(self) -> None:
            body = bodies[self.path]
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", _CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_arguments: object) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
