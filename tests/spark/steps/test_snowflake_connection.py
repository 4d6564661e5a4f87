"""The connection to Snowflake: what the connector gets, and the requests that the real connector sends."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator
from importlib import import_module
from itertools import groupby
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from fakesnow import server as serve
from pydantic import SecretStr
from snowflake import connector

from slackwater.errors import DefinitionError, OutboundRefused
from slackwater.outbound.credentials import Credentials
from slackwater.outbound.guard import Outbound
from slackwater.steps.io.postgres import Access
from slackwater.steps.io.snowflake_table import replace_day
from tests.fakes_snowflake import HOST, OUTBOUND, PASSWORD, SCHEMA, Snowflake, batch, fake_snowflake, parameters
from tests.postgres import FakeSecrets
from tests.spark.steps.conftest import run_of

# fakesnow calls a method of DuckDB that warns.
pytestmark = pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result:UserWarning")


@pytest.fixture
def snowflake() -> Iterator[Snowflake]:
    with fake_snowflake() as fake:
        yield fake


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def secrets_of(key: rsa.RSAPrivateKey) -> FakeSecrets:
    """Return a user with a key pair, as Snowflake's documentation makes it."""
    encoding, none = serialization.Encoding.PEM, serialization.NoEncryption()
    pem = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, none).decode()
    return FakeSecrets(Credentials(username="loader", private_key=SecretStr(pem)))


def test_what_the_connector_gets(snowflake: Snowflake, key: rsa.RSAPrivateKey) -> None:
    access = Access(secrets_of(key), OUTBOUND, None)
    replace_day(iter([batch((1, "x"))]), SCHEMA, parameters(), access, run_of(1))
    (arguments,) = snowflake.arguments
    der = serialization.load_der_private_key(arguments.pop("private_key"), password=None)
    assert der.private_numbers() == key.private_numbers()  # type: ignore[union-attr]
    session = arguments.pop("session_parameters")
    assert session == {"TIMEZONE": "UTC", "LOCK_TIMEOUT": 1800, "CLIENT_TELEMETRY_ENABLED": False}
    assert arguments == {
        "account": "acme-reports",
        "host": HOST,
        "port": 443,
        "database": "analytics",
        "autocommit": True,
        "warehouse": "loading",
        "role": "loader",
        "user": "loader",
        "authenticator": "SNOWFLAKE_JWT",
        "login_timeout": 60,
        "application": "slackwater",
    }


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, dict[str, list[str]], dict[str, Any]]]]:
    """The requests that the real connector sends to a server of `fakesnow`: path, query and body of each."""
    received: list[tuple[str, dict[str, list[str]], dict[str, Any]]] = []
    module = import_module("fakesnow.server")
    app = module.app

    async def recorded(scope: Any, receive: Any, send: Any) -> None:
        body = bytearray()

        async def receive_and_keep() -> Any:
            message = await receive()
            body.extend(message.get("body", b""))
            if message["type"] == "http.request" and not message.get("more_body") and scope["method"] == "POST":
                content = gzip.decompress(body) if body[:2] == b"\x1f\x8b" else bytes(body)
                received.append((scope["path"], parse_qs(scope["query_string"].decode()), json.loads(content or b"{}")))
            return message

        await app(scope, receive_and_keep if scope["type"] == "http" else receive, send)

    monkeypatch.setattr(module, "app", recorded)
    with serve() as server:
        here = {name: server[name] for name in ("host", "port", "protocol")}
        connect = connector.connect
        monkeypatch.setattr(connector, "connect", lambda **arguments: connect(**{**arguments, **here}))
        yield received


def test_the_requests_of_the_real_connector(requests: Any, key: rsa.RSAPrivateKey) -> None:
    with connector.connect(account="x", user="u", password="p", database="analytics", schema="shop") as own:
        own.cursor().execute("CREATE TABLE delays (date date, n int, s varchar)")
        requests.clear()
        access = Access(secrets_of(key), OUTBOUND, None)
        assert replace_day(iter([batch((1, "x"))]), SCHEMA, parameters(), access, run_of(1)) == (0, 1)
        (path, query, login), *others = requests
        assert own.cursor().execute("SELECT n, s FROM delays").fetchall() == [(1, "x")]
    assert path == "/session/v1/login-request"
    assert {name: query[name] for name in ("databaseName", "warehouse", "roleName")} == {
        "databaseName": ["analytics"],
        "warehouse": ["loading"],
        "roleName": ["loader"],
    }
    data = login["data"]
    assert (data["AUTHENTICATOR"], data["ACCOUNT_NAME"], data["LOGIN_NAME"]) == (
        "SNOWFLAKE_JWT",
        "acme-reports",
        "loader",
    )
    assert "PASSWORD" not in data
    claims = jwt.decode(data["TOKEN"], key.public_key(), algorithms=["RS256"])
    public = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    fingerprint = base64.b64encode(hashlib.sha256(public).digest()).decode()
    assert (claims["sub"], claims["iss"]) == ("ACME-REPORTS.LOADER", f"ACME-REPORTS.LOADER.SHA256:{fingerprint}")
    statements = [body["sqlText"].split()[0] for path, _, body in others if path == "/queries/v1/query-request"]
    # The connector may repeat a PUT, to get new credentials for the stage.
    assert [statement for statement, _ in groupby(statements)] == [
        *("CREATE", "INSERT", "CREATE", "PUT", "BEGIN", "UPDATE", "SELECT", "DELETE", "COPY", "SELECT", "COMMIT")
    ]


@pytest.mark.parametrize(
    ("credentials", "message"),
    [
        ({"token": "t"}, "Snowflake needs a `username` with a `private_key` or a `password`"),
        ({"username": "u", "private_key": "no key"}, "`private_key` is not an unencrypted private key in PEM"),
    ],
)
def test_credentials_that_do_not_fit(snowflake: Snowflake, credentials: dict[str, Any], message: str) -> None:
    access = Access(FakeSecrets(Credentials.model_validate(credentials)), OUTBOUND, None)
    with pytest.raises(DefinitionError, match=message):
        replace_day(iter(()), SCHEMA, parameters(), access, run_of(1))


def test_a_host_with_a_private_address_is_refused(snowflake: Snowflake) -> None:
    access = Access(PASSWORD, Outbound((), lambda host, port: ["10.0.0.5"]), None)
    with pytest.raises(OutboundRefused, match=r"10\.0\.0\.5"):
        replace_day(iter(()), SCHEMA, parameters(), access, run_of(1))
    assert snowflake.arguments == []
