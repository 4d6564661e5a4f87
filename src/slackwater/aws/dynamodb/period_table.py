"""The objects and the states of periods in the state table, whose keys `state_table` describes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from slackwater.aws.dynamodb.requests import read_items
from slackwater.aws.dynamodb.state_items import bins_attribute, hour_key, instant_key, item, parsed
from slackwater.aws.dynamodb.state_table import FOLDED, DynamoStateTable, coverage_in
from slackwater.aws.failures import translated, unless_refused
from slackwater.sources.counts import ALL
from slackwater.state.completeness import CountState, total_state
from slackwater.state.facts import Coverage, HourFacts, Part
from slackwater.state.fold import Distinct, PeriodState, WindowState
from slackwater.state.periods import Covered

_STATE = "state"
_LETTERS = {CountState.UNKNOWN: "u", CountState.SHORT: "s", CountState.COMPLETE: "c", CountState.SURPLUS: "p"}
_REPORTED = "r"
"""The letter of a window that is unknown although it is reported."""
_STATES = {**{letter: state for state, letter in _LETTERS.items()}, _REPORTED: CountState.UNKNOWN}


class DynamoPeriodTable(DynamoStateTable):
    """`slackwater.state.periods.PeriodTable` over DynamoDB."""

    def put_parts(self, source: str, parts: Mapping[datetime, Sequence[Part]]) -> None:
        """Store objects by their UTC hour."""
        self._put_all(
            f"store the objects of {source}",
            [
                item(
                    hour_key(source, hour),
                    f"part#{part.name}",
                    expires=hour,
                    bins=bins_attribute(part.bins),
                    bytes={"N": str(part.bytes)},
                    written={"S": instant_key(part.written)},
                )
                for hour, of_hour in parts.items()
                for part in of_hour
            ],
        )

    def all_facts(self, source: str, hours: Iterable[datetime]) -> Mapping[datetime, HourFacts]:
        """Return the facts about UTC hours with their objects. The reads are consistent."""
        return self._facts_from("part#", source, hours)

    def states(self, source: str, starts: Iterable[datetime], *, newest: bool = True) -> list[PeriodState]:
        """Return the stored states of the periods that begin then, in order; without `newest`, perhaps earlier ones."""
        keys = [_key(source, start) for start in dict.fromkeys(starts)]
        found = read_items(self._dynamodb, self._table, keys, what=f"the states of {source}", ConsistentRead=newest)
        return sorted((_state(source, each) for each in found), key=lambda state: state.start)

    def put_state(self, state: PeriodState) -> bool:
        """Store a state if the stored one has the version before; return whether it was stored."""
        found = item(
            hour_key(state.source, state.start),
            _STATE,
            expires=state.end,
            version={"N": str(state.version)},
            announced={"N": str(state.announced)},
            record={"S": _record(state)},
        )
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(pk)"}
        if state.version > 1:
            condition = {
                "ConditionExpression": "version = :before",
                "ExpressionAttributeValues": {":before": {"N": str(state.version - 1)}},
            }
        with translated(f"store the state of {state.source}"):
            stored = unless_refused(
                "ConditionalCheckFailedException",
                lambda: self._dynamodb.put_item(TableName=self._table, Item=found, **condition),
            )
        return stored is not None

    def put_announced(self, state: PeriodState) -> None:
        """Record that the message about this version was sent."""
        with translated(f"record a message about {state.source}"):
            unless_refused(
                "ConditionalCheckFailedException",
                lambda: self._dynamodb.update_item(
                    TableName=self._table,
                    Key=_key(state.source, state.start),
                    UpdateExpression="SET announced = :version",
                    ConditionExpression="announced < :version",
                    ExpressionAttributeValues={":version": {"N": str(state.version)}},
                ),
            )

    def covered(self, source: str) -> Covered:
        """Return what the reports of the source cover, and covered at the last `put_folded`. The read is consistent."""
        found = self._covered(source)
        if not coverage_in(found) and self._adopted(source):
            found = self._covered(source)
        return Covered(coverage_in(found), coverage_in(found, FOLDED))


def _key(source: str, start: datetime) -> dict[str, Any]:
    return {"pk": {"S": hour_key(source, start)}, "sk": {"S": _STATE}}


def _record(state: PeriodState) -> str:
    """Return the state as JSON. That of an hour has about 600 bytes: an item of 1 KB costs one write unit."""
    windows = [
        [_minutes(item.start - state.start), _minutes(item.end - item.start), *item[3:6], _letter(item)]
        for item in state.windows
    ]
    return json.dumps(
        {
            "start": instant_key(state.start),
            "end": instant_key(state.end),
            "keys": [[key, _LETTERS[each]] for key, each in state.keys],
            "windows": windows,
            "facts": state.facts,
            "parts": state.parts,
            "distinct": state.distinct,
            "covered": [instant_key(instant) for instant in state.covered or ()],
        },
        separators=(",", ":"),
    )


def _letter(window: WindowState) -> str:
    return _REPORTED if window.is_reported and window.state is CountState.UNKNOWN else _LETTERS[window.state]


def _minutes(duration: timedelta) -> int:
    return duration // timedelta(minutes=1)


def _state(source: str, item: dict[str, Any]) -> PeriodState:
    record = json.loads(item["record"]["S"])
    start, covered = parsed(record["start"]), record.get("covered")
    # An earlier version had no keys, and counted ids without them: they are read again.
    is_earlier = "keys" not in record
    distinct = None if is_earlier else record["distinct"]
    stored_keys = [(ALL, _LETTERS[CountState(record["state"])])] if is_earlier else record["keys"]
    keys = tuple((key, _STATES[letter]) for key, letter in stored_keys)

    def window(number: int, stored: list[Any]) -> WindowState:
        begin, length, sent, has, rejected, letter = stored
        since = start + timedelta(minutes=begin)
        # Each time has a window of each key, in their order.
        key, _ = keys[number % len(keys)]
        until, is_reported = since + timedelta(minutes=length), letter != _LETTERS[CountState.UNKNOWN]
        return WindowState(since, until, key, sent, has, rejected, _STATES[letter], is_reported)

    return PeriodState(
        source=source,
        start=start,
        end=parsed(record["end"]),
        state=total_state(each for _, each in keys),
        windows=tuple(window(number, stored) for number, stored in enumerate(record["windows"])),
        keys=keys,
        facts=record["facts"],
        parts=record["parts"],
        covered=Coverage(*map(parsed, covered)) if covered else None,
        distinct=Distinct(distinct[0], {key: tuple(bins) for key, bins in distinct[1].items()}) if distinct else None,
        version=int(item["version"]["N"]),
        announced=int(item["announced"]["N"]),
    )
