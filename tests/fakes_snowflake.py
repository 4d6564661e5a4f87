"""Snowflake in tests: `fakesnow` executes Snowflake's SQL on DuckDB, behind the API of the real connector."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

import fakesnow
import pyarrow as pa
import pytest
from pydantic import SecretStr
from snowflake import connector

from slackwater.outbound.credentials import Credentials
from slackwater.outbound.guard import Outbound
from slackwater.steps.load.write_table import WriteTable
from tests.postgres import FakeSecrets

DAY, OTHER = date(2013, 3, 10), date(2013, 3, 9)
OLD = [(OTHER, 1, "other"), (DAY, 1, "old"), (DAY, 2, "old")]
HOST = "acme-reports.snowflakecomputing.com"
PARAMETERS = {
    "url": f"snowflake://{HOST}/analytics",
    "credentials": "secretsmanager:snowflake",
    "table": "shop.delays",
    "snowflake": {"warehouse": "loading", "role": "loader"},
}
PASSWORD = FakeSecrets(Credentials(username="LOADER", password=SecretStr("secret")))
OUTBOUND = Outbound((), lambda host, port: ["93.184.216.34"])
SCHEMA = pa.schema([("date", pa.date32()), ("n", pa.int32()), ("s", pa.string())])


def parameters(**changes: Any) -> WriteTable:
    return WriteTable.model_validate({**PARAMETERS, **changes})


class Snowflake:
    """A session of the test's own in the fake."""

    def __init__(self) -> None:
        self.arguments: list[dict[str, Any]] = []
        """What the step has given to the connector, for each connection."""
        self._cursor = connector.connect(database="analytics", schema="shop").cursor()

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        for statement in statements:
            self._cursor.execute(statement)
        return list(self._cursor.fetchall())

    def rows(self) -> list[tuple[Any, ...]]:
        return self.execute("SELECT date, n, s FROM delays ORDER BY date, n")


@contextmanager
def fake_snowflake() -> Iterator[Snowflake]:
    """The fake, with a table that has two rows of the day and one of another day."""
    with fakesnow.patch(), pytest.MonkeyPatch.context() as patch:
        fake = Snowflake()
        fake.execute(
            "CREATE TABLE delays (date date, n int, s varchar, added varchar DEFAULT 'default')",
            *(f"INSERT INTO delays (date, n, s) VALUES ('{day}', {n}, '{s}')" for day, n, s in OLD),
        )
        connect = connector.connect

        def recorded(**arguments: Any) -> Any:
            fake.arguments.append(arguments)
            return connect(**arguments)

        patch.setattr(connector, "connect", recorded)
        yield fake


def batch(*values: tuple[int, str], day: date = DAY) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"date": day, "n": n, "s": s} for n, s in values], schema=SCHEMA)
