"""Iceberg tables in the Glue catalog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError

from slackwater.aws.failures import code_of, translated, unless_refused
from slackwater.errors import InputError

_CURRENT = "iceberg.field.current"


class GlueTables:
    """A `slackwater.runs.inputs.foreign_tables.TableCatalog` over Glue."""

    def __init__(self, clients: Callable[[str], Any]) -> None:
        # Most pipelines read no such table, so the client is created when it is needed.
        self._clients = clients

    def metadata_uri(self, database: str, table: str) -> str:
        """Return the URI of the table's current metadata.

        Raises `InputError` if there is no such table or it is no Iceberg table, `AccessDenied`, and `CloudError`.
        """
        name = f"{database}.{table}"
        with translated(f"read the table {name} of the Glue catalog"):
            try:
                found = self._clients("glue").get_table(DatabaseName=database, Name=table)["Table"]
            except ClientError as error:
                if code_of(error) == "EntityNotFoundException":
                    raise InputError(f"the Glue catalog of this account and region has no table {name}") from error
                raise
        parameters: dict[str, str] = found.get("Parameters", {})
        if parameters.get("table_type", "").upper() != "ICEBERG" or "metadata_location" not in parameters:
            raise InputError(f"{name} is not an Iceberg table: only these have snapshots that a run can read")
        return parameters["metadata_location"]

    def columns(self, database: str, table: str) -> tuple[str, ...]:
        """Return the present columns of an Iceberg table; none without the table.

        Raises `AccessDenied` and `CloudError`.
        """
        with translated(f"read the columns of the table {database}.{table}"):
            found = unless_refused(
                "EntityNotFoundException", lambda: self._clients("glue").get_table(DatabaseName=database, Name=table)
            )
        columns = found["Table"].get("StorageDescriptor", {}).get("Columns", []) if found else []
        # Iceberg also lists the columns of earlier schemas.
        return tuple(each["Name"] for each in columns if each.get("Parameters", {}).get(_CURRENT) != "false")
