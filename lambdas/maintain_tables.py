"""Maintain the files of the ledger and of published tables: a rule of every day invokes it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from aws_lambda_powertools import Logger

from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import function_resources
from slackwater.errors import CloudError

logger = Logger()
# Lambda ends the function after 15 minutes, and a table takes seconds, or a minute to rewrite.
_LIMIT = timedelta(minutes=10)


@with_correlation_id(logger)
def handler(_event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return by table what was done, where anything was. Raises `CloudError` at the end if a table has failed."""
    resources = function_resources()
    done = resources.table_maintenance.maintain_all(resources.project.pipelines, limit=_LIMIT)
    changed = {name: table._asdict() for name, table in done.tables.items() if any(table)}
    logger.info("tables maintained", extra={"tables": len(done.tables), "changed": changed})
    if done.failures:
        raise CloudError(f"{len(done.failures)} tables were not maintained: {'; '.join(done.failures)}")
    return changed
