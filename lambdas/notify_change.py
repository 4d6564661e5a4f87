"""Notify people of what a new version of a day has changed: the last task of the monitoring for each late day."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from typing import Any

from aws_lambda_powertools import Logger
from pydantic import BaseModel

from slackwater.aws.clients import SHORT_CONFIG, SINGLE_CONFIG, client
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.emf import put_metric
from slackwater.aws.executions.run_usage import CostEnvironment, cost_recorder
from slackwater.aws.executions.state_machines import StepFunctionsExecutions
from slackwater.aws.function import with_correlation_id
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.topic import SnsTopic
from slackwater.errors import SlackwaterError
from slackwater.late.changes.notify import Notifier
from slackwater.late.comparison import Comparison
from slackwater.metrics import Metric
from slackwater.runs.comparison_run import AttemptCosts
from slackwater.runs.cost_recorder import CostRecorder

logger = Logger()

_COSTS_SECONDS = 10
"""Of the minute that the function has."""


class NotifyChangeEnvironment(CostEnvironment):
    """Settings of this function."""

    run_table: str
    change_topic: str


class NotifyChangeRequest(BaseModel):
    """Input from the state machine."""

    pipeline: str
    date: str
    comparison: str
    """URI of the `Comparison`."""
    execution: str
    correlation_id: str


@cache
def build_notifier() -> Notifier:
    """Build the notifier, once per process."""
    environment = NotifyChangeEnvironment.read()

    def now() -> datetime:
        return datetime.now(UTC)

    # Not repeated: a message need not wait for costs.
    recorder = cost_recorder(
        environment,
        table=DynamoRunTable(client("dynamodb", config=SINGLE_CONFIG), environment.run_table),
        clients=lambda service: client(service, config=SINGLE_CONFIG),
        now=now,
    )
    return Notifier(
        store=S3ObjectStore(client("s3", config=SHORT_CONFIG)),
        table=DynamoRunTable(client("dynamodb", config=SHORT_CONFIG), environment.run_table),
        executions=StepFunctionsExecutions(client("stepfunctions", config=SHORT_CONFIG)),
        topic=SnsTopic(environment.change_topic),
        now=now,
        on_outcome_unknown=lambda pipeline: put_metric(Metric.NOTIFICATION_OUTCOME_UNKNOWN, 1, pipeline=pipeline),
        costs=lambda comparison: known_costs(recorder, comparison),
    )


def known_costs(recorder: CostRecorder, comparison: Comparison) -> AttemptCosts | None:
    """Return what the run and the comparison have cost until now, None after an error or `_COSTS_SECONDS`.

    An error is only logged: a message may lack costs.
    """
    pair = {"before": comparison.before.attempt, "after": comparison.after.attempt}
    # A long history has many pages. After the time the thread reads on, but nothing waits for it.
    reader = ThreadPoolExecutor(1)
    try:
        costs = reader.submit(recorder.attempt_costs, comparison.pipeline, comparison.date, **pair)
        return costs.result(timeout=_COSTS_SECONDS)
    except TimeoutError:
        logger.warning("the message has no costs", extra={"reason": f"not read within {_COSTS_SECONDS} seconds"})
    except SlackwaterError as error:
        logger.warning("the message has no costs", extra={"reason": str(error)})
    finally:
        reader.shutdown(wait=False)
    return None


@with_correlation_id(logger)
def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Return `slackwater.late.changes.notify.NotificationResult` as JSON."""
    request = NotifyChangeRequest.model_validate(event)
    result = build_notifier().notify(**request.model_dump(exclude={"correlation_id"}))
    if result.notified:
        put_metric(Metric.NOTIFICATIONS_SENT, 1, pipeline=request.pipeline)
    answer = result.model_dump()
    logger.info(
        "people notified" if result.notified else "nobody notified", extra={"date": request.date, "answer": answer}
    )
    return answer
