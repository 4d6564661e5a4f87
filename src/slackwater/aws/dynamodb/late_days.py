"""The days with late data in the run table: sort key `late#DATE`, one small item for each day that waits for a run."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import datetime
from functools import partial
from typing import Any

from slackwater.aws.dynamodb.items import RunTableItems
from slackwater.aws.failures import translated, unless_refused
from slackwater.runs.pipeline_records import MOST_DAYS, MOST_OBJECTS, LateDay

_ADDED = "attribute_not_exists(objects) OR size(objects) < :most"
_LATER = "attribute_not_exists(#last) OR #last < :at"
_SEEN = "SET since = if_not_exists(since, :at), #last = :at"


class LateDayItems(RunTableItems):
    """The items of late days in a table of runs."""

    def record_late_day(self, pipeline: str, date: str, *, at: datetime, keys: Collection[str] = ()) -> None:
        """List a day with late data that was seen at `at`, UTC; `keys` are those of new objects.

        The same object counts once. Without keys, a day that was seen later remains as it is.
        """
        digests = sorted({hashlib.sha256(key.encode()).hexdigest()[:12] for key in keys})[:MOST_OBJECTS]
        with translated(f"list {date} of {pipeline} as late"):
            added = {":objects": {"SS": digests}, ":most": {"N": str(MOST_OBJECTS)}}
            if digests and self._seen(pipeline, date, at, _ADDED, add=" ADD objects :objects", values=added):
                return
            self._seen(pipeline, date, at, _LATER)

    def _seen(
        self,
        pipeline: str,
        date: str,
        at: datetime,
        condition: str,
        *,
        add: str = "",
        values: dict[str, Any] | None = None,
    ) -> bool:
        """Write when the day was seen, and return whether the condition held."""
        request = self._if_last(pipeline, f"late#{date}", condition, at)
        request["ExpressionAttributeValues"] |= values or {}
        update = partial(self._dynamodb.update_item, **request, UpdateExpression=_SEEN + add)
        return unless_refused("ConditionalCheckFailedException", update) is not None

    def late_day(self, pipeline: str, date: str) -> LateDay | None:
        """Return the day as it is listed, or None."""
        item = self._item(pipeline, f"late#{date}")
        return _late_day(item) if item else None

    def late_days(self, pipeline: str, *, first: str = "", last: str) -> list[LateDay]:
        """Return the listed days from `first` to `last`, in order, at most 1,000. May miss the last seconds."""
        options = {"ConsistentRead": False, "PaginationConfig": {"MaxItems": MOST_DAYS}}
        what = f"the late days of {pipeline}"
        return [_late_day(item) for item in self._between(what, pipeline, f"late#{first}", f"late#{last}", **options)]

    def remove_late_day(self, pipeline: str, date: str, *, read_at: datetime) -> None:
        """Remove a day from the list, unless data was seen after `read_at`, UTC. A day that is not listed is no error.

        `read_at` is when its inputs were listed.
        """
        self._remove(pipeline, date, "attribute_not_exists(#last) OR #last <= :at", read_at)

    def remove_unchanged_late_day(self, pipeline: str, day: LateDay) -> None:
        """Remove a day from the list, unless data was seen since the list was read, by a clock that may be slower."""
        self._remove(pipeline, day.date, "attribute_not_exists(#last) OR #last = :at", day.last)

    def _remove(self, pipeline: str, date: str, condition: str, at: datetime) -> None:
        """Delete the item if the condition about `#last` and `:at` holds."""
        with translated(f"remove {date} of {pipeline} from the late days"):
            delete = partial(self._dynamodb.delete_item, **self._if_last(pipeline, f"late#{date}", condition, at))
            unless_refused("ConditionalCheckFailedException", delete)


def _late_day(item: dict[str, Any]) -> LateDay:
    return LateDay(
        date=item["item"]["S"].removeprefix("late#"),
        since=datetime.fromisoformat(item["since"]["S"]),
        last=datetime.fromisoformat(item["last"]["S"]),
        objects=len(item.get("objects", {}).get("SS", ())),
    )
