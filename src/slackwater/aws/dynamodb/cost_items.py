"""Costs in the run table: the comparisons of days, and the items of costs that are not final.

A comparison has the sort key `comparison#DATE#ATTEMPT#EXECUTION`, with the attempt of the later version. While the cost
of a run or a comparison is not final, there is an item `cost#DATE#ATTEMPT` or `cost#DATE#ATTEMPT#EXECUTION`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from botocore.exceptions import ClientError

from slackwater.aws.dynamodb.items import AFTER_SEPARATOR, RunTableItems, item_key
from slackwater.aws.failures import cancellation_reasons, translated
from slackwater.errors import DayChanged
from slackwater.runs.comparison_run import ComparisonRun, DueCost
from slackwater.runs.cost_recorder import is_final
from slackwater.runs.record import RunRecord

# Keys that one request reads of the due costs.
_PAGE_SIZE = 30


class CostItems(RunTableItems):
    """The items of comparisons and of due costs in a table of runs."""

    def save_comparison(self, comparison: ComparisonRun) -> None:
        """Write a comparison, whose cost is due from now on. A repeated call replaces it."""
        self._write_cost(comparison)

    def comparison(self, pipeline: str, due: DueCost) -> ComparisonRun | None:
        """Return a comparison, or None."""
        record = self._record(pipeline, _comparison_item(due.date, due.attempt, due.comparison))
        return ComparisonRun.model_validate_json(record) if record else None

    def comparisons(self, pipeline: str, date: str) -> list[ComparisonRun]:
        """Return the comparisons of a day, in order of the later version."""
        return self.comparisons_between(pipeline, date, date)

    def comparisons_between(self, pipeline: str, first: str, last: str) -> list[ComparisonRun]:
        """Return the comparisons of the days from `first` to `last`, in order of date and later version."""
        what = f"the comparisons of {pipeline} from {first} to {last}"
        items = self._between(what, pipeline, f"comparison#{first}#", f"comparison#{last}{AFTER_SEPARATOR}")
        return [ComparisonRun.model_validate_json(item["record"]["S"]) for item in items]

    def costs_due(self, pipeline: str) -> Iterator[DueCost]:
        """Yield each ended run and each comparison without a final cost. May miss the last seconds."""
        what, keys = f"the due costs of {pipeline}", ("cost#", f"cost{AFTER_SEPARATOR}")
        options: dict[str, Any] = {"ConsistentRead": False, "PaginationConfig": {"PageSize": _PAGE_SIZE}}
        for item in self._between(what, pipeline, *keys, **options):
            _, date, attempt, *execution = item["item"]["S"].split("#")
            yield DueCost(date, int(attempt), *execution)

    def save_cost(self, record: RunRecord | ComparisonRun) -> bool:
        """Write a run that has ended, or a comparison, with its new cost, which is no longer due if it is complete.

        The stored record gets the next `cost_version`. Return False, without a change, if another process has written
        the cost since the record was read.
        """
        written = record.model_copy(update={"cost_version": record.cost_version + 1})
        try:
            self._write_cost(
                written,
                # A record of an older version has no number.
                ConditionExpression="cost_version = :read OR attribute_not_exists(cost_version) AND :read = :zero",
                ExpressionAttributeValues={":read": {"N": str(record.cost_version)}, ":zero": {"N": "0"}},
            )
        except DayChanged:
            return False
        return True

    def _write_cost(self, record: RunRecord | ComparisonRun, **condition: Any) -> None:
        """Write the record, and whether its cost is due. Raises `DayChanged` if the condition is not met."""
        item, due = record_item(record), cost_key(record)
        writes: list[dict[str, Any]] = [
            {"Put": {"TableName": self._table, "Item": item, **condition}},
            {"Delete": {"TableName": self._table, "Key": due}}
            if is_final(record)
            else {"Put": {"TableName": self._table, "Item": due}},
        ]
        with translated(f"record the cost of {item['item']['S']}"):
            try:
                self._dynamodb.transact_write_items(TransactItems=writes)
            except ClientError as error:
                if "ConditionalCheckFailed" in cancellation_reasons(error):
                    raise DayChanged(f"{item['item']['S']}: its cost was written by another process") from error
                raise


def record_item(record: RunRecord | ComparisonRun) -> dict[str, Any]:
    """Return the item of a run or of a comparison."""
    pipeline, due = _due(record)
    item = _comparison_item(*due) if due.comparison else run_item(due.date, due.attempt)
    return {
        **item_key(pipeline, item),
        "record": {"S": record.model_dump_json()},
        "cost_version": {"N": str(record.cost_version)},
    }


def cost_key(record: RunRecord | ComparisonRun) -> dict[str, Any]:
    """Return the item that exists while the cost of a run or a comparison is not final."""
    pipeline, due = _due(record)
    execution = f"#{due.comparison}" if due.comparison else ""
    return item_key(pipeline, f"cost#{due.date}#{due.attempt:05d}{execution}")


def run_item(date: str, attempt: int) -> str:
    """Return the sort key of a run."""
    # Leading zeros: DynamoDB sorts strings, and attempt 10 must come after attempt 9.
    return f"run#{date}#{attempt:05d}"


def _comparison_item(date: str, attempt: int, execution: str) -> str:
    return f"comparison#{date}#{attempt:05d}#{execution}"


def _due(record: RunRecord | ComparisonRun) -> tuple[str, DueCost]:
    """Return the pipeline and what identifies the record in it."""
    if isinstance(record, ComparisonRun):
        return record.pipeline, DueCost(record.date, record.after, record.execution_name)
    return record.run.pipeline, DueCost(record.run.date, record.run.attempt)
