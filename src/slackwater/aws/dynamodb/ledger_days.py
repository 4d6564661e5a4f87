"""The days whose late data the ledger may lack, in the run table: sort key `ledger#DATE`.

`ledger-rejects` has the time up to which rejected events are in the ledger.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

from slackwater.aws.dynamodb.items import RunTableItems, item_key
from slackwater.aws.failures import translated, unless_refused
from slackwater.runs.pipeline_records import MOST_DAYS, LedgerDay

_REJECTS = "ledger-rejects"


class LedgerDayItems(RunTableItems):
    """The items of days whose late data the ledger may lack in a table of runs."""

    def record_ledger_day(self, pipeline: str, date: str, *, at: datetime) -> None:
        """List a day whose data was seen at `at`, UTC. A day that was seen later remains as it is."""
        with translated(f"list {date} of {pipeline} for the ledger"):
            update = partial(
                self._dynamodb.update_item,
                **self._if_last(pipeline, f"ledger#{date}", "attribute_not_exists(#last) OR #last < :at", at),
                UpdateExpression="SET #last = :at",
            )
            unless_refused("ConditionalCheckFailedException", update)

    def ledger_days(self, pipeline: str) -> list[LedgerDay]:
        """Return the listed days in order, at most 1,000. May miss the last seconds."""
        options = {"ConsistentRead": False, "PaginationConfig": {"MaxItems": MOST_DAYS}}
        items = self._between(f"the ledger days of {pipeline}", pipeline, "ledger#", "ledger$", **options)
        return [
            LedgerDay(date=item["item"]["S"].removeprefix("ledger#"), last=datetime.fromisoformat(item["last"]["S"]))
            for item in items
        ]

    def remove_ledger_day(self, pipeline: str, day: LedgerDay) -> None:
        """Remove a day from the list, unless its data was seen since the list was read."""
        with translated(f"remove {day.date} of {pipeline} from the ledger days"):
            condition = "attribute_not_exists(#last) OR #last = :at"
            delete = partial(
                self._dynamodb.delete_item, **self._if_last(pipeline, f"ledger#{day.date}", condition, day.last)
            )
            unless_refused("ConditionalCheckFailedException", delete)

    def rejects_until(self, pipeline: str) -> datetime | None:
        """Return the time up to which rejected events are in the ledger; None before the first ones."""
        record = self._record(pipeline, _REJECTS)
        return datetime.fromisoformat(record) if record else None

    def save_rejects_until(self, pipeline: str, until: datetime) -> None:
        """Write the time up to which rejected events are in the ledger."""
        with translated(f"record the rejected events of {pipeline}"):
            record = {"record": {"S": until.isoformat()}}
            self._dynamodb.put_item(TableName=self._table, Item={**item_key(pipeline, _REJECTS), **record})
