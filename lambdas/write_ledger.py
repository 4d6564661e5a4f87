"""Write late inputs and their handling to the ledger: the last task of a monitoring."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel

from slackwater.aws.clients import CONFIG, Clients
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.executions.state_machines import StepFunctionsExecutions
from slackwater.aws.function import FunctionEnvironment, with_correlation_id
from slackwater.aws.ledger_table import IcebergLedger
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.warehouse import open_catalog_to_write
from slackwater.late.ledger import Ledger
from slackwater.project.project import Project

logger = Logger()


class WriteLedgerEnvironment(FunctionEnvironment):
    """Settings of this function."""

    exchange_bucket: str
    run_table: str
    project_uri: str
    warehouse_database: str


class WriteLedgerRequest(BaseModel):
    """Input from the state machine."""

    pipeline: str
    report: str
    """URI of the monitoring's `CheckReport`."""
    execution: str
    """ARN of the monitoring execution."""
    correlation_id: str


@cache
def build_ledger() -> Ledger:
    """Build the ledger, once per process."""
    environment, clients = WriteLedgerEnvironment.read(), Clients(CONFIG)
    store = S3ObjectStore(clients("s3"))
    return Ledger(
        project=Project.model_validate_json(store.get(environment.project_uri)),
        store=store,
        runs=DynamoRunTable(clients("dynamodb"), environment.run_table),
        # It repeats no request; Step Functions repeats the whole call.
        table=IcebergLedger(catalog=open_catalog_to_write(), database=environment.warehouse_database),
        executions=StepFunctionsExecutions(clients("stepfunctions")),
        exchange_bucket=environment.exchange_bucket,
        now=lambda: datetime.now(UTC),
        on_unreadable=lambda uri, reason: logger.warning(
            "the ledger lacks what cannot be read", extra={"uri": uri, "reason": reason}
        ),
    )


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return the number of new rows."""
    request = WriteLedgerRequest.model_validate(event)
    rows = build_ledger().write(pipeline=request.pipeline, report=request.report, execution=request.execution)
    logger.info("ledger written", extra={"pipeline": request.pipeline, "rows": rows})
    return {"rows": rows}
