"""The state table in DynamoDB: partition key `pk`, sort key `sk`. Items expire by the attribute `expires`.

| pk | sk | attributes |
|---|---|---|
| `SOURCE#2026-01-01T15` | `report#AS_OF#ID` | through, window, counts by minute (and key), keys, principal |
| `SOURCE#2026-01-01T15` | `rejected#ORIGIN` | bins of five minutes, unplaced |
| `SOURCE#2026-01-01T15` | `part#OBJECT` | bins of five minutes, bytes, written |
| `SOURCE#2026-01-01T15` | `state` | the state of the period that begins with the hour, version, announced |
| `SOURCE#reports` | `covered` | first, through: what reports cover; folded_first, folded_through: what states know |
| `SOURCE#reports` | `from#INSTANT#…`, `through#INSTANT#…`, `folded` | of an earlier version; read without `covered` |
| `SOURCE#files` | `PATH` | how the file was listed when its report was read |

The facts about an hour have one partition key, so that one Query reads them all. It takes 1,000 writes a second, which
is more than the batches of a source in an hour: DynamoDB throttles, and the caller repeats. What the reports cover only
grows, whatever their order: a condition keeps the earlier `first` and the later `through`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from slackwater.aws.dynamodb.requests import read_items
from slackwater.aws.dynamodb.state_items import (
    THREADS,
    StateItems,
    bins_attribute,
    bins_of,
    hour_key,
    instant_key,
    item,
    parsed,
)
from slackwater.aws.failures import translated, unless_refused
from slackwater.sources.counts import ALL
from slackwater.state.facts import (
    KEPT,
    Coverage,
    HourFacts,
    HourReport,
    Part,
    RejectedEvents,
    Report,
    moved_ends,
)

COVERED = "covered"
FOLDED = "folded_"
"""Before the names of the ends that states know."""
_AFTER_REPORTS = "report$"
"""A sort key behind all facts: `$` is the character after `#`."""


class DynamoStateTable(StateItems):
    """`slackwater.state.facts.StateTable` over DynamoDB, with the files that have reports."""

    def put_report(self, report: Report) -> None:
        """Store what a report says about each hour, and then the time that it covers."""
        by_hour: dict[datetime, dict[str, Any]] = {}
        for start, numbers in report.counts.items():
            by_key = {key: {"N": str(number)} for key, number in numbers.items()}
            of_window = by_key[ALL] if report.keys == (ALL,) else {"M": by_key}
            by_hour.setdefault(start.replace(minute=0), {})[f"{start.minute:02d}"] = of_window
        key = f"{instant_key(report.as_of)}#{report.id}"
        common = {
            "through": {"S": instant_key(report.through)},
            "window": {"S": report.window},
            "principal": {"S": report.principal},
            **({} if report.keys == (ALL,) else {"keys": {"L": [{"S": key} for key in report.keys]}}),
        }
        what = f"store a report about {report.source}"
        self._put_all(
            what,
            [
                item(
                    hour_key(report.source, hour),
                    f"report#{key}",
                    expires=hour,
                    counts={"M": counts},
                    **common,
                )
                for hour, counts in by_hour.items()
            ],
        )
        # Last: it makes windows without a number known to be empty, which would be wrong before the others are there.
        # An earlier coverage is read at half the price, and only moves an end that has been moved.
        covered = coverage_in(self._covered(report.source, is_consistent=False)) or self._adopted(report.source)
        for name, instant in moved_ends(report, covered).items():
            self._move(report.source, name, instant, expires=report.through)

    def _move(self, source: str, name: str, instant: datetime, *, expires: datetime) -> None:
        """Store an end of what the reports cover, unless it is stored, or one further away."""
        key = item(f"{source}#reports", COVERED, expires=expires)
        until = key.pop("expires")
        # An earlier beginning comes with an older report, after which the item must not expire.
        further, then = (">", "if_not_exists(expires, :expires)") if name == "first" else ("<", ":expires")
        with translated(f"store a report about {source}"):
            unless_refused(
                "ConditionalCheckFailedException",
                lambda: self._dynamodb.update_item(
                    TableName=self._table,
                    Key=key,
                    UpdateExpression=f"SET #end = :instant, expires = {then}",
                    ConditionExpression=f"attribute_not_exists(#end) OR #end {further} :instant",
                    ExpressionAttributeNames={"#end": name},
                    ExpressionAttributeValues={":instant": {"S": instant_key(instant)}, ":expires": until},
                ),
            )

    def put_rejected(self, source: str, rejected: Mapping[datetime, RejectedEvents]) -> None:
        """Store rejected events by the UTC hour of their timestamps."""
        self._put_all(
            f"store the rejected events of {source}",
            [
                item(
                    hour_key(source, hour),
                    f"rejected#{events.origin}",
                    expires=hour,
                    bins=bins_attribute(events.bins),
                    unplaced={"N": str(events.unplaced)},
                )
                for hour, events in rejected.items()
            ],
        )

    def facts(self, source: str, hours: Iterable[datetime]) -> Mapping[datetime, HourFacts]:
        """Return the facts about UTC hours. The reads are consistent."""
        # Not the objects, of which an hour may have thousands.
        return self._facts_from("rejected#", source, hours)

    def _facts_from(self, first: str, source: str, hours: Iterable[datetime]) -> Mapping[datetime, HourFacts]:
        """Return the facts about UTC hours whose keys are `first` or later."""
        wanted = sorted(set(hours))

        def read(hour: datetime) -> HourFacts:
            return _facts_of(self._items(hour_key(source, hour), first, _AFTER_REPORTS, what=f"the facts of {source}"))

        if len(wanted) == 1:
            return {wanted[0]: read(wanted[0])}
        with ThreadPoolExecutor(THREADS) as pool:
            return dict(zip(wanted, pool.map(read, wanted), strict=True))

    def coverage(self, source: str) -> Coverage | None:
        """Return what the reports of the source cover; None without a report."""
        return coverage_in(self._covered(source)) or self._earlier(source)

    def _covered(self, source: str, *, is_consistent: bool = True) -> dict[str, Any]:
        items = self._items(
            f"{source}#reports", COVERED, COVERED, what=f"the reports of {source}", is_consistent=is_consistent
        )
        return next(items, {})

    def put_folded(self, source: str, coverage: Coverage) -> None:
        """Record that the states of all hours follow from what the reports cover."""
        ends = {f":{name}": {"S": instant_key(instant)} for name, instant in coverage._asdict().items()}
        with translated(f"store the state of {source}"):
            self._dynamodb.update_item(
                TableName=self._table,
                Key={"pk": {"S": f"{source}#reports"}, "sk": {"S": COVERED}},
                UpdateExpression=f"SET {FOLDED}first = :first, {FOLDED}through = :through",
                ExpressionAttributeValues=ends,
            )

    def _earlier(self, source: str) -> Coverage | None:
        """Return what the reports cover that an earlier version has stored: of each, two items."""
        ends = []
        for name, is_forward in (("from", True), ("through", False)):
            with translated(f"read the reports of {source}"):
                page = self._dynamodb.query(
                    TableName=self._table,
                    KeyConditionExpression="pk = :pk AND begins_with(sk, :prefix)",
                    ExpressionAttributeValues={":pk": {"S": f"{source}#reports"}, ":prefix": {"S": f"{name}#"}},
                    ScanIndexForward=is_forward,
                    ConsistentRead=True,
                    Limit=1,
                )
            if not page["Items"]:
                return None
            ends.append(parsed(page["Items"][0]["sk"]["S"].split("#")[1]))
        first, through = ends
        return Coverage(max(first, through - KEPT), through)

    def _adopted(self, source: str) -> Coverage | None:
        """Store and return what the reports of an earlier version cover; None without any."""
        covered = self._earlier(source)
        if covered:
            # First: otherwise, the states of all these hours would be computed again.
            for folded in self._items(f"{source}#reports", "folded", "folded", what=f"the state of {source}"):
                self.put_folded(source, Coverage(*(parsed(folded[name]["S"]) for name in Coverage._fields)))
            for name, instant in covered._asdict().items():
                self._move(source, name, instant, expires=covered.through)
        return covered

    def read_files(self, source: str, paths: Sequence[str]) -> dict[str, str]:
        """Return, by path, how files were listed when their reports were read; other files are missing."""
        keys = [{"pk": {"S": f"{source}#files"}, "sk": {"S": path}} for path in dict.fromkeys(paths)]
        items = read_items(self._dynamodb, self._table, keys, what=f"the files with counts of {source}")
        return {item["sk"]["S"]: item["listed"]["S"] for item in items}

    def put_file(self, source: str, path: str, listed: str, *, at: datetime) -> None:
        """Record that the report of a file was read at that time, and how the file was listed."""
        self._put_all(
            f"record a file with counts of {source}",
            [item(f"{source}#files", path, expires=at, listed={"S": listed})],
        )


def coverage_in(item: dict[str, Any], prefix: str = "") -> Coverage | None:
    """Return what is covered by an item; None before both ends are stored."""
    names = (f"{prefix}first", f"{prefix}through")
    if not item.keys() >= set(names):
        return None
    first, through = (parsed(item[name]["S"]) for name in names)
    # The facts of the time before have expired.
    return Coverage(max(first, through - KEPT), through)


def _facts_of(items: Iterable[dict[str, Any]]) -> HourFacts:
    """Return the facts in the items of an hour."""
    reports, rejected, parts = list[HourReport](), list[RejectedEvents](), list[Part]()
    for found in items:
        kind = found["sk"]["S"].partition("#")[0]
        if kind == "report":
            reports.append(_report(found))
        elif kind == "rejected":
            rejected.append(_rejected(found))
        else:
            parts.append(_part(found))
    return HourFacts(tuple(reports), tuple(rejected), tuple(parts))


def _report(item: dict[str, Any]) -> HourReport:
    _, as_of, id_ = item["sk"]["S"].split("#")
    return HourReport(
        as_of=parsed(as_of),
        id=id_,
        through=parsed(item["through"]["S"]),
        window=item["window"]["S"],
        counts={
            int(minute): {key: int(number["N"]) for key, number in numbers.get("M", {ALL: numbers}).items()}
            for minute, numbers in item["counts"]["M"].items()
        },
        keys=tuple(key["S"] for key in item["keys"]["L"]) if "keys" in item else (ALL,),
        principal=item["principal"]["S"],
    )


def _rejected(item: dict[str, Any]) -> RejectedEvents:
    origin = item["sk"]["S"].removeprefix("rejected#")
    return RejectedEvents(origin, bins_of(item["bins"]), int(item["unplaced"]["N"]))


def _part(item: dict[str, Any]) -> Part:
    return Part(
        name=item["sk"]["S"].removeprefix("part#"),
        bins=bins_of(item["bins"]),
        bytes=int(item["bytes"]["N"]),
        written=parsed(item["written"]["S"]),
    )
