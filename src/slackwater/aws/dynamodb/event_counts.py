"""How many events each source has sent and how many were rejected, by hour, in the table of the file cache.

Each UTC day with events has an item of less than 1 KB, with the partition key `<source>#events`, its date as sort key,
and the attributes `events_HH` and `rejected_HH`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from slackwater.aws.dynamodb.requests import read_items
from slackwater.aws.failures import translated
from slackwater.receiver.event_counts import HISTORY_DAYS, EventCount

_MAX_REPEATS = 5


class DynamoEventCounts:
    """The counts of all sources. A call that is repeated, such as after a lost response, counts again."""

    def __init__(self, dynamodb: Any, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def add(self, source: str, count: EventCount, *, at: datetime) -> None:
        """Add the events of a batch or a file that was received at `at`; nothing if it has none."""
        if not count.events:
            return
        received = at.astimezone(UTC)
        with translated(f"count the events of {source}"):
            self._dynamodb.update_item(
                TableName=self._table,
                Key=_key(source, received),
                UpdateExpression="ADD #events :events, #rejected :rejected",
                ExpressionAttributeNames={"#events": f"events_{received:%H}", "#rejected": f"rejected_{received:%H}"},
                ExpressionAttributeValues={
                    ":events": {"N": str(count.events)},
                    ":rejected": {"N": str(count.rejected)},
                },
            )

    def hours(self, source: str, *, now: datetime) -> dict[int, EventCount]:
        """Return the counts of today (UTC) and the 14 days before, by hour since 1970. Reads at most 15 items."""
        days = [now.astimezone(UTC) - timedelta(days=back) for back in range(HISTORY_DAYS + 1)]
        keys, what = [_key(source, day) for day in days], f"the counts of the events of {source}"
        found: dict[int, EventCount] = {}
        for item in read_items(self._dynamodb, self._table, keys, what=what, repeats=_MAX_REPEATS):
            found |= _hours(item)
        return found


def _hours(item: dict[str, Any]) -> dict[int, EventCount]:
    first = int(datetime.fromisoformat(item["path"]["S"]).replace(tzinfo=UTC).timestamp()) // 3600
    return {
        first + hour: EventCount(int(item[name]["N"]), int(item[f"rejected_{hour:02d}"]["N"]))
        for hour in range(24)
        if (name := f"events_{hour:02d}") in item
    }


def _key(source: str, day: datetime) -> dict[str, Any]:
    # No source's own key equals it: names have no `#`.
    return {"source": {"S": f"{source}#events"}, "path": {"S": day.date().isoformat()}}
