from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.client.suggest import suggest_thresholds
from slackwater.costs.cost import RunCost
from slackwater.errors import InputError
from slackwater.late.check.thresholds import LateAmount
from slackwater.late.comparison import MetricChange, RowCounts, Totals, comparison_uri
from slackwater.late.suggest import PastRerun, past_rerun, suggest
from slackwater.pipeline.definition import Late
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


def rerun(late_rows, before, effect=0.0, *, date="2013-05-10", attempt=2, usd=0.01, differing=1, files=0):
    """A re-run for late rows of a source that had `before` rows; `effect` is the change of a metric in percent."""
    amount = Amount(objects=1, rows=late_rows, bytes=100 * late_rows)
    return PastRerun(
        date=date,
        before=attempt - 1,
        attempt=attempt,
        late={"flights": LateAmount(rows_before=before, late=amount, changed_files=files)},
        usd=usd,
        metrics=(metric(100.0, 100.0 + effect),),
        rows=RowCounts(before=50, after=50, added=0, removed=0, changed=differing),
    )


def of_days(*reruns):
    """The re-runs, each of a day of its own."""
    return [item.model_copy(update={"date": f"2013-05-{number:02}"}) for number, item in enumerate(reruns, 1)]


def by_threshold(reruns, **options):
    suggestion = suggest("p", reruns, first="2013-03-03", max_effect=1, **options)
    return suggestion, {(item.threshold, item.value): item for item in suggestion.candidates}


def test_rows_that_move_between_keys_are_a_missed_change_without_effect():
    past = of_days(*[rerun(3, 1000, differing=40)] * 4, rerun(3, 1000, differing=0))
    one = by_threshold(past)[1]["percent", 1]
    assert (one.reruns, one.missed, one.largest_missed) == (0, 4, 0.0)


def test_each_threshold_has_its_re_runs_their_cost_and_what_it_would_have_missed():
    past = of_days(
        rerun(3, 1000, 0.1), rerun(7, 1000, 0.4), rerun(15, 1000, 2), rerun(80, 1000, 6, files=2), rerun(9, 0, 50)
    )
    result, found = by_threshold(past)
    assert (found["percent", 0.2].reruns, found["percent", 0.2].missed) == (5, 0)
    one = found["percent", 1]
    assert (one.reruns, one.usd, one.missed) == (3, pytest.approx(0.03), 2)
    # 2 % would have missed a change of 2 %; without rows before, any percentage is reached.
    assert (one.largest_missed, found["percent", 2].largest_missed_date) == (pytest.approx(0.4), "2013-05-03")
    assert found["percent", 20].reruns == 1
    assert (found["rows", 10].reruns, found["rows", 100].reruns, found["bytes", 1_000].reruns) == (2, 0, 2)
    assert [found["changed_files", number].reruns for number in (1, 2, 5)] == [1, 1, 0]
    # Largest amounts: 8 %, 80 rows, 8,000 bytes. Any greater value would have missed a change above 1 %.
    assert result.proposed == (one, found["rows", 1])


def proposed(reruns, **options):
    return [(item.threshold, item.value) for item in by_threshold(reruns, **options)[0].proposed]


def test_no_value_above_the_amounts_of_the_past_re_runs_is_proposed():
    assert proposed(of_days(*[rerun(5, 1000)] * 7)) == [("percent", 0.5), ("rows", 10), ("bytes", 1_000)]


def test_the_largest_amount_of_any_source_limits_a_proposal():
    other = LateAmount(rows_before=0, late=Amount(objects=1, rows=200, bytes=20_000), changed_files=0)
    both = rerun(5, 1000).model_copy(update={"late": {**rerun(5, 1000).late, "weather": other}})
    # Without rows before, there is no percentage.
    assert proposed(of_days(*[rerun(5, 1000)] * 6, both)) == [("percent", 0.5), ("rows", 1_000), ("bytes", 100_000)]


def test_changed_files_are_proposed_only_if_every_past_re_run_had_some():
    past = [rerun(5, 1000, files=2)] * 6
    assert ("changed_files", 2) in proposed(of_days(*past, rerun(5, 1000, files=1)))
    assert "changed_files" not in dict(proposed(of_days(*past, rerun(5, 1000))))


def test_changed_files_are_not_proposed_without_a_threshold_that_new_data_reaches():
    # Files without rows have removed a tenth of the day: any number of rows misses that, 1 changed file does not.
    assert proposed(of_days(*[rerun(0, 10**9, 30, files=1)] * 5)) == []


def test_no_threshold_is_proposed_if_each_would_have_missed_too_much():
    past = of_days(*[rerun(0, 10**9, 30)] * 5)
    assert by_threshold(past)[0].proposed == ()


def test_a_total_that_appears_or_disappears_is_an_infinite_change_that_no_proposal_misses():
    past = of_days(*[rerun(3, 1000)] * 4, rerun(3, 1000).model_copy(update={"metrics": (metric(0.0, 5.0),)}))
    result, found = by_threshold(past)
    one = found["percent", 1]
    assert (one.missed, one.largest_missed, one.largest_missed_date) == (5, None, "2013-05-05")
    assert [item.value for item in result.proposed if item.threshold == "percent"] == [0.2]


def test_a_cost_that_is_unknown_is_not_counted_as_zero():
    result, found = by_threshold(of_days(*[rerun(50, 1000, 1)] * 4, rerun(5, 1000, 1, usd=None)))
    assert (result.usd, found["percent", 0.5].usd) == (None, None)
    assert found["percent", 1].usd == pytest.approx(0.04)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0.1, 100)), min_size=5, max_size=28))
def test_counts_equal_those_of_pandas(items):
    past = of_days(*(rerun(rows, 10_000, effect) for rows, effect in items))
    frame = pd.DataFrame(items, columns=["rows", "effect"])
    frame = frame.assign(percent=frame.rows / 100, bytes=frame.rows * 100, changed_files=0)
    for item in by_threshold(past)[0].candidates:
        caused = frame[item.threshold] >= item.value
        missed = frame[~caused]
        assert (item.reruns, item.missed) == (int(caused.sum()), len(missed))
        assert item.largest_missed == pytest.approx(missed.effect.max() if len(missed) else 0)


@given(st.lists(st.integers(1, 3_000), min_size=5, max_size=30))
def test_skipped_late_data_adds_up_until_the_day_runs_again(arrivals):
    history, rows, total = [], 1_000, 100.0
    for number, late_rows in enumerate(arrivals):
        item = rerun(late_rows, rows, attempt=number + 2)
        history.append(item.model_copy(update={"metrics": (metric(total, total + late_rows),)}))
        rows, total = rows + late_rows, total + late_rows
    for item in by_threshold(history)[0].candidates:
        if item.threshold != "percent":
            continue
        # The checks of a pipeline with this threshold: each arrival is followed by one.
        published, waiting, started, first = 1_000, 0, 0, 100.0
        skipped = 0
        for late_rows in arrivals:
            waiting, skipped = waiting + late_rows, skipped + 1
            if Fraction(100 * waiting, published) >= Fraction(str(item.value)):
                published, started, first = published + waiting, started + 1, first + waiting
                waiting = skipped = 0
        assert (item.reruns, item.missed) == (started, skipped)
        assert item.largest_missed == pytest.approx(100 * waiting / first)


def test_data_that_was_skipped_before_a_version_that_does_not_count_is_missed():
    # A new definition has published attempt 3.
    past = [rerun(6, 1000, 3), rerun(6, 1006, 3, attempt=4), *of_days(*[rerun(90, 1000)] * 3)]
    one = by_threshold(past)[1]["percent", 1]
    assert (one.reruns, one.missed, one.largest_missed) == (3, 2, pytest.approx(3))


def past(comparison, run=None, inputs=("flights", "weather")):
    return past_rerun(comparison, run, inputs=inputs)


def test_a_re_run_has_the_late_data_of_the_inputs_that_decide_and_what_has_changed():
    dropped = InputChange(
        source="weather", date="2013-03-10", hour="12", file="a.csv", change=Change.REMOVED, on_removed="drop",
        before=Amount(objects=1, rows=3, bytes=3),
    )  # fmt: skip
    weather = SourceDifference(source="weather", before=Amount(rows=100), now=Amount(rows=97), changes=(dropped,))
    comparison = comparison_of(inputs=(late("flights", 10, 1000), weather, late("orders", 9, 9)))
    item = past(comparison)
    assert {name: (late.rows_before, late.late.rows, late.changed_files) for name, late in item.late.items()} == {
        "flights": (1000, 10, 0),
        "weather": (100, 3, 1),
    }
    assert (item.metrics, item.rows, item.usd) == (comparison.metrics, comparison.rows, None)
    # `on_change: notify`: the changes of this table decide nothing.
    assert past(comparison, inputs=()) is None


def test_a_re_run_with_a_new_definition_with_lost_rows_or_without_late_data_does_not_count():
    inputs = (late("flights", 1, 10),)
    comparison = comparison_of(inputs=inputs)
    changed = comparison.after.model_copy(update={"definition": "other"})
    assert past(comparison) is not None
    assert past(comparison.model_copy(update={"after": changed})) is None
    assert past(comparison.model_copy(update={"inputs": ()})) is None
    lost = inputs[0].changes[0].model_copy(update={"change": Change.REMOVED, "hour": "13"})
    with_loss = inputs[0].model_copy(update={"changes": (*inputs[0].changes, lost)})
    assert past(comparison.model_copy(update={"inputs": (with_loss,)})) is None


def test_a_rollback_does_not_count():
    comparison = comparison_of(inputs=(late("flights", 1, 10),))
    run = RunRecord(run=a_run(2), state=RunState.PUBLISHED, execution="e", started_at=NOW)
    rollback = Rollback(to=1, tag="t", reason="r", frozen_at=NOW)
    assert past(comparison, run) is not None
    assert past(comparison, run.model_copy(update={"rollback": rollback})) is None


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
    stored_rerun(table, store, "2013-05-01")
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
