"""A web server on loopback that sends scripted responses and records the requests."""

from __future__ import annotations

import hashlib
import io
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import urlsplit

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from slackwater.outbound.credentials import Credentials
from slackwater.outbound.guard import Outbound
from slackwater.receiver.connectors.http_connector import HttpConnector
from slackwater.sources.pull_config import PullConfig


@dataclass(frozen=True)
class Reply:
    """A response. Its `content-length` is the length of the body, unless `headers` sets it."""

    status: int = 200
    """0: the server closes the connection without a response."""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    sent: int | None = None
    """Bytes of the body after which the connection breaks off."""


@dataclass(frozen=True)
class RecordedRequest:
    """A recorded request."""

    method: str
    path: str
    """With its query."""
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes = b""


class Web:
    """A web server that runs until the `with` block ends."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[RecordedRequest] = []
        self.connections, self.closed = 0, Queue[bool]()
        """How many connections were made, and an item for each that was closed."""
        self.heads: int = 404
        """Status of the response to a HEAD request for a path without responses."""
        self._replies: dict[str, list[Reply]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "http" if tls is None else "https"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def entry(self) -> str:
        """The entry of `outbound_allow` for this server."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        """The paths of all requests, in order."""
        return [request.path for request in self.requests]

    def on(self, path: str, *replies: Reply) -> None:
        """Respond to `path` with these in order, and then always with the last one. Other paths get a 404."""
        self._replies[path] = list(replies)

    def reply(self, request: RecordedRequest) -> Reply:
        self.requests.append(request)
        replies = self._replies.get(request.path, [Reply(self.heads if request.method == "HEAD" else 404)])
        return replies.pop(0) if len(replies) > 1 else replies[0]

    def __enter__(self) -> Web:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(web: Web) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and body are two writes: the second would wait for an acknowledgement

        def setup(self) -> None:
            super().setup()
            web.connections += 1

        def finish(self) -> None:
            super().finish()
            web.closed.put(True)

        def do_GET(self) -> None:
            try:
                self.answer()
            except ConnectionError:  # the client has stopped waiting
                self.close_connection = True

        def answer(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers.get("content-length", 0)))
            reply = web.reply(RecordedRequest(self.command, self.path, headers, body))
            if not reply.status:
                self.close_connection = True
                return
            self.send_response_only(reply.status)
            length = {} if "Transfer-Encoding" in reply.headers else {"Content-Length": str(len(reply.body))}
            for name, value in {**length, **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(reply.body[: reply.sent])
            self.close_connection = reply.sent is not None

        do_HEAD = do_POST = do_GET  # noqa: N815 - names of http.server

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def connector_of(
    url: str,
    *,
    allow: Sequence[str] = (),
    files: str = "flights-{date}*.csv",
    credentials: Credentials | None = None,
    max_file_bytes: int = 1_000_000,
    waits: list[float] | None = None,
    transport: httpx.BaseTransport | None = None,
    **pull: Any,
) -> Iterator[HttpConnector]:
    """Yield a partner at `url`. It may connect to this server and to `allow`; `waits` records its pauses."""
    partner = HttpConnector(
        PullConfig(url=url, files=files, **pull),
        outbound=Outbound.of([urlsplit(url).netloc, *allow]),
        credentials=credentials,
        max_file_bytes=max_file_bytes,
        transport=transport,
        sleep=(waits if waits is not None else []).append,
    )
    with closing(partner):
        yield partner


def fetched(partner: HttpConnector, name: str = "flights-2013-03-08.csv") -> bytes:
    """Fetch a file and return its content; size and SHA-256 of the result are checked."""
    into = io.BytesIO(b"what was there before")
    download = partner.fetch(name, into)
    content = into.getvalue()
    assert (download.size, download.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    return content


def rest(content: bytes, start: int, end: int | None = None, **headers: str) -> Reply:
    """Return the response to a range request for a file with the ETag "one"."""
    part = content[start:end]
    content_range = f"bytes {start}-{start + len(part) - 1}/{len(content)}"
    return Reply(206, part, {"Accept-Ranges": "bytes", "ETag": '"one"', "Content-Range": content_range, **headers})


def tls_contexts(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The TLS contexts of a server of that name and of a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(private + pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem")
    return server, ssl.create_default_context(cadata=pem.decode())
