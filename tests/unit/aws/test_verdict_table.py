"""Verdicts over two implementations of DynamoDB: the same as in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations_with_replacement

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slackwater.aws.dynamodb.state_table import DynamoStateTable
from slackwater.aws.dynamodb.verdict_table import DynamoVerdictTable
from slackwater.state.facts import KEPT
from slackwater.state.verdicts import Subject, deciding, new_verdict
from tests.fakes_dynamodb import LocalDynamoDB
from tests.fakes_state import STATE_TABLE, MemoryVerdicts

pytestmark = pytest.mark.unit

AT = datetime(2026, 1, 2, 3, 0, 0, 123_000, tzinfo=UTC)
CLICKS, OF_CLICKS, DAILY = Subject("source", "clicks"), Subject("pipeline", "clicks"), Subject("pipeline", "daily")
HOURS, DATES = ("2026-01-01T09", "2026-01-01T10", "2026-01-02T00"), ("2026-01-01", "2026-01-02")


@pytest.fixture
def table(each_dynamodb: LocalDynamoDB) -> Iterator[DynamoVerdictTable]:
    with each_dynamodb.table("state", **STATE_TABLE) as name:
        yield DynamoVerdictTable(each_dynamodb.client, name)


PERIODS = {CLICKS: HOURS, OF_CLICKS: DATES, DAILY: DATES}
verdicts = st.tuples(
    st.sampled_from([(subject, period) for subject, periods in PERIODS.items() for period in periods]),
    st.sampled_from(["fail", "pass"]),
    st.integers(1, 2),
    st.sampled_from(["bots", "Größe # 1"]),
    st.integers(-3, 3),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(st.lists(verdicts, max_size=8))
def test_it_is_the_table_in_memory(table, given_):
    memory = MemoryVerdicts()
    for subject in PERIODS:
        kind = {"source": "hour", "pipeline": "day"}[subject.of]
        for old in table._items(f"{subject.name}#verdicts", kind, f"{kind}~", what="all"):
            table._dynamodb.delete_item(TableName=table._table, Key={"pk": old["pk"], "sk": old["sk"]})
    for (subject, period), quality, version, reason, microseconds in given_:
        verdict = new_verdict(
            subject, period, quality, version=None if subject.of == "source" else version, reason=reason,
            principal="arn:aws:iam::1:user/ana", at=AT + timedelta(microseconds=microseconds),
        )  # fmt: skip
        for each in (memory, table):
            each.put_verdicts([verdict])
    for subject, periods in PERIODS.items():
        for first, last in combinations_with_replacement(periods, 2):
            stored, expected = table.verdicts(subject, first, last), memory.verdicts(subject, first, last)
            assert sorted(stored, key=repr) == sorted(expected, key=repr)
            assert deciding(stored) == deciding(expected)


def test_facts_of_hours_are_read_without_them_and_they_expire(table):
    given_ = new_verdict(CLICKS, HOURS[0], "fail", version=None, reason="bots", principal="ana", at=AT)
    table.put_verdicts([given_])
    table.put_verdicts([given_])
    hour = datetime(2026, 1, 1, 9, tzinfo=UTC)
    [facts] = DynamoStateTable(table._dynamodb, table._table).facts("clicks", [hour]).values()
    assert facts == ((), (), ())
    [stored] = table._items("clicks#verdicts", "hour", "hour~", what="all")
    assert int(stored["expires"]["N"]) == (hour + timedelta(hours=1) + KEPT).timestamp()
    assert table.verdicts(CLICKS, HOURS[0], HOURS[0]) == [given_]
