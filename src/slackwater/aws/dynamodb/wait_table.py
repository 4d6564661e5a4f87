"""Waiting runs in DynamoDB: `PIPELINE#DATE`, `wait#EXECUTION`, in the table of the facts about sources.

A pipeline may have the name of a source: the keys of its days have no hour. Items expire by the attribute `expires`:
an execution that was stopped leaves one.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from slackwater.aws.failures import code_of, translated
from slackwater.state.conditions import Unmet
from slackwater.state.waits import DayKey, WaitingRun

# Longer than any run waits, which is seven days after the end of its day.
_KEPT = timedelta(days=14)


class DynamoWaitTable:
    """`slackwater.state.waits.WaitTable` over DynamoDB."""

    def __init__(self, dynamodb: Any, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def put_wait(self, run: WaitingRun) -> None:
        """Store a waiting run in the place of the one of the same execution."""
        item = {
            **_key(run),
            "execution": {"S": run.execution},
            "token": {"S": run.token},
            "since": {"S": run.since.isoformat()},
            "unmet": {"S": _document(run.unmet)},
            "expires": {"N": str(int((run.since + _KEPT).timestamp()))},
        }
        with translated(f"store that {run.pipeline} waits"):
            self._dynamodb.put_item(TableName=self._table, Item=item)

    def waits(self, key: DayKey) -> list[WaitingRun]:
        """Return the waiting runs of a day, and those that have gone on since. The read is consistent."""
        with translated(f"read the waiting runs of {key.pipeline}"):
            pages = self._dynamodb.get_paginator("query").paginate(
                TableName=self._table,
                KeyConditionExpression="pk = :pk AND begins_with(sk, :prefix)",
                ExpressionAttributeValues={":pk": {"S": f"{key.pipeline}#{key.date}"}, ":prefix": {"S": "wait#"}},
                ConsistentRead=True,
            )
            return [_waiting_run(key, item) for page in pages for item in page["Items"]]

    def save_unmet(self, run: WaitingRun, unmet: tuple[Unmet, ...]) -> None:
        """Store the conditions that do not hold, if the stored run has the same token."""
        self._if_current(
            run,
            self._dynamodb.update_item,
            UpdateExpression="SET unmet = :unmet",
            ExpressionAttributeValues={":unmet": {"S": _document(unmet)}},
        )

    def remove_wait(self, run: WaitingRun) -> None:
        """Remove the run, if the stored one has the same token."""
        self._if_current(run, self._dynamodb.delete_item)

    def _if_current(self, run: WaitingRun, call: Any, **arguments: Any) -> None:
        values = {**arguments.pop("ExpressionAttributeValues", {}), ":token": {"S": run.token}}
        with translated(f"change how {run.pipeline} waits"):
            try:
                call(
                    TableName=self._table,
                    Key=_key(run),
                    ConditionExpression="#token = :token",
                    ExpressionAttributeNames={"#token": "token"},  # a reserved word
                    ExpressionAttributeValues=values,
                    **arguments,
                )
            except ClientError as error:
                if code_of(error) != "ConditionalCheckFailedException":
                    raise


def _key(run: WaitingRun) -> dict[str, Any]:
    # The name of the execution: of one state machine, names are unique for longer than the item is kept.
    return {"pk": {"S": f"{run.pipeline}#{run.date}"}, "sk": {"S": f"wait#{run.execution.rpartition(':')[2]}"}}


def _document(unmet: tuple[Unmet, ...]) -> str:
    return json.dumps([item.model_dump(mode="json") for item in unmet])


def _waiting_run(key: DayKey, item: dict[str, Any]) -> WaitingRun:
    return WaitingRun(
        pipeline=key.pipeline,
        date=key.date,
        execution=item["execution"]["S"],
        token=item["token"]["S"],
        since=datetime.fromisoformat(item["since"]["S"]),
        unmet=tuple(Unmet.model_validate(one) for one in json.loads(item["unmet"]["S"])),
    )
