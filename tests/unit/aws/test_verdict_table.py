"""Verdicts over two implementations of DynamoDB: the same as in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slackwater.aws.dynamodb.state_table import DynamoStateTable
from slackwater.aws.dynamodb.verdict_table import DynamoVerdictTable
from slackwater.state.facts import KEPT
from slackwater.state.verdicts import Subject, Verdict, deciding, new_verdict
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


@st.composite
def verdicts(draw) -> Verdict:
    subject = draw(st.sampled_from([CLICKS, OF_CLICKS, DAILY]))
    return new_verdict(
        subject,
        draw(st.sampled_from(HOURS if subject.of == "source" else DATES)),
        draw(st.sampled_from(["fail", "pass"])),
        version=None if subject.of == "source" else draw(st.integers(1, 2)),
        reason=draw(st.sampled_from(["bots", "Größe # 1"])),
        principal="arn:aws:iam::1:user/ana",
        at=AT + timedelta(microseconds=draw(st.integers(-3, 3))),
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(st.lists(verdicts(), max_size=8), st.data())
def test_it_is_the_table_in_memory(table, found, data):
    memory = MemoryVerdicts()
    for subject in (CLICKS, OF_CLICKS, DAILY):
        kind = {"source": "hour", "pipeline": "day"}[subject.of]
        for old in table._items(f"{subject.name}#verdicts", kind, f"{kind}~", what="all"):
            table._dynamodb.delete_item(TableName=table._table, Key={"pk": old["pk"], "sk": old["sk"]})
    for verdict in found:
        for each in (memory, table):
            each.put_verdicts([verdict])
    for subject, periods in ((CLICKS, HOURS), (OF_CLICKS, DATES), (DAILY, DATES)):
        first = data.draw(st.sampled_from(periods))
        last = data.draw(st.sampled_from([each for each in periods if each >= first]))
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
