"""What a client reads from the warehouse: the result of a query, and one version of a day."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from slackwater.errors import CloudError, InputError

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa

    from slackwater.aws.warehouse import Warehouse


class QueryResult:
    """The result of a SQL statement, in the form that is asked for.

    The statement runs when its rows are read, and again for another form, over the same objects.

    Reading raises `InputError` for a value that the statement cannot process, `CloudError` for an unreadable table.
    """

    def __init__(self, relation: duckdb.DuckDBPyRelation, connection: duckdb.DuckDBPyConnection) -> None:
        self._relation = relation
        self._connection = connection  # it holds the tables that the relation reads

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._relation.columns)

    @cached_property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as Python values."""
        with sql_errors():
            return self._relation.fetchall()

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        with sql_errors():
            return self._relation.to_arrow_table()

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a DataFrame. Raises `InputError` if pandas is not installed."""
        return to_pandas(self.to_arrow())


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """The rows of a day that one run has published. Its Iceberg tag keeps them readable when the day is run again."""

    pipeline: str
    date: str
    tag: str
    """The Iceberg tag of the version."""
    warehouse: Warehouse

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table. Raises `ObjectMissing` if the version does not exist, or `CloudError`."""
        return self.warehouse.version(self.pipeline, date=self.date, tag=self.tag)

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a DataFrame. Raises `ObjectMissing`, `CloudError`, and `InputError` without pandas."""
        return to_pandas(self.to_arrow())


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Return an Arrow table as a DataFrame. Raises `InputError` if pandas is not installed."""
    try:
        return table.to_pandas()
    except ModuleNotFoundError as error:
        raise InputError("to_pandas() needs pandas: pip install pandas") from error


@contextmanager
def sql_errors() -> Iterator[None]:
    """Raise DuckDB's errors about a statement as `InputError`, and about an unreadable table as `CloudError`."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        # DuckDB has no class for errors of Arrow, such as an unreadable file: only the message identifies them.
        if "reading the stream registered" in str(error):
            raise CloudError(f"a table could not be read to its end: {error}") from error
        raise InputError(f"SQL: {error}") from error
