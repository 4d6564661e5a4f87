"""Write late inputs and their handling to the ledger: the last task of a monitoring."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel

from slackwater.aws import ledger_table, warehouse  # noqa: F401 - a second, which the first call should not take
from slackwater.aws.function import with_correlation_id
from slackwater.aws.function_resources import function_resources
from slackwater.late.ledger import Ledger

logger = Logger()


class WriteLedgerRequest(BaseModel):
    """Input from the state machine."""

    pipeline: str
    report: str
    """URI of the monitoring's `CheckReport`."""
    execution: str
    """ARN of the monitoring execution."""
    correlation_id: str


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return the number of new rows."""
    request = WriteLedgerRequest.model_validate(event)
    ledger: Ledger = function_resources().ledger
    rows = ledger.write(pipeline=request.pipeline, report=request.report, execution=request.execution)
    logger.info("ledger written", extra={"pipeline": request.pipeline, "rows": rows})
    return {"rows": rows}
