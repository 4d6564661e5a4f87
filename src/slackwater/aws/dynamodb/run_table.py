"""The run table in DynamoDB: partition key `pipeline`, sort key `item` (`day#DATE` or `run#DATE#ATTEMPT`).

The re-runs that the checks of a calendar day have started are in `reruns#DATE`, `arrivals` has the hours in which the
sources of the pipeline have delivered, `definition` the latest message about a new definition, `late#DATE` lists a day
with late data (`late_days.py`), `ledger#DATE` one whose late data the ledger may lack (`ledger_days.py`), and
`cost#...` and `comparison#...` are about costs (`cost_items.py`).

Three sparse indexes hold the keys of days, sorted by date: `published` those with a published run, `notification-due`
those whose published version needs a notification, and `held` those on hold. One request reads 1 MB of an index, which
is about 10,000 days: a few requests read all days that a pipeline may ever have there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from slackwater.aws.dynamodb.cost_items import CostItems, cost_key, record_item, run_item
from slackwater.aws.dynamodb.items import AFTER_SEPARATOR, item_key
from slackwater.aws.dynamodb.late_days import LateDayItems
from slackwater.aws.dynamodb.ledger_days import LedgerDayItems
from slackwater.aws.dynamodb.requests import write_all
from slackwater.aws.failures import cancellation_reasons, code_of, translated, unless_refused
from slackwater.errors import DayChanged
from slackwater.runs.pipeline_records import ArrivalHistory, DefinitionNotice, RerunUsage
from slackwater.runs.record import DayRecord, RunRecord

# The key of the history of a pipeline's arrivals.
_ARRIVALS = "arrivals"
# The key of the latest message about a new definition of a pipeline.
_DEFINITION = "definition"

# Written only over the version that was read. Version 0 stands for an item that does not exist yet.
_UNCHANGED = "version = :read OR attribute_not_exists(version) AND :read = :new"


class DynamoRunTable(LateDayItems, LedgerDayItems, CostItems):
    """`slackwater.runs.table.RunTable` over DynamoDB; each record is JSON in the attribute `record`."""

    def day(self, pipeline: str, date: str) -> DayRecord:
        """Return the day's record; a day that was never run has version 0."""
        record = self._record(pipeline, _day_item(date))
        return DayRecord.model_validate_json(record) if record else DayRecord(pipeline=pipeline, date=date)

    def days(
        self, pipeline: str, first: str, last: str, *, limit: int | None = None, latest_first: bool = False
    ) -> list[DayRecord]:
        """Return the records of the days from `first` to `last`, at most `limit`; days without a run are missing."""
        paging = {} if limit is None else {"MaxItems": limit, "PageSize": limit}
        order = {"ScanIndexForward": not latest_first, "PaginationConfig": paging}
        what = f"the days of {pipeline} from {first} to {last}"
        items = self._between(what, pipeline, _day_item(first), _day_item(last), **order)
        return [DayRecord.model_validate_json(item["record"]["S"]) for item in items]

    def first_published(self, pipeline: str) -> str | None:
        """Return the first day with a published run, or None. May miss writes of the last seconds."""
        with translated(f"read the first published day of {pipeline}"):
            page = self._dynamodb.query(
                TableName=self._table,
                IndexName="published",
                KeyConditionExpression="published_pipeline = :pipeline",
                ExpressionAttributeValues={":pipeline": {"S": pipeline}},
                Limit=1,
            )
        return next((_date_of(item) for item in page["Items"]), None)

    def notifications_due(self, pipeline: str, *, before: str) -> Iterator[str]:
        """Yield the days before the date `before` that need a notification. May miss writes of the last seconds."""
        with translated(f"read the due notifications of {pipeline}"):
            pages = self._dynamodb.get_paginator("query").paginate(
                TableName=self._table,
                IndexName="notification-due",
                KeyConditionExpression="notification_due_pipeline = :pipeline AND #item < :before",
                ExpressionAttributeNames={"#item": "item"},
                ExpressionAttributeValues={":pipeline": {"S": pipeline}, ":before": {"S": _day_item(before)}},
            )
            for page in pages:
                yield from (_date_of(item) for item in page["Items"])

    def held(self, pipeline: str) -> Iterator[str]:
        """Yield the days on hold, in order of date. May miss writes of the last seconds."""
        with translated(f"read the days on hold of {pipeline}"):
            pages = self._dynamodb.get_paginator("query").paginate(
                TableName=self._table,
                IndexName="held",
                KeyConditionExpression="held_pipeline = :pipeline",
                ExpressionAttributeValues={":pipeline": {"S": pipeline}},
            )
            for page in pages:
                yield from (_date_of(item) for item in page["Items"])

    def run(self, pipeline: str, date: str, attempt: int) -> RunRecord | None:
        """Return one attempt of the day, or None."""
        record = self._record(pipeline, run_item(date, attempt))
        return RunRecord.model_validate_json(record) if record else None

    def runs(self, pipeline: str, date: str | None = None) -> list[RunRecord]:
        """Return all runs of the pipeline, or of one of its days, in order of date and attempt."""
        first, last = (f"run#{date}#", f"run#{date}{AFTER_SEPARATOR}") if date else ("run#", f"run{AFTER_SEPARATOR}")
        return self._runs(f"the runs of {pipeline}", pipeline, first, last)

    def runs_between(self, pipeline: str, first: str, last: str) -> list[RunRecord]:
        """Return the runs of the days from `first` to `last`, in order of date and attempt."""
        what = f"the runs of {pipeline} from {first} to {last}"
        return self._runs(what, pipeline, f"run#{first}#", f"run#{last}{AFTER_SEPARATOR}")

    def _runs(self, what: str, pipeline: str, first: str, last: str) -> list[RunRecord]:
        items = self._between(what, pipeline, first, last)
        return [RunRecord.model_validate_json(item["record"]["S"]) for item in items]

    def date_of_run(self, pipeline: str, run_id: str) -> str | None:
        """Return the date of the run whose id begins with `run_id`, or None. Reads the latest dates first."""
        with translated(f"find the run {run_id} of {pipeline}"):
            pages = self._dynamodb.get_paginator("query").paginate(
                TableName=self._table,
                KeyConditionExpression="pipeline = :pipeline AND begins_with(#item, :prefix)",
                FilterExpression="contains(#record, :run_id)",
                ExpressionAttributeNames={"#item": "item", "#record": "record"},
                ExpressionAttributeValues={
                    ":pipeline": {"S": pipeline},
                    ":prefix": {"S": "run#"},
                    ":run_id": {"S": f'"run_id":"{run_id}'},
                },
                ScanIndexForward=False,
            )
            found = (item for page in pages for item in page["Items"])
            return next((RunRecord.model_validate_json(item["record"]["S"]).run.date for item in found), None)

    def save(self, *records: DayRecord | RunRecord) -> None:
        """Write a day and runs of it: all of them, or nothing.

        Raises `DayChanged` when the stored day's version is not that of the day, and `Throttled` when DynamoDB has
        cancelled the transaction for a temporary reason.
        """
        writes = [put for record in records for put in self._puts(record)]
        of = records[0] if isinstance(records[0], DayRecord) else records[0].run
        with translated(f"record {of.date} of {of.pipeline}"):
            try:
                write_all(self._dynamodb, writes)
            except ClientError as error:
                # The day has another version, or a transaction of another execution is writing it.
                conflicts = {"ConditionalCheckFailedException", "TransactionConflictException"}
                if code_of(error) in conflicts or "ConditionalCheckFailed" in cancellation_reasons(error):
                    raise DayChanged(f"{of.pipeline}: {of.date} was changed by another execution") from error
                raise

    def _puts(self, record: DayRecord | RunRecord) -> list[dict[str, Any]]:
        """Return the parameters of the PutItem calls that write a record: of a run also those of its due cost."""
        if isinstance(record, DayRecord):
            return [self._day_put(record)]
        is_due = record.ended_at and not (record.cost and record.cost.complete)
        items = [record_item(record), *([cost_key(record)] if is_due else [])]
        return [{"TableName": self._table, "Item": item} for item in items]

    def rerun_usage(self, pipeline: str, date: str) -> RerunUsage:
        """Return the re-runs that checks have counted on a calendar day."""
        record = self._record(pipeline, f"reruns#{date}")
        return RerunUsage.model_validate_json(record) if record else RerunUsage(pipeline=pipeline, date=date)

    def save_rerun_usage(self, usage: RerunUsage) -> None:
        """Write the re-runs of a calendar day. Raises `DayChanged` when the stored version is not `usage.version`."""
        with translated(f"count re-runs of {usage.pipeline} on {usage.date}"):
            self._put_next(usage, f"reruns#{usage.date}", changed="another check has counted re-runs")

    def definition_notice(self, pipeline: str) -> DefinitionNotice:
        """Return the latest message about a new definition of the pipeline."""
        record = self._record(pipeline, _DEFINITION)
        return DefinitionNotice.model_validate_json(record) if record else DefinitionNotice(pipeline=pipeline)

    def save_definition_notice(self, notice: DefinitionNotice) -> None:
        """Write the message about a new definition. Raises `DayChanged` when the stored version is another one."""
        with translated(f"record the message about the definition of {notice.pipeline}"):
            self._put_next(notice, _DEFINITION, changed="another check has recorded a message")

    def _put_next(self, record: RerunUsage | DefinitionNotice, item: str, *, changed: str) -> None:
        """Write the record with the next version. Raises `DayChanged` if the stored version is another one."""
        written = record.model_copy(update={"version": record.version + 1})
        put = partial(
            self._dynamodb.put_item,
            TableName=self._table,
            Item={
                **item_key(record.pipeline, item),
                "version": {"N": str(written.version)},
                "record": {"S": written.model_dump_json()},
            },
            ConditionExpression=_UNCHANGED,
            ExpressionAttributeValues=_versions(record.version),
        )
        if unless_refused("ConditionalCheckFailedException", put) is None:
            raise DayChanged(f"{record.pipeline}: {changed}")

    def arrival_history(self, pipeline: str) -> ArrivalHistory:
        """Return the hours in which the sources of the pipeline have delivered; an empty history without one."""
        record = self._record(pipeline, _ARRIVALS)
        return ArrivalHistory.model_validate_json(record) if record else ArrivalHistory(pipeline=pipeline)

    def save_arrival_history(self, history: ArrivalHistory) -> None:
        """Write the history of a pipeline's arrivals."""
        with translated(f"record the arrivals of {history.pipeline}"):
            self._dynamodb.put_item(
                TableName=self._table,
                Item={**item_key(history.pipeline, _ARRIVALS), "record": {"S": history.model_dump_json()}},
            )

    def _day_put(self, day: DayRecord) -> dict[str, Any]:
        """Return the parameters of a PutItem that writes the day with the next version."""
        written = day.model_copy(update={"version": day.version + 1})
        # An item without the key of an index is not in it.
        indexed: dict[str, Any] = {}
        if day.published:
            indexed["published_pipeline"] = {"S": day.pipeline}
        if day.notification_due:
            indexed["notification_due_pipeline"] = {"S": day.pipeline}
        if day.hold:
            indexed["held_pipeline"] = {"S": day.pipeline}
        return {
            "TableName": self._table,
            "Item": {
                **item_key(day.pipeline, _day_item(day.date)),
                **indexed,
                "version": {"N": str(written.version)},
                "record": {"S": written.model_dump_json()},
            },
            "ConditionExpression": _UNCHANGED,
            "ExpressionAttributeValues": _versions(day.version),
        }


def _versions(read: int) -> dict[str, Any]:
    """Return the values of `_UNCHANGED` for the version that was read."""
    return {":read": {"N": str(read)}, ":new": {"N": "0"}}


def _day_item(date: str) -> str:
    return f"day#{date}"


def _date_of(item: dict[str, Any]) -> str:
    """Return the date of a day's item."""
    return str(item["item"]["S"]).removeprefix("day#")
