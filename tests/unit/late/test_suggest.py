"""Thresholds that past re-runs suggest, compared with pandas and with checks, and the query of the ledger."""

from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import InputError
from slackwater.late.entry import LedgerEntry
from slackwater.late.suggest import LateSource, suggest, suggest_thresholds
from slackwater.pipeline.definition import Late
from tests.fakes_check import World
from tests.unit.aws.test_ledger_table import ENTRY

pytestmark = pytest.mark.unit

NOW = datetime(2013, 6, 1, 12, tzinfo=UTC)
DEFINITION = World().project.pipelines["daily_delays"].model_copy(update={"late": Late()})


def rerun(late_rows, before, effect=0.0, *, day=10, attempt=2, usd=0.01, differing=1, files=0, source="flights"):
    """A re-run for late rows of a source that had `before` rows; `effect` is the change of a metric in percent."""
    return LateSource(
        date=date(2013, 5, day), attempt=attempt, source=source, rows_before=before, objects=1, rows=late_rows,
        bytes=100 * late_rows, changed_files=files, usd=usd, differing=differing, metric="flights" if effect else None,
        change_percent=effect, table_rows=50, is_lost=False,
    )  # fmt: skip


def of_days(*reruns):
    """The re-runs, each of a day of its own."""
    return [item._replace(date=date(2013, 5, number)) for number, item in enumerate(reruns, 1)]


def by_threshold(rows, *, definition=DEFINITION):
    suggestion = suggest(definition, rows, first="2013-03-03", max_effect=1)
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


def proposed(reruns):
    return [(item.threshold, item.value) for item in by_threshold(reruns)[0].proposed]


def test_no_value_above_the_amounts_of_the_past_re_runs_is_proposed():
    assert proposed(of_days(*[rerun(5, 1000)] * 7)) == [("percent", 0.5), ("rows", 10), ("bytes", 1_000)]


def test_the_largest_amount_of_any_source_limits_a_proposal():
    both = rerun(5, 1000, day=7), rerun(200, 0, day=7, source="weather")
    # Without rows before, there is no percentage.
    assert proposed([*of_days(*[rerun(5, 1000)] * 6), *both]) == [("percent", 0.5), ("rows", 1_000), ("bytes", 100_000)]


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
    past = of_days(*[rerun(3, 1000)] * 4, rerun(3, 1000)._replace(metric="flights", change_percent=None))
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
        history.append(rerun(late_rows, rows, 100 * late_rows / total, attempt=number + 2))
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
    new_definition = rerun(0, None, attempt=3, source="definition")
    past = [*of_days(*[rerun(90, 1000)] * 3), rerun(6, 1000, 3), new_definition, rerun(6, 1006, 3, attempt=4)]
    one = by_threshold(past)[1]["percent", 1]
    assert (one.reruns, one.missed, one.largest_missed) == (3, 2, pytest.approx(3))


def test_changes_of_two_metrics_with_opposite_signs_do_not_hide_each_other():
    sequence = [rerun(3, 1000, 10), rerun(3, 1003, -9.1, attempt=3)._replace(metric="delay")]
    one = by_threshold([*of_days(*[rerun(50, 1000)] * 4), *sequence])[1]["percent", 1]
    assert (one.missed, one.largest_missed) == (2, pytest.approx(100 * (1.1 * 1.091 - 1)))


def test_late_data_that_came_with_a_new_definition_has_a_known_effect():
    both = [rerun(0, None, day=9, source="definition"), rerun(5, 1000, day=9)]
    result = by_threshold([*of_days(*[rerun(3, 1000)] * 5), *both])[0]
    assert (result.reruns, result.skipped) == (5, 0)


def test_without_metrics_the_effect_is_the_share_of_the_rows_that_differ():
    publish = DEFINITION.publish.model_copy(update={"metrics": {}})
    definition = DEFINITION.model_copy(update={"publish": publish})
    one = by_threshold(of_days(*[rerun(3, 1000, differing=4)] * 5), definition=definition)[1]["percent", 1]
    assert one.largest_missed == pytest.approx(8)  # 4 of 50 rows


@pytest.mark.parametrize(
    ("changes", "skipped"),
    [
        ({"is_lost": True}, 0),
        ({"source": "other"}, 0),  # a table with `on_change: notify`: its changes decide nothing
        ({"differing": None}, 1),  # not compared
        ({"rows_before": None}, 1),  # written by an older release
    ],
)
def test_a_re_run_with_lost_rows_without_late_data_or_with_an_unknown_effect_does_not_count(changes, skipped):
    past = of_days(*[rerun(3, 1000)] * 6)
    result = by_threshold([*past[:5], past[5]._replace(**changes)])[0]
    assert (result.reruns, result.skipped) == (5, skipped)


def entry(day, **changes):
    row = ENTRY._replace(
        pipeline="daily_delays", date=date(2013, 5, day), source="flights", rows=20, bytes=2000, cost_usd=0.125,
        rows_differing=1, metric="flights", metric_change_percent=-0.5, month="2013-05", rows_before=1000, table_rows=9,
    )  # fmt: skip
    return row._replace(**changes)


def suggested(rows):
    columns = {name: [getattr(row, name) for row in rows] for name in LedgerEntry._fields}
    connection = duckdb.connect()
    connection.register("ledger", pa.table(columns))
    return suggest_thresholds(DEFINITION, query=lambda sql: connection.sql(sql).fetchall(), now=NOW, max_effect=1.0)


def test_the_query_adds_up_the_inputs_of_each_run_of_the_last_90_days():
    rows = [entry(day, uri=uri) for day in range(1, 7) for uri in ("s3://raw/a", "s3://raw/b")]
    rows += [
        entry(1, date=(NOW - timedelta(days=91)).date()),
        entry(2, pipeline="another"),
        entry(3, attempt=None),  # a decision without a run
        entry(4, source="weather", change="changed", file="a.csv", rows=3, rows_before=100, uri="s3://raw/c"),
        entry(4, source="weather", change="removed", file="b.csv", rows=3, rows_before=100, uri="s3://raw/d"),
    ]
    result = suggested(rows)
    found = {(item.threshold, item.value): item for item in result.candidates}
    assert (result.reruns, result.skipped, result.usd, result.first) == (6, 0, pytest.approx(14 / 8), "2013-03-03")
    # 40 of 1,000 rows of flights in each of six runs, and 6 of 100 of weather, of two files, in one of them.
    assert [found["percent", value].reruns for value in (2, 5, 10)] == [6, 1, 0]
    assert [found["changed_files", value].reruns for value in (1, 2, 5)] == [1, 1, 0]
    assert [found["bytes", value].reruns for value in (1_000, 10_000)] == [6, 0]
    assert found["rows", 100].largest_missed == pytest.approx(0.5)


def test_too_few_re_runs_are_an_error_that_says_how_many_are_needed():
    with pytest.raises(InputError, match=r"1 compared re-runs for late data since 2013-03-03, and a proposal needs 5"):
        suggested([entry(1)])
