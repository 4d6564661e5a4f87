"""A real OIDC issuer on this machine: a discovery document, published keys, and tokens signed with them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

_ALGORITHMS = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


def private_key(algorithm: str) -> Any:
    match algorithm:
        case "RS256":
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case _:
            return ed25519.Ed25519PrivateKey.generate()


def public_jwk(algorithm: str, key: Any, kid: str) -> dict[str, Any]:
    return {**_ALGORITHMS[algorithm].to_jwk(key.public_key(), as_dict=True), "kid": kid}


class Issuer:
    """A context manager. It records the requested paths; `answers` overrides the response to a path."""

    def __init__(self) -> None:
        self.keys: list[dict[str, Any]] = []
        self.requested: list[str] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_port}/realms/partners"
        self.name = self.url
        """Its name in the discovery document."""

    def __enter__(self) -> Issuer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def token(self, key: Any, claims: Mapping[str, Any], *, algorithm: str, **header: Any) -> str:
        return jwt.encode(dict(claims), key, algorithm=algorithm, headers=header)

    def _answer(self, path: str) -> tuple[int, bytes]:
        self.requested.append(path.rpartition("/")[2])
        if path in self.answers:
            return self.answers[path]
        documents = {
            "/realms/partners/.well-known/openid-configuration": {"issuer": self.name, "jwks_uri": f"{self.url}/keys"},
            "/realms/partners/keys": {"keys": self.keys},
        }
        return (200, json.dumps(documents[path]).encode()) if path in documents else (404, b"")

    def _handler(issuer) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the request's
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = issuer._answer(self.path)
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler
