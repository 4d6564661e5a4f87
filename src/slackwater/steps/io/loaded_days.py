"""The table `slackwater_loads`, which records in a target database which attempt has loaded a day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from slackwater.errors import InputError
from slackwater.runs.record import Run
from slackwater.steps.io.attempts import superseded

if TYPE_CHECKING:
    from psycopg import Connection

TABLE = "slackwater_loads"
_CREATE = (
    "CREATE TABLE IF NOT EXISTS {} (target text, pipeline text, day date, attempt bigint NOT NULL, "
    "PRIMARY KEY (target, pipeline, day))"
)
_RECORD = (
    "INSERT INTO {0} AS loads VALUES (%s, %s, %s, %s) ON CONFLICT (target, pipeline, day) "
    "DO UPDATE SET attempt = EXCLUDED.attempt WHERE loads.attempt <= EXCLUDED.attempt RETURNING attempt"
)


def create_loads_table(connection: Connection, table: str) -> None:
    """Create `slackwater_loads` in the schema of a table, an SQL identifier, and commit.

    Raises `InputError` with the statements for the owner of the schema if the role may not create it.
    """
    from psycopg import errors, sql

    schema, _ = _names(connection, table)
    loads = sql.Identifier(schema, TABLE)
    exists = connection.execute("SELECT to_regclass(%s)", [loads.as_string(connection)]).fetchone()
    if exists == (None,):
        # PostgreSQL refuses one of two statements that create the same table at the same time.
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"slackwater {schema}"])
        try:
            connection.execute(sql.SQL(_CREATE).format(loads))
        except errors.InsufficientPrivilege as error:
            connection.rollback()
            raise _not_allowed(connection, loads.as_string(connection)) from error
    connection.commit()


def record_load(connection: Connection, table: str, run: Run) -> None:
    """Record in the current transaction that the run's attempt loads its day into a table, an SQL identifier.

    Raises `Superseded` if a later attempt is recorded, and `InputError` with the statements for the owner if the
    role lacks a privilege.
    """
    from psycopg import errors, sql

    schema, target = _names(connection, table)
    loads = sql.Identifier(schema, TABLE)
    key = [target, run.pipeline, run.date]
    try:
        recorded = connection.execute(sql.SQL(_RECORD).format(loads), [*key, run.attempt]).fetchone()
    except errors.InsufficientPrivilege as error:
        connection.rollback()
        raise _not_allowed(connection, loads.as_string(connection)) from error
    if recorded is None:
        where = sql.SQL("{} WHERE target = {} AND pipeline = {} AND day = {}").format(loads, *map(sql.Literal, key))
        (later,) = connection.execute(sql.SQL("SELECT attempt FROM {}").format(where)).fetchone() or (0,)
        delete = sql.SQL("DELETE FROM {}").format(where).as_string(connection)
        raise superseded(table, later, run, remedy=f"execute {delete}, and run the day again")


def _names(connection: Connection, table: str) -> tuple[str, str]:
    """Return the names of the schema and of the table: `delays` and `public.delays` may be one table."""
    found = connection.execute(
        "SELECT nspname, relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE pg_class.oid = %s::regclass",
        [table],
    ).fetchone()
    schema, name = found or ("", "")
    return schema, name


def _not_allowed(connection: Connection, loads: str) -> InputError:
    from psycopg import sql

    role = sql.Identifier(connection.info.user).as_string(connection)
    return InputError(
        f"table: the role {role} may not create or write {loads}, which records the attempts that have loaded a day: "
        f"let the owner of the schema execute: {_CREATE.format(loads)}; "
        f"GRANT SELECT, INSERT, UPDATE ON {loads} TO {role};"
    )
