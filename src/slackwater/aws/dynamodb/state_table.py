"""The state table in DynamoDB: partition key `pk`, sort key `sk`. Items expire by the attribute `expires`.

| pk | sk | attributes |
|---|---|---|
| `SOURCE#2026-01-01T15` | `report#AS_OF#ID` | through, window, counts by minute, principal |
| `SOURCE#2026-01-01T15` | `rejected#ORIGIN` | bins of five minutes, unplaced |
| `SOURCE#reports` | `from#INSTANT#AS_OF#ID`, `through#INSTANT#AS_OF#ID` | |
| `SOURCE#files` | `PATH` | how the file was listed when its report was read |

The facts about an hour have one partition key, so that one Query reads them all. It takes 1,000 writes a second, which
is more than the batches of a source in an hour: DynamoDB throttles, and the caller repeats. The first and the last
instant of all reports are found by the order of the keys, whatever their number.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from slackwater.aws.dynamodb.requests import read_items
from slackwater.aws.failures import translated
from slackwater.errors import Throttled
from slackwater.state.facts import HOUR, KEPT, Coverage, HourFacts, HourReport, RejectedEvents, Report

# BatchWriteItem accepts 25 puts. It returns some of them unprocessed when it is throttled.
_MAX_PUTS = 25
_REPEATS = 10
# Hours that are read, or groups of items that are written, at the same time.
_THREADS = 16


class DynamoStateTable:
    """`slackwater.state.facts.StateTable` over DynamoDB, with the files that have reports."""

    def __init__(self, dynamodb: Any, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table

    def put_report(self, report: Report) -> None:
        """Store what a report says about each hour, and then the time that it covers."""
        by_hour: dict[datetime, dict[int, int]] = {}
        for start, count in report.counts.items():
            by_hour.setdefault(start.replace(minute=0), {})[start.minute] = count
        key = f"{_instant(report.as_of)}#{report.id}"
        common = {
            "through": {"S": _instant(report.through)},
            "window": {"S": report.window},
            "principal": {"S": report.principal},
        }
        what = f"store a report about {report.source}"
        self._put_all(
            what,
            [
                _item(
                    _hour_key(report.source, hour),
                    f"report#{key}",
                    expires=hour,
                    counts={"M": {f"{minute:02d}": {"N": str(count)} for minute, count in counts.items()}},
                    **common,
                )
                for hour, counts in by_hour.items()
            ],
        )
        # Last: it makes windows without a number known to be empty, which would be wrong before the others are there.
        self._put_all(
            what,
            [
                _item(f"{report.source}#reports", f"{name}#{_instant(instant)}#{key}", expires=instant)
                for name, instant in (("from", report.covers_from), ("through", report.through))
            ],
        )

    def put_rejected(self, source: str, rejected: Mapping[datetime, RejectedEvents]) -> None:
        """Store rejected events by the UTC hour of their timestamps."""
        self._put_all(
            f"store the rejected events of {source}",
            [
                _item(
                    _hour_key(source, hour),
                    f"rejected#{events.origin}",
                    expires=hour,
                    bins={"L": [{"N": str(count)} for count in events.bins]},
                    unplaced={"N": str(events.unplaced)},
                )
                for hour, events in rejected.items()
            ],
        )

    def facts(self, source: str, hours: Iterable[datetime]) -> Mapping[datetime, HourFacts]:
        """Return the facts about UTC hours. The reads are consistent."""
        wanted = sorted(set(hours))

        def read(hour: datetime) -> HourFacts:
            items = list(self._items(_hour_key(source, hour), what=f"the facts of {source}"))
            reports = (_report(item) for item in items if item["sk"]["S"].startswith("report#"))
            rejected = (_rejected(item) for item in items if item["sk"]["S"].startswith("rejected#"))
            return HourFacts(tuple(reports), tuple(rejected))

        with ThreadPoolExecutor(_THREADS) as pool:
            return dict(zip(wanted, pool.map(read, wanted), strict=True))

    def coverage(self, source: str) -> Coverage | None:
        """Return what the reports of the source cover; None without a report."""
        ends = []
        for name, forward in (("from", True), ("through", False)):
            with translated(f"read the reports of {source}"):
                page = self._dynamodb.query(
                    TableName=self._table,
                    KeyConditionExpression="pk = :pk AND begins_with(sk, :prefix)",
                    ExpressionAttributeValues={":pk": {"S": f"{source}#reports"}, ":prefix": {"S": f"{name}#"}},
                    ScanIndexForward=forward,
                    ConsistentRead=True,
                    Limit=1,
                )
            ends += [_parsed(item["sk"]["S"].split("#")[1]) for item in page["Items"]]
        return Coverage(*ends) if len(ends) == 2 else None  # noqa: PLR2004

    def read_files(self, source: str, paths: Sequence[str]) -> dict[str, str]:
        """Return, by path, how files were listed when their reports were read; other files are missing."""
        keys = [{"pk": {"S": f"{source}#files"}, "sk": {"S": path}} for path in dict.fromkeys(paths)]
        items = read_items(self._dynamodb, self._table, keys, what=f"the files with counts of {source}")
        return {item["sk"]["S"]: item["listed"]["S"] for item in items}

    def put_file(self, source: str, path: str, listed: str, *, at: datetime) -> None:
        """Record that the report of a file was read at that time, and how the file was listed."""
        self._put_all(
            f"record a file with counts of {source}",
            [_item(f"{source}#files", path, expires=at, listed={"S": listed})],
        )

    def _items(self, key: str, *, what: str) -> Iterator[dict[str, Any]]:
        with translated(f"read {what}"):
            pages = self._dynamodb.get_paginator("query").paginate(
                TableName=self._table,
                KeyConditionExpression="pk = :pk",
                ExpressionAttributeValues={":pk": {"S": key}},
                ConsistentRead=True,
            )
            for page in pages:
                yield from page["Items"]

    def _put_all(self, what: str, items: Sequence[dict[str, Any]]) -> None:
        groups = [items[start : start + _MAX_PUTS] for start in range(0, len(items), _MAX_PUTS)]
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(lambda group: self._put_group(what, group), groups))  # `list` raises the first error

    def _put_group(self, what: str, items: Sequence[dict[str, Any]]) -> None:
        request: Any = [{"PutRequest": {"Item": item}} for item in items]
        for repeat in range(_REPEATS):
            with translated(what):
                response = self._dynamodb.batch_write_item(RequestItems={self._table: request})
            request = response.get("UnprocessedItems", {}).get(self._table)
            if not request:
                return
            time.sleep(min(0.05 * 2**repeat, 2))
        raise Throttled(f"could not {what}: DynamoDB leaves items unprocessed")


def _item(pk: str, sk: str, *, expires: datetime, **attributes: Any) -> dict[str, Any]:
    """Return an item that DynamoDB deletes `KEPT` after the hour of `expires`: the same for the same fact."""
    return {
        "pk": {"S": pk},
        "sk": {"S": sk},
        "expires": {"N": str(int((expires + HOUR + KEPT).timestamp()))},
        **attributes,
    }


def _hour_key(source: str, hour: datetime) -> str:
    return f"{source}#{hour.astimezone(UTC):%Y-%m-%dT%H}"


def _instant(instant: datetime) -> str:
    # Always with microseconds, so that keys sort by time.
    return f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def _parsed(value: str) -> datetime:
    return datetime.fromisoformat(value)


def _report(item: dict[str, Any]) -> HourReport:
    _, as_of, id_ = item["sk"]["S"].split("#")
    return HourReport(
        as_of=_parsed(as_of),
        id=id_,
        through=_parsed(item["through"]["S"]),
        window=item["window"]["S"],
        counts={int(minute): int(count["N"]) for minute, count in item["counts"]["M"].items()},
        principal=item["principal"]["S"],
    )


def _rejected(item: dict[str, Any]) -> RejectedEvents:
    bins = tuple(int(count["N"]) for count in item["bins"]["L"])
    return RejectedEvents(item["sk"]["S"].removeprefix("rejected#"), bins, int(item["unplaced"]["N"]))
