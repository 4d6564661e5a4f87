"""The states of periods over two implementations of DynamoDB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.dynamodb.period_table import DynamoPeriodTable
from slackwater.aws.dynamodb.state_items import hour_key, instant_key, item
from slackwater.errors import CloudError
from slackwater.runs.periods.changes import PeriodChanged
from slackwater.runs.periods.fold_periods import PeriodFolder
from slackwater.runs.periods.read_parts import PartReader
from slackwater.sources.counts import ALL
from slackwater.state.completeness import CountState
from slackwater.state.facts import HOUR, Coverage, HourFacts, Part, RejectedEvents
from slackwater.state.fold import Distinct, PeriodState, fold, periods_with
from slackwater.state.reports import new_report
from tests.fakes_dynamodb import LocalDynamoDB
from tests.fakes_receiver import MemoryFileCache, MemoryStore, a_source
from tests.fakes_state import STATE_TABLE
from tests.state_world import OneSource

pytestmark = pytest.mark.unit

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOURCE = a_source(counts={"window": "5m"})
PARTS = tuple(
    Part(f"{number:032x}-12", {ALL: (1,) * 12}, 100, START + timedelta(microseconds=number)) for number in range(60)
)


@pytest.fixture
def table(each_dynamodb: LocalDynamoDB) -> Iterator[DynamoPeriodTable]:
    with each_dynamodb.table("state", **STATE_TABLE) as name:
        yield DynamoPeriodTable(each_dynamodb.client, name)


def a_state(version: int = 1) -> PeriodState:
    [period] = periods_with(SOURCE, [START])
    state = fold(period, {START: HourFacts(parts=PARTS)}, Coverage(START, START + HOUR), distinct=None)
    return state._replace(version=version, distinct=Distinct(state.parts, {ALL: (5,) * 12}))


def a_folder(table: DynamoPeriodTable, changes: list[PeriodChanged]) -> PeriodFolder:
    return PeriodFolder(
        project=OneSource(SOURCE),
        table=table,
        files=MemoryFileCache(),
        parts=PartReader(MemoryStore(), "raw"),
        exchange_bucket="exchange",
        put_changes=changes.extend,
        on_changed=lambda *_: None,
        on_full=lambda *_: None,
    )


def test_objects_are_facts_beside_those_that_counts_read(table):
    table.put_rejected("things", {START: RejectedEvents("batch", {ALL: (1,) * 12}, 0)})
    for _ in range(2):
        table.put_parts("things", {START: PARTS, START + HOUR: PARTS[:1]})
    found = table.all_facts("things", [START, START + HOUR, START + 2 * HOUR])
    assert sorted(found[START].parts) == sorted(PARTS)
    assert found[START + HOUR].parts == PARTS[:1]
    assert found[START + 2 * HOUR] == ((), (), ())
    assert table.facts("things", [START])[START] == found[START]._replace(parts=())


def test_a_state_is_stored_once_for_each_version(table):
    assert table.states("things", [START]) == []
    first = a_state()
    assert table.put_state(first)
    assert not table.put_state(first._replace(parts="other"))
    assert table.put_state(first._replace(version=2))
    assert not table.put_state(first._replace(version=4))
    assert table.states("things", [START, START + HOUR, START]) == [first._replace(version=2)]
    # Neither the facts of the hour nor the coverage of reports are states.
    assert table.facts("things", [START])[START] == ((), (), ())
    assert table.coverage("things") is None


def test_an_unknown_window_is_read_with_whether_it_is_reported(table):
    """The first is unknown because ids were not read, the second because its report does not reach its end."""
    first, second, *others = a_state().windows
    unknown = CountState.UNKNOWN
    windows = (first._replace(state=unknown), second._replace(state=unknown, is_reported=False), *others)
    state = a_state()._replace(windows=windows)
    assert table.put_state(state)
    [found] = table.states("things", [START])
    assert (found, [window.is_reported for window in found.windows]) == (state, [True, False, *[True] * 10])


def test_a_state_of_an_earlier_version_is_read_and_replaced(table, each_dynamodb):
    """It has no keys, nor what the reports covered, and its ids are counted without keys."""
    at = START + HOUR
    table.put_report(new_report(SOURCE, as_of=at, through=at, counts={START: 1}, principal="push:acme"))
    windows = [[5 * number, 5, int(number == 0), 0, 0, "c" if number else "s"] for number in range(12)]
    record = {
        "start": instant_key(START),
        "end": instant_key(at),
        "state": "short",
        "windows": windows,
        "facts": "f",
        "parts": "p",
        "distinct": ["p", [0] * 12],
    }
    stored = item(
        hour_key("things", START), "state", expires=at, version={"N": "3"}, announced={"N": "3"},
        record={"S": json.dumps(record)},
    )  # fmt: skip
    each_dynamodb.client.put_item(TableName="state", Item=stored)
    [before] = table.states("things", [START])
    assert (before.state, before.keys, before.covered, before.distinct) == ("short", ((ALL, "short"),), None, None)
    assert [window.key for window in before.windows] == [ALL] * 12
    table.put_parts("things", {START: PARTS[:1]})
    assert not a_folder(table, []).fold("things", [START], only_objects=True).failed
    [after] = table.states("things", [START])
    # The silence after the first window is known by the coverage alone.
    assert (after.version, after.sent, after.windows[1].sent, after.state) == (4, 1, 0, "surplus")
    assert after.covered == table.coverage("things")


def test_a_message_is_recorded_for_the_newest_version_only(table):
    state = a_state()
    assert table.put_state(state)
    assert table.put_state(state._replace(version=2))
    for version in (2, 1, 2):
        table.put_announced(state._replace(version=version))
    assert [each.announced for each in table.states("things", [START])] == [2]


def test_what_reports_covered_is_kept_apart_from_the_reports(table):
    assert table.covered("things") == (None, None)
    report = new_report(SOURCE, as_of=START, through=START, counts={START: 1}, principal="push:acme")
    table.put_report(report)
    covered = table.coverage("things")
    table.put_folded("things", Coverage(START, START + HOUR))
    assert table.covered("things") == (covered, Coverage(START, START + HOUR))
    assert table.coverage("things") == covered
    table.put_report(report._replace(through=START + 2 * HOUR))
    assert table.covered("things").folded == Coverage(START, START + HOUR)


def test_what_an_earlier_version_has_covered_and_folded_is_known(table, each_dynamodb):
    def put(sort_key: str, **attributes: dict[str, str]) -> None:
        stored = item("things#reports", sort_key, expires=START, **attributes)
        each_dynamodb.client.put_item(TableName="state", Item=stored)

    at, first, through = (instant_key(START + number * HOUR) for number in (3, 0, 2))
    put(f"from#{first}#{at}#id")
    put(f"through#{through}#{at}#id")
    covered = Coverage(START, START + 2 * HOUR)
    assert table.covered("things") == (covered, None)
    put("folded", first={"S": first}, through={"S": first})
    assert table.covered("things") == (covered, None), "only what was stored before is taken over"
    each_dynamodb.client.delete_item(TableName="state", Key={"pk": {"S": "things#reports"}, "sk": {"S": "covered"}})
    assert table.covered("things") == (covered, (START, START))
    table.put_folded("things", covered)
    assert table.covered("things") == (covered, covered)


def test_an_hour_of_the_last_years_can_be_stored(table):
    last = datetime(9999, 12, 31, 23, tzinfo=UTC)
    table.put_parts("things", {last: PARTS[:1]})
    assert table.all_facts("things", [last])[last].parts == PARTS[:1]


def test_a_function_that_ends_at_any_request_or_is_throttled_leaves_what_the_next_call_completes(table, each_dynamodb):
    """Between any two requests to DynamoDB: the process ends, or the table is throttled."""
    changes = []
    folder = a_folder(table, changes)
    at = START + HOUR
    table.put_report(new_report(SOURCE, as_of=at, through=at, counts={START: 60}, principal="push:acme"))
    for requests in range(40):
        calls = []

        def fail(operation: str, calls: list[str] = calls, most: int = requests) -> None:
            calls.append(operation)
            if len(calls) > most:
                raise ClientError({"Error": {"Code": "ProvisionedThroughputExceededException"}}, operation)

        each_dynamodb.before = fail
        try:
            folder.put_parts("things", {START: PARTS})
            failed = folder.fold("things", [START]).failed
            if not failed:
                break
        except CloudError:
            pass
        finally:
            each_dynamodb.before = lambda _: None
    assert requests > 8
    [state] = table.states("things", [START])
    assert (state.state, state.stored, state.sent, state.version, state.announced) == ("surplus", 720, 60, 1, 1)
    assert {(change.version, change.stored) for change in changes} == {(1, 720)}
