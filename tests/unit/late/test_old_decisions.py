# ruff: noqa: E501
"""The list of rules decides as the functions that it replaces, for random facts."""

import os
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from slackwater.errors import DayChanged, ObjectInvalid, ObjectMissing, Throttled
from slackwater.late.check.decision import DecisionRule
from slackwater.late.check.facts import DayFacts, DayInputs, DefinitionChange, SourceThresholds
from slackwater.late.check.limits.limits import decide_with_limits
from slackwater.late.check.rules import decide
from slackwater.late.check.wait import MaxAge
from slackwater.pipeline.definition import Late
from slackwater.pipeline.table_inputs import TableInput
from slackwater.project import load_project
from slackwater.runs.day import day_of
from slackwater.runs.inputs.difference import Amount, Change, InputChange, SourceDifference
from slackwater.runs.record import ActiveRun, Hold, Resolution, ResolutionAction, RunRecord, RunState
from slackwater.runs.rerun_usage import RerunUsage, ReservedRerun
from slackwater.sources.late_thresholds import LateThresholds
from tests import old_decisions as old
from tests.fakes_notification import PIPELINE, a_day, a_run

pytestmark = pytest.mark.unit

NOW = datetime(2013, 3, 13, 18, tzinfo=UTC)
BASE = load_project(Path("examples/nyc_flights")).pipelines["daily_delays"]
NAMES = ("flights", "weather", "one", "three", "two")
SEEN = Counter()


def rarely(strategy, times=4):
    return st.one_of(*[st.none()] * times, strategy)


mostly_false = st.sampled_from([False, False, False, True])


def chance(draw, of):
    return draw(st.integers(1, 2**40)) % of == of // 2


amounts = st.builds(Amount, objects=st.integers(1, 2), rows=st.integers(0, 30), bytes=st.integers(0, 900))


@st.composite
def changes(draw, source):
    change = draw(st.sampled_from([Change.ADDED, Change.ADDED, Change.CHANGED, Change.REMOVED]))
    before = Amount() if change is Change.ADDED else draw(amounts)
    now = Amount() if change is Change.REMOVED else draw(amounts)
    if change is Change.CHANGED and draw(st.booleans()):
        now = now.model_copy(update={"rows": before.rows + now.rows})
    is_source = source in NAMES[:2]
    removed = draw(st.sampled_from([None, "hold", "drop", "drop"])) if change is Change.REMOVED and is_source else None
    file = (
        draw(st.sampled_from(["f.csv", "g.csv"] if removed else ["f.csv", "g.csv", None]))
        if is_source
        else "d 2013-03-10"
    )
    return InputChange(
        source=source, date="2013-03-10", hour=draw(st.sampled_from(["05", "12"])), file=file, change=change,
        before=before, now=now, on_removed=removed,
    )  # fmt: skip


@st.composite
def differences(draw):
    result = []
    for name in NAMES:
        items = tuple(draw(st.lists(changes(name), max_size=2))) if chance(draw, 3) else ()
        before = draw(
            st.sampled_from([Amount(), Amount(objects=3, rows=100, bytes=4000), Amount(objects=1, rows=9, bytes=9)])
        )
        result.append(SourceDifference(source=name, before=before, now=draw(amounts), changes=items))
    return tuple(result)


levels = st.one_of(
    st.builds(LateThresholds, percent=st.sampled_from([0, 5, 60])),
    st.builds(LateThresholds, rows=st.sampled_from([0, 10, 40])),
    st.builds(LateThresholds, percent=st.just(50), rows=st.just(25), changed_files=rarely(st.just(1))),
)


@st.composite
def inputs(draw, run_count):
    failed = [
        RunRecord(
            run=a_run(number + 2),
            state=RunState.FAILED,
            execution="e",
            started_at=NOW,
            error=draw(rarely(st.just("bad"))),
        )
        for number in range(draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4])))
    ]
    names = st.sampled_from(NAMES)
    tables = {
        name: TableInput(table="d", on_change=draw(st.sampled_from(["auto", "hold", "notify", "ignore"])))
        for name in NAMES[2:]
    }
    change = DefinitionChange(("a: added",), "d", draw(st.booleans()), chance(draw, 3)) if chance(draw, 3) else None
    ages = draw(rarely(st.dictionaries(names, st.sampled_from([2.0, 24.0]), max_size=3), 1)) or {}
    return DayInputs(
        digest="i",
        differences=draw(differences()),
        thresholds={name: SourceThresholds(draw(levels), "its source") for name in NAMES},
        tables=tables,
        failed=failed,
        last_rerun_at=draw(
            rarely(st.sampled_from([NOW - timedelta(minutes=9), NOW - timedelta(hours=1), NOW - timedelta(hours=9)]), 1)
        ),
        waits=draw(st.dictionaries(names, st.sampled_from([1.0, 2.0, 30.0]), max_size=5)),
        max_ages={name: MaxAge(hours, "late.max_age_hours") for name, hours in ages.items()},
        definition=change,
        is_repeated=chance(draw, 3),
        bytes=draw(st.integers(0, 5000)),
    )


@st.composite
def facts(draw, number):
    published, attempts = draw(st.integers(1, 2)), draw(st.integers(0, 4))
    attempts += published
    actions = st.sampled_from([ResolutionAction.RELEASED, ResolutionAction.REJECTED, ResolutionAction.ENDED])
    resolution = Resolution(
        action=draw(actions), reason="r", principal="p", at=NOW, inputs=draw(st.sampled_from(["i", "i", "i", "j"])),
        attempt=published,
    )  # fmt: skip
    hold = Hold(rule=draw(st.sampled_from(["audit", "audit", "failed", "vanished"])), reason="why", since=NOW,
        attempt=draw(st.integers(2, 6)))  # fmt: skip
    hold = draw(st.sampled_from([None, None, hold]))
    error = (
        draw(st.sampled_from([DayChanged("x"), ObjectMissing("x"), Throttled("x"), ObjectInvalid("x")]))
        if chance(draw, 40)
        else None
    )
    if chance(draw, 40):
        hold = Hold(rule="rolled_back", reason="version 1", since=NOW)
    is_unknown, is_active = chance(draw, 3), chance(draw, 9)
    date_ = (date(2013, 3, 6) + timedelta(days=number)).isoformat()
    record = a_day(published).model_copy(update={
        "date": date_, "attempts": attempts, "hold": hold, "outcome_unknown": is_unknown,
        "active": ActiveRun(execution="e", run=a_run(attempts), since=NOW) if is_active else None,
        "resolution": draw(st.sampled_from([None, resolution, resolution])),
    })  # fmt: skip
    if chance(draw, 40):
        record = record.model_copy(update={"published": None})
    compared = None if error or record.published is None or chance(draw, 40) else draw(inputs(attempts))
    is_running, is_current = (chance(draw, 40) for _ in range(2))
    result = DayFacts(
        day=day_of(date.fromisoformat(date_), "UTC"), record=record, is_in_window=draw(st.sampled_from([True, True, False])),
        is_current=is_current, is_running=is_running and is_active, is_published=True, frozen_at=None if error else NOW, compared=compared, error=error,
    )  # fmt: skip
    return replace(result, compared=None) if result.is_early else result


def old_decision(item):
    """Decide without limits, as the check before."""
    record, compared = item.record, item.compared
    if item.error:
        return old.unreadable_day(record, item.error)
    rule = old.early_rule(record, current=item.is_current, running=item.is_running)
    if rule or compared is None:
        return old.decide_early(record, rule or DecisionRule.MANIFEST_GONE, frozen_at=item.frozen_at)
    change = compared.definition and old.DefinitionChange(*compared.definition)
    if change and not item.is_in_window:
        change = change._replace(reruns=False)
    decision = old.evaluate_day(
        record, compared.differences, thresholds=compared.thresholds, tables=compared.tables, inputs=compared.digest,
        frozen_at=item.frozen_at, failed=compared.failed, last_rerun_at=compared.last_rerun_at, waits=compared.waits,
        max_ages=compared.max_ages, definition=change, is_repeated=compared.is_repeated,
    )  # fmt: skip
    if change and change.moves_hours:
        decision = old.hold_moved_hours(decision, record, compared.digest)
    if change:
        figures = decision.figures.model_copy(update={"input_bytes": compared.bytes})
        decision = decision.model_copy(update={"new_definition": change.lines, "figures": figures})
    return decision


def assert_equal(item, one, other):
    SEEN[other.rule] += 1
    differ_in = {"reasons"} if is_allowed(item, one) else set()
    assert one.model_dump(exclude=differ_in) == other.model_dump(exclude=differ_in)


def is_allowed(item, decision):
    """Whether the reasons may differ: a rejected day shows what has changed, and not how its attempts failed."""
    return decision.rule is DecisionRule.REJECTED and len(item.compared.failed) >= 3


@st.composite
def checks(draw):
    count = draw(st.integers(1, 4))
    days = [draw(facts(number)) for number in range(count)]
    budget, worth, reruns, order = (
        draw(st.sampled_from([None, 0.5, 2.0])), draw(st.sampled_from([None, 0.01, 5.0])), draw(st.sampled_from([1, 2, 50])),
        draw(st.sampled_from(["oldest", "newest", "largest"])),
    )  # fmt: skip
    late = Late(budget_per_day=budget, worth_per_percent=worth, max_reruns_per_day=reruns, order=order)
    reserved = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(2, 6)), max_size=2, unique=True))
    usage = RerunUsage(pipeline=PIPELINE, date="2013-03-13", reruns=tuple(
        ReservedRerun(date=f"2013-03-0{6 + number}", attempt=attempt, at=NOW, usd=draw(st.sampled_from([None, 0.3])))
        for number, attempt in reserved
    ))  # fmt: skip
    return days, late, usage, draw(st.sampled_from([None, 0.0005, 0.002]))


@settings(
    max_examples=int(os.environ.get("EXAMPLES", "2000")),
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(check=checks())
def test_the_rules_decide_as_before(check):
    days, late, usage, price = check
    before = [old_decision(item) for item in days]
    for item, decision in zip(days, before, strict=True):
        assert_equal(item, decide(item), decision)
    # Limits apply in checks of the window only.
    days = [replace(item, is_in_window=True) for item in days]
    late = late.model_copy(update={"on_definition": "keep"})
    reruns = {bool(item.compared.definition.reruns) for item in days if item.compared and item.compared.definition}
    if reruns:
        is_rerun = reruns == {True}
        late = late.model_copy(update={"on_definition": "rerun" if is_rerun else "keep"})
        days = [
            replace(
                item, compared=replace(item.compared, definition=item.compared.definition._replace(reruns=is_rerun))
            )
            if item.compared and item.compared.definition
            else item
            for item in days
        ]
    definition = BASE.model_copy(update={"late": late})
    arguments = {"usage": usage, "estimate": lambda size: price and price * size, "now": NOW}
    expected = old.limit_reruns(definition, [old_decision(item) for item in days], **arguments)
    actual = decide_with_limits(definition, days, **arguments)
    for item, one, other in zip(days, actual.days, expected.days, strict=True):
        assert_equal(item, one, other)
    assert actual.usage == expected.usage


def test_all_rules_were_compared():
    print(dict(SEEN))
    assert set(SEEN) == set(DecisionRule)
