"""The ledger's Iceberg table, read and committed with pyiceberg. `table_maintenance` removes its old snapshots."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from slackwater.aws.failures import translated
from slackwater.errors import DayChanged
from slackwater.late.entry import LedgerEntry
from slackwater.late.ledger import LedgerState
from slackwater.pipeline.definition import LEDGER_TABLE
from slackwater.runs.period import is_hour, row_condition

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_TYPES = {
    "date": DateType(),
    "arrived": TimestamptzType(),
    "decided_at": TimestamptzType(),
    "lateness_hours": DoubleType(),
    "cost_usd": DoubleType(),
    "metric_change_percent": DoubleType(),
    "rows": LongType(),
    "bytes": LongType(),
    "rows_differing": LongType(),
    "rows_before": LongType(),
    "table_rows": LongType(),
    "attempt": IntegerType(),
    "notified": BooleanType(),
    "hour": IntegerType(),
}
_OPTIONAL = frozenset(
    {
        *("file", "lateness_hours", "execution", "attempt"),
        *("cost_usd", "rows_differing", "metric", "metric_change_percent", "rows_before", "table_rows", "hour"),
    }
)
_SCHEMA = Schema(
    *(
        NestedField(number, name, _TYPES.get(name, StringType()), required=name not in _OPTIONAL)
        for number, name in enumerate(LedgerEntry._fields, start=1)
    )
)
_MONTH = _SCHEMA.find_field("month").field_id
_PARTITIONS = PartitionSpec(
    PartitionField(source_id=_MONTH, field_id=1000, transform=IdentityTransform(), name="month")
)
_PROPERTIES = {
    "format-version": "2",
    # Without these, the metadata that each commit writes and reads would grow with the number of commits.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    # A commit must fail when another one was faster: its rows are those that an older version lacks.
    "commit.retry.num-retries": "0",
}


@dataclass(frozen=True, kw_only=True)
class IcebergLedger:
    """`slackwater.late.ledger.LedgerTable` in an Iceberg catalog."""

    catalog: Catalog
    database: str

    def read(self, pipeline: str, dates: Collection[str]) -> LedgerState:
        """Return the rows of these days or hours of a pipeline. Creates the table if it does not exist.

        Raises `DayChanged` if another execution commits while columns are added: the same call can be repeated.
        """
        with translated(f"read the table {self._name}"):
            table = self._table()
            snapshot = table.current_snapshot()
            if snapshot is None:
                return LedgerState((), None)
            days = ", ".join(f"'{day}'" for day in sorted({name[:10] for name in dates}))
            # With the month, the read is bounded by the days and not by the age of the table.
            condition = f"month >= '{_first_month(min(dates)[:10])}' AND pipeline = '{pipeline}' AND date IN ({days})"
            rows = table.scan(row_filter=condition, snapshot_id=snapshot.snapshot_id).to_arrow()
        entries = (LedgerEntry(**row) for row in rows.to_pylist())
        return LedgerState([entry for entry in entries if entry.period in dates], snapshot.snapshot_id)

    def write(self, entries: Sequence[LedgerEntry], *, replaced: Sequence[LedgerEntry], version: int | None) -> bool:
        """Add rows, and replace all rows of the attempts of `replaced` by these, in one commit.

        Return False, without a change, if the table has another version by now.
        """
        added = [entry._asdict() for entry in (*entries, *replaced)]
        rows = pa.Table.from_pylist(added, schema=_SCHEMA.as_arrow())
        attempts = {(item.month, item.pipeline, item.period, item.attempt or 0) for item in replaced}
        with translated(f"write the table {self._name}"):
            table = self._table()
            snapshot = table.current_snapshot()
            if (snapshot.snapshot_id if snapshot else None) != version:
                return False
            try:
                with table.transaction() as transaction:
                    for month, pipeline, name, attempt in sorted(attempts):
                        condition = row_condition(name) if is_hour(name) else f"{row_condition(name)} AND hour IS NULL"
                        transaction.delete(
                            f"month = '{month}' AND pipeline = '{pipeline}' AND {condition} AND attempt = {attempt}"
                        )
                    transaction.append(rows)
            except CommitFailedException:
                return False
        return True

    @property
    def _name(self) -> str:
        return f"{self.database}.{LEDGER_TABLE}"

    def _table(self) -> Table:
        try:
            table = self.catalog.load_table(self._name)
        except NoSuchTableError:
            try:
                return self.catalog.create_table(
                    self._name, schema=_SCHEMA, partition_spec=_PARTITIONS, properties=_PROPERTIES
                )
            except TableAlreadyExistsError:  # another execution was faster
                table = self.catalog.load_table(self._name)
        if len(table.schema().fields) < len(_SCHEMA.fields):
            # An older release has created it.
            try:
                with table.update_schema() as update:
                    update.union_by_name(_SCHEMA)
            except CommitFailedException as error:
                raise DayChanged(f"another execution has changed the table {self._name} meanwhile") from error
        return table


def _first_month(first_date: str) -> str:
    """Return the earliest month, UTC, that a row of an ISO date or a later one can have."""
    # East of UTC, a local date begins on the UTC date before it.
    return (date.fromisoformat(first_date) - timedelta(days=1)).strftime("%Y-%m")
