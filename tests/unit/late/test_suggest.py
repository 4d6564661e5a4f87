from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.client.late_suggest import suggest_thresholds
from slackwater.errors import InputError
from slackwater.late.changes.comparison import MetricChange, RowCounts, Totals, comparison_uri
from slackwater.late.check.suggest import PastRerun, past_rerun, suggest
from slackwater.pipeline.definition import Late
from slackwater.runs.cost import RunCost
from slackwater.runs.inputs.difference import Amount, Change, InputChange, SourceDifference
from slackwater.runs.record import DayRecord, Publication, PublishedRun, Rollback, RunRecord, RunState
from tests.fakes_check import World
from tests.fakes_notification import PIPELINE, a_comparison, a_run
from tests.fakes_runs import DictRunTable, DictStore

pytestmark = pytest.mark.unit

NOW = datetime(2013, 6, 1, 12, tzinfo=UTC)


def late(source, rows, before):
    now = Amount(objects=1, rows=rows, bytes=rows)
    change = InputChange(source=source, date="2013-03-10", hour="12", file=None, change=Change.ADDED, now=now)
    before_amount = Amount(objects=1, rows=before, bytes=before)
    return SourceDifference(source=source, before=before_amount, now=before_amount + now, changes=(change,))


def metric(before, after):
    return MetricChange(metric="flights", total=Totals.SUM, exact=True, before=before, after=after)


def comparison_of(date="2013-05-10", *, inputs, metrics=None, **changes):
    comparison = a_comparison(inputs=inputs)
    return comparison.model_copy(
        update={"date": date, "metrics": (metric(100.0, 103.0),) if metrics is None else metrics, **changes}
    )


def rerun(percent, effect, *, date="2013-05-10", rows=10, usd=0.01, differing=1):
    return PastRerun(
        date=date, attempt=2, late_percent=percent, late_rows=rows, usd=usd, effect=effect, differing=differing
    )


def test_rows_that_move_between_keys_are_a_missed_change_without_effect():
    past = [rerun(0.3, 0.0, differing=40)] * 4 + [rerun(0.3, 0.0, differing=0)]
    one = by_threshold(suggest("p", past, first="2013-03-03", max_effect=1))["percent", 1]
    assert (one.reruns, one.missed, one.largest_missed) == (0, 4, 0.0)


def by_threshold(suggestion):
    return {(item.threshold, item.value): item for item in suggestion.candidates}


def test_each_threshold_has_its_re_runs_their_cost_and_what_it_would_have_missed():
    past = [rerun(0.3, 0.1), rerun(0.7, 0.4), rerun(1.5, 2.0, date="2013-05-11"), rerun(8, 6), rerun(None, 50)]
    result = suggest("p", past, first="2013-03-03", max_effect=1)
    found = by_threshold(result)
    assert (found["percent", 0.2].reruns, found["percent", 0.2].missed) == (5, 0)
    one = found["percent", 1]
    assert (one.reruns, one.usd, one.missed) == (3, pytest.approx(0.03), 2)
    assert (one.largest_missed, found["percent", 2].largest_missed_date) == (0.4, "2013-05-11")
    # 2 % would have missed a change of 2 %; without rows before, any percentage is reached.
    assert result.proposed == one
    assert found["percent", 20].reruns == 1
    assert found["rows", 100].reruns == 0


def test_no_percentage_is_proposed_if_each_would_have_missed_too_much():
    past = [rerun(0.01, 30)] * 5
    assert suggest("p", past, first="2013-03-03", max_effect=1).proposed is None


def test_a_cost_that_is_unknown_is_not_counted_as_zero():
    result = suggest("p", [rerun(5, 1)] * 4 + [rerun(0.5, 1, usd=None)], first="2013-03-03", max_effect=1)
    assert result.usd is None
    assert by_threshold(result)["percent", 0.5].usd is None
    assert by_threshold(result)["percent", 1].usd == pytest.approx(0.04)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 10**6), st.floats(0, 100)), min_size=5, max_size=40))
def test_counts_equal_those_of_pandas(items):
    past = [rerun(percent, effect, rows=rows, differing=int(effect > 0)) for percent, rows, effect in items]
    frame = pd.DataFrame(items, columns=["percent", "rows", "effect"])
    for item in suggest("p", past, first="2013-03-03", max_effect=1).candidates:
        caused = frame[item.threshold] >= item.value
        missed = frame[~caused & (frame.effect > 0)]
        assert (item.reruns, item.missed) == (int(caused.sum()), len(missed))
        assert item.largest_missed == (missed.effect.max() if len(missed) else 0)


def test_a_re_run_has_the_largest_share_of_its_sources_and_the_largest_change_of_its_metrics():
    inputs = (late("flights", 10, 1000), late("weather", 3, 100))
    item = past_rerun(comparison_of(inputs=inputs, metrics=(metric(100.0, 99.0), metric(200.0, 206.0))), None)
    assert (item.late_percent, item.late_rows, item.effect, item.usd) == (3.0, 10, 3.0, None)
    rows = RowCounts(before=50, after=51, added=1, removed=0, changed=1)
    assert past_rerun(comparison_of(inputs=inputs, metrics=(), rows=rows), None).effect == 4.0
    new_source = (late("flights", 10, 0),)
    assert past_rerun(comparison_of(inputs=new_source), None).late_percent is None


@pytest.mark.parametrize(
    ("before", "after", "effect"), [(0.0, 5.0, 100), (5.0, 0.0, 100), (None, 5.0, 100), (5.0, 5.0, 0)]
)
def test_a_total_that_appears_or_disappears_has_changed_by_100_percent(before, after, effect):
    item = past_rerun(comparison_of(inputs=(late("flights", 1, 10),), metrics=(metric(before, after),)), None)
    assert item.effect == effect


def test_a_re_run_with_a_new_definition_or_without_late_rows_does_not_count():
    inputs = (late("flights", 1, 10),)
    comparison = comparison_of(inputs=inputs)
    changed = comparison.after.model_copy(update={"definition": "other"})
    assert past_rerun(comparison, None) is not None
    assert past_rerun(comparison.model_copy(update={"after": changed}), None) is None
    assert past_rerun(comparison.model_copy(update={"inputs": ()}), None) is None


def test_a_rollback_does_not_count():
    comparison = comparison_of(inputs=(late("flights", 1, 10),))
    run = RunRecord(run=a_run(2), state=RunState.PUBLISHED, execution="e", started_at=NOW)
    rollback = Rollback(to=1, tag="t", reason="r", frozen_at=NOW)
    assert past_rerun(comparison, run) is not None
    assert past_rerun(comparison, run.model_copy(update={"rollback": rollback})) is None


def stored_rerun(table, store, date, *, before=1, after=2):
    run = a_run(after).model_copy(update={"date": date})
    publication = Publication(table="t", snapshot_id="1", rows=1, replaced=1, seconds=1)
    published = PublishedRun(run=run, publication=publication, at=NOW)
    record = RunRecord(run=run, state=RunState.PUBLISHED, execution="e", started_at=NOW, cost=RunCost(usd=0.25))
    day = DayRecord(pipeline=PIPELINE, date=date, attempts=after, published=published)
    table.by_day[PIPELINE, date], table.records[PIPELINE, date, after] = day, record
    first = RunRecord(
        run=a_run(1).model_copy(update={"date": date}), state=RunState.PUBLISHED, execution="e", started_at=NOW
    )
    table.records[PIPELINE, date, 1] = first
    comparison = comparison_of(date, inputs=(late("flights", 20, 1000),))
    pair = a_comparison(before=before, after=after)
    comparison = comparison.model_copy(update={"before": pair.before, "after": pair.after})
    uri = comparison_uri(f"s3://exchange/comparisons/{PIPELINE}/{date}/{before}-{after}/")
    store.put(uri, comparison.model_dump_json().encode())


def read(table, store):
    definition = World().project.pipelines[PIPELINE].model_copy(update={"late": Late()})
    return suggest_thresholds(definition, table=table, store=store, exchange_bucket="exchange", now=NOW, max_effect=1.0)


def test_the_history_is_that_of_the_last_90_days_each_version_once():
    table, store = DictRunTable(), DictStore()
    for number in range(1, 7):
        stored_rerun(table, store, f"2013-05-{number:02}")
    stored_rerun(table, store, (NOW - timedelta(days=91)).date().isoformat())
    # A second comparison of the same version, and objects that are no comparisons.
    stored_rerun(table, store, "2013-05-01", before=0 + 1, after=2)
    store.put(f"s3://exchange/comparisons/{PIPELINE}/2013-05-01/1-2/pair.json", b"{}")
    store.put(comparison_uri(f"s3://exchange/comparisons/{PIPELINE}/2013-05-02/0-2/"), b"{}")
    result = read(table, store)
    assert (result.reruns, result.usd, result.first) == (6, pytest.approx(1.5), "2013-03-03")


def test_a_re_run_that_was_compared_with_an_earlier_version_is_skipped():
    table, store = DictRunTable(), DictStore()
    for number in range(1, 6):
        stored_rerun(table, store, f"2013-05-{number:02}")
    # Nobody was notified of versions 2 and 3, so the messages compared versions 3 and 4 with version 1.
    stored_rerun(table, store, "2013-05-05", after=3)
    stored_rerun(table, store, "2013-05-05", after=4)
    result = read(table, store)
    assert (result.reruns, result.skipped) == (5, 2)
    # `slackwater diff` has compared version 4 with the one before.
    stored_rerun(table, store, "2013-05-05", before=3, after=4)
    result = read(table, store)
    assert (result.reruns, result.skipped) == (6, 1)


def test_too_few_re_runs_are_an_error_that_says_how_many_are_needed():
    table, store = DictRunTable(), DictStore()
    stored_rerun(table, store, "2013-05-01")
    with pytest.raises(InputError, match=r"1 compared re-runs for late data since 2013-03-03, and a proposal needs 5"):
        read(table, store)
