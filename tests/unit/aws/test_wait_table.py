"""Waiting runs over two implementations of DynamoDB: the same as in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slackwater.aws.dynamodb.state_table import DynamoStateTable
from slackwater.aws.dynamodb.wait_table import DynamoWaitTable
from slackwater.state.conditions import Unmet
from slackwater.state.reports import new_report
from slackwater.state.waits import DayKey, WaitingRun
from tests.fakes_dynamodb import LocalDynamoDB
from tests.fakes_receiver import a_source
from tests.fakes_state import STATE_TABLE
from tests.fakes_waits import MemoryWaits

pytestmark = pytest.mark.unit

SINCE = datetime(2026, 1, 2, 3, 0, 0, 123_000, tzinfo=UTC)
UNMET = Unmet(input="clicks", kind="unknown", text="no counts", until=SINCE + timedelta(hours=4), then="fail")
KEYS = (DayKey("things", "2026-01-01"), DayKey("things", "2026-01-02"))


@pytest.fixture
def table(each_dynamodb: LocalDynamoDB) -> Iterator[DynamoWaitTable]:
    with each_dynamodb.table("state", **STATE_TABLE) as name:
        yield DynamoWaitTable(each_dynamodb.client, name)


def a_run(number: int = 1, *, key: DayKey = KEYS[0], name: str = "one", unmet: tuple[Unmet, ...] = ()) -> WaitingRun:
    return WaitingRun(*key, f"arn:aws:states:us-east-1:1:execution:m:{name}", f"token {number}", SINCE, unmet)


calls = st.tuples(
    st.sampled_from(["put_wait", "save_unmet", "remove_wait"]),
    st.sampled_from(KEYS),
    st.sampled_from(["one", "two"]),
    st.integers(1, 2),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(st.lists(calls, max_size=12))
def test_it_is_the_table_in_memory(table, calls):
    memory = MemoryWaits()
    for key in KEYS:
        for run in table.waits(key):
            table.remove_wait(run)
    for call, key, name, number in calls:
        run = a_run(number, key=key, name=name)
        for each in (memory, table):
            getattr(each, call)(run, *([(UNMET,)] if call == "save_unmet" else []))
    for key in KEYS:
        assert sorted(table.waits(key)) == sorted(memory.waits(key))


def test_items_have_the_documented_keys_and_expire(table, each_dynamodb):
    table.put_wait(a_run(unmet=(UNMET,)))
    [item] = each_dynamodb.items("state")
    assert (item["pk"]["S"], item["sk"]["S"]) == ("things#2026-01-01", "wait#one")
    assert int(item["expires"]["N"]) == int((SINCE + timedelta(days=14)).timestamp())


def test_a_source_of_the_same_name_is_something_else(table, each_dynamodb):
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    source = a_source(counts={"window": "1h"})
    report = new_report(source, as_of=SINCE, through=SINCE, counts={start: 1}, principal="push:acme")
    facts = DynamoStateTable(each_dynamodb.client, "state")
    facts.put_report(report)
    table.put_wait(a_run())
    assert table.waits(KEYS[0]) == [a_run()]
    assert len(facts.facts("things", [start])[start].reports) == 1
