"""Verdicts over two implementations of DynamoDB: the same as in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import combinations_with_replacement, permutations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slackwater.aws.dynamodb.state_table import DynamoStateTable
from slackwater.aws.dynamodb.verdict_table import DynamoVerdictTable
from slackwater.state.facts import HOUR, KEPT
from slackwater.state.verdicts import Quality, Subject, Verdict, failures, new_verdict
from tests.fakes_dynamodb import LocalDynamoDB
from tests.fakes_functions import resources_of
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
    st.sampled_from(["", "daily 2026-01-01"]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(st.lists(verdicts, max_size=8))
def test_it_is_the_table_in_memory(table, given_):
    memory = MemoryVerdicts()
    for subject in table.subjects():
        table._dynamodb.delete_item(
            TableName=table._table, Key={"pk": {"S": "#verdicts"}, "sk": {"S": "#".join(subject)}}
        )
    for subject in PERIODS:
        kind = {"source": "hour", "pipeline": "day"}[subject.of]
        for old in table._items(f"{subject.name}#verdicts", kind, f"{kind}~", what="all"):
            table._dynamodb.delete_item(TableName=table._table, Key={"pk": old["pk"], "sk": old["sk"]})
    for (subject, period), quality, version, reason, microseconds, giver in given_:
        verdict = new_verdict(
            subject, period, quality, version=None if subject.of == "source" else version, reason=reason,
            principal="arn:aws:iam::1:user/ana", at=AT + timedelta(microseconds=microseconds), giver=giver,
        )  # fmt: skip
        for each in (memory, table):
            each.put_verdicts([verdict])
    assert table.subjects() == memory.subjects()
    for subject, periods in PERIODS.items():
        for first, last in combinations_with_replacement(periods, 2):
            stored, expected = table.verdicts(subject, first, last), memory.verdicts(subject, first, last)
            assert sorted(stored, key=repr) == sorted(expected, key=repr)
            assert failures(stored) == failures(expected)


def test_facts_of_hours_are_read_without_them_and_they_expire(table):
    given_ = new_verdict(CLICKS, HOURS[0], "fail", version=None, reason="bots", principal="ana", at=AT)
    table.put_verdicts([given_])
    table.put_verdicts([given_])
    hour = AT.replace(day=1, hour=9, microsecond=0)
    [facts] = DynamoStateTable(table._dynamodb, table._table).facts("clicks", [hour]).values()
    assert facts == ((), (), ())
    [stored] = table._items("clicks#verdicts", "hour", "hour~", what="all")
    assert int(stored["expires"]["N"]) == int((AT + HOUR + KEPT).timestamp())
    assert table.verdicts(CLICKS, HOURS[0], HOURS[0]) == [given_]


@pytest.mark.parametrize(
    ("subject", "period", "kept_from"),
    [(CLICKS, "2024-01-01T09", AT), (DAILY, "2024-01-01", AT), (DAILY, "2026-01-03", AT.replace(day=3, hour=0))],
)
def test_a_verdict_is_kept_for_400_days_after_its_period_and_after_it_was_given(table, subject, period, kept_from):
    table.put_verdicts([new_verdict(subject, period, "fail", version=1, reason="bots", principal="ana", at=AT)])
    [stored] = table._items(f"{subject.name}#verdicts", "day", "hour~", what="all")
    assert int(stored["expires"]["N"]) == int((kept_from.replace(microsecond=0) + HOUR + KEPT).timestamp())
    [of_subject] = table._items("#verdicts", "a", "z", what="all")
    # What a later verdict about an earlier period writes does not end before.
    table.put_verdicts([new_verdict(subject, "2024-01-01", "pass", version=1, reason="r", principal="ana", at=AT)])
    [later] = table._items("#verdicts", "a", "z", what="all")
    assert min(int(item["expires"]["N"]) for item in (of_subject, later)) > int(stored["expires"]["N"])


class Wakes:
    """Whom the receiver has told of verdicts about the hour, by the instant at which each was given."""

    def __init__(self) -> None:
        self.told: list[datetime] = []

    def wake_verdict(self, subject: Subject, periods: list[str], at: datetime) -> None:
        assert (subject, periods) == (CLICKS, [HOURS[0]])
        self.told.append(at)


def received(*verdicts: Verdict, before: Sequence[Verdict] = ()) -> tuple[list[Verdict], list[datetime]]:
    """Return what is stored when these verdicts come in this order, and of which runs and days are told."""
    table, wakes = MemoryVerdicts(), Wakes()
    table.put_verdicts(before)
    resources = resources_of(verdict_table=table, wake_requests=wakes)
    for verdict in verdicts:
        resources.put_verdict(verdict)
    return list(table.stored.values()), wakes.told


def of_partner(quality: Quality, minute: int, reason: str = "bots", giver: str = "push:acme") -> Verdict:
    at = AT + timedelta(minutes=minute)
    return new_verdict(CLICKS, HOURS[0], quality, version=None, reason=reason, principal=giver, giver=giver, at=at)


FAIL, PASS = of_partner("fail", 0), of_partner("pass", 1)
BY_PERSON = new_verdict(CLICKS, HOURS[0], "pass", version=None, reason="looked at it", principal="ana", at=PASS.at)


@pytest.mark.parametrize(
    "order", list(permutations([FAIL, PASS, of_partner("fail", 2, "again"), of_partner("pass", 3)]))
)
def test_the_newest_verdict_of_a_partner_decides_in_whatever_order_they_arrive(order):
    for number in range(1, len(order) + 1):
        stored, _ = received(*order[:number])
        assert failures(stored) == failures(order[:number])


def test_a_fail_that_a_partner_repeats_is_stored_once_and_told_once():
    again = [of_partner("fail", minute) for minute in (1, 2, -1)]
    assert received(FAIL, *again) == ([FAIL], [FAIL.at])


@pytest.mark.parametrize("between", [PASS, BY_PERSON, of_partner("fail", 1, "other bots")])
def test_a_fail_that_does_not_stand_any_more_is_stored_when_it_is_repeated(between):
    later = of_partner("fail", 2)
    stored, told = received(later, before=[FAIL, between])
    assert (stored, told, failures(stored)) == ([FAIL, between, later], [later.at], [later])


def test_each_partner_has_its_own_verdicts():
    others = of_partner("fail", 1, giver="push:other"), of_partner("pass", 2, giver="push:other")
    stored, _ = received(FAIL, *others)
    assert (stored, failures(stored)) == ([FAIL, *others], [FAIL])


def test_a_pass_that_clears_nothing_tells_nobody():
    assert received(PASS, of_partner("pass", 2)) == ([PASS, of_partner("pass", 2)], [])


@pytest.mark.parametrize(("verdict", "before"), [(FAIL, ()), (PASS, (FAIL,))])
def test_a_request_that_is_repeated_tells_again(verdict, before):
    """The process of the first one may have ended when the verdict was stored, and nobody was told."""
    assert received(verdict, verdict, before=before) == ([*before, verdict], [verdict.at] * 2)
