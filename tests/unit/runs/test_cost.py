"""The price of a run, compared with sums by hand in decimals."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from importlib.resources import files
from pathlib import Path

import pytest

from slackwater.costs import prices
from slackwater.costs.cost import BilledHours, RunCost, RunUsage, price_run, total_usd
from slackwater.costs.prices import read_prices
from slackwater.errors import AccessDenied, CloudError, InputError, Throttled
from slackwater.runs.comparison_run import ComparisonRun, DueCost, attempt_usd
from slackwater.runs.cost_recorder import CostRecorder, UsageGone
from slackwater.runs.record import RunRecord, RunState
from tests.fakes_notification import a_run
from tests.fakes_runs import DictRunTable

pytestmark = pytest.mark.unit

NOW = datetime(2013, 3, 12, 6, tzinfo=UTC)
DAY = ("2013-03-10",)
ROOT = Path(__file__).resolve().parents[3]
US_EAST_1 = json.loads((ROOT / "src/slackwater/costs/us-east-1.json").read_text())
TWO_JOBS = RunUsage(
    jobs=(BilledHours(0.05, 0.2, 0.0), BilledHours(0.1, 0.4, 1.5)),
    transitions=9,
    lambda_seconds=3.5,
    lambda_gb_seconds=3.25,
    ended=True,
)


def test_the_price_is_the_sum_of_hours_lambda_time_and_transitions():
    cost = price_run(TWO_JOBS, region="us-east-1", architecture="x86_64")
    by_hand = (
        Decimal("0.15") * Decimal("0.052624")
        + Decimal("0.6") * Decimal("0.0057785")
        + Decimal("1.5") * Decimal("0.000111")
        + Decimal("3.25") * Decimal("0.0000166667")
        + 9 * Decimal("0.000025")
    )
    assert cost.usd == float(round(by_hand, 8)) == 0.01180637
    assert (cost.vcpu_hours, cost.memory_gb_hours, cost.storage_gb_hours, cost.jobs) == (0.15, 0.6, 1.5, 2)
    assert (cost.region, cost.prices_as_of, cost.complete) == ("us-east-1", "2026-11-23", True)


def test_a_run_that_has_kept_all_stages_but_started_no_job_pays_its_functions_and_transitions():
    cost = price_run(TWO_JOBS._replace(jobs=()), region="us-east-1", architecture="x86_64")
    assert cost.usd == float(round(Decimal("3.25") * Decimal("0.0000166667") + Decimal("0.000225"), 8))
    assert (cost.vcpu_hours, cost.complete) == (0.0, True)


@pytest.mark.parametrize(("region", "architecture"), [("xx-north-1", "x86_64"), ("us-east-1", "arm64")])
def test_without_prices_the_price_is_unknown_and_never_0(region, architecture):
    cost = price_run(TWO_JOBS, region=region, architecture=architecture)
    assert (cost.usd, cost.prices_as_of, cost.region) == (None, "", region)
    file = f"src/slackwater/costs/{region}.json"
    assert (
        cost.unknown == f"no prices of {region} on {architecture}: add them to {file} as docs/cost.md says, and deploy"
    )
    assert (cost.vcpu_hours, cost.complete) == (0.15, True)


def test_a_job_that_is_not_billed_yet_leaves_the_hours_and_the_price_unknown():
    usage = TWO_JOBS._replace(jobs=(*TWO_JOBS.jobs, None))
    cost = price_run(usage, region="us-east-1", architecture="x86_64")
    assert (cost.usd, cost.vcpu_hours, cost.jobs, cost.transitions, cost.complete) == (None, None, 3, 9, False)


def test_a_total_with_an_unknown_part_is_unknown():
    assert total_usd([RunCost(usd=0.1), RunCost(usd=0.2)]) == 0.3
    assert total_usd([RunCost(usd=0.1), None]) is None
    assert total_usd([RunCost(usd=0.1), RunCost()]) is None
    assert total_usd([]) is None


def test_each_price_file_is_dated_complete_and_states_its_sources():
    for region in ("eu-central-1", "eu-west-1", "us-east-1", "us-west-2"):
        prices = read_prices(region)
        assert prices is not None
        assert prices.region == region
        assert date.fromisoformat(prices.as_of)
        assert prices.architectures
        assert set(prices.sources) == {"emr_serverless", "lambda", "step_functions"}
        for source in prices.sources.values():
            assert date.fromisoformat(source.as_of) <= date.fromisoformat(prices.as_of)
            assert source.url.startswith(("https://pricing.us-east-1.amazonaws.com/", "https://github.com/"))
        offers = [source.url for source in prices.sources.values() if "/offers/" in source.url]
        assert all(f"/current/{region}/" in url for url in offers)
    assert files("slackwater.costs").joinpath("us-east-1.json").is_file()


@pytest.fixture
def price_file(tmp_path, monkeypatch):
    """Return a function that stores the prices of us-east-1 with changes as those of eu-north-1."""
    monkeypatch.setattr(prices, "files", lambda _: tmp_path)
    prices.read_prices.cache_clear()
    yield lambda changed: (tmp_path / "eu-north-1.json").write_text(json.dumps(US_EAST_1 | changed))
    prices.read_prices.cache_clear()


def test_a_price_file_with_keys_of_older_versions_is_refused_with_the_keys_to_delete(price_file):
    price_file({"usd_per_lambda_request": 0.0000002, "usd_per_1000_s3_gets": 0.0004})
    with pytest.raises(InputError) as error:
        price_run(TWO_JOBS, region="eu-north-1", architecture="x86_64")
    assert str(error.value) == (
        "src/slackwater/costs/eu-north-1.json: delete the unknown keys usd_per_lambda_request, "
        "usd_per_1000_s3_gets, as docs/cost.md says, and deploy"
    )


def test_a_price_file_that_lacks_a_price_is_refused_with_the_key(price_file):
    price_file({"usd_per_transition": None})
    with pytest.raises(InputError, match=r"eu-north-1\.json: RegionPrices: usd_per_transition: "):
        price_run(TWO_JOBS, region="eu-north-1", architecture="x86_64")


def test_a_run_of_an_older_version_keeps_its_requests_and_is_completed_by_the_new_rule(table):
    """It has counted requests, and its recorded price contains them."""
    requests = {"s3_gets": 43, "s3_puts": 9}
    old = {"usd": 0.0139, "lambda_requests": 2, "requests": requests, "least_job_requests": requests}
    for attempt, complete in ((1, True), (2, False)):
        document = a_record(attempt).model_dump(mode="json")
        document |= {"requests": requests, "cost": old | {"transitions": 9, "complete": complete}}
        table.save(RunRecord.model_validate(document))
    recorder(table, Usage(attempt2=TWO_JOBS, attempt3=TWO_JOBS)).record_due("daily_delays")
    first, second, third = (record.model_dump() for record in table.runs("daily_delays"))
    assert (first["requests"], second["requests"]) == (requests, requests)
    assert first["cost"].items() >= old.items()
    assert (second["cost"], second["cost"]["usd"]) == (third["cost"], 0.01180637)


class Usage:
    """A `UsageReader` with an answer or an error for each attempt."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, []

    def usage(self, record):
        name = record.execution_name if isinstance(record, ComparisonRun) else f"attempt{record.run.attempt}"
        self.asked.append(name if isinstance(record, ComparisonRun) else record.run.attempt)
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        return answer


def a_record(attempt=1, *, state=RunState.PUBLISHED, ended=NOW - timedelta(hours=1), cost=None):
    return RunRecord(run=a_run(attempt), state=state, execution="arn", started_at=NOW, ended_at=ended, cost=cost)


@pytest.fixture
def table():
    table = DictRunTable()
    for attempt in (1, 2, 3):
        table.save(a_record(attempt))
    return table


def recorder(table, usage, *, now=lambda: NOW, put_metric=None):
    return CostRecorder(
        table=table, reader=usage, region="us-east-1", architecture="x86_64", now=now, put_metric=put_metric
    )


def test_costs_are_recorded_until_they_are_final(table):
    usage = Usage(attempt1=TWO_JOBS, attempt2=TWO_JOBS._replace(jobs=(None,)), attempt3=TWO_JOBS)
    done = recorder(table, usage).record_due("daily_delays")
    assert [record.run.attempt for record in done.completed] == [1, 3]
    assert [record.cost.usd if record.cost else "" for record in table.runs("daily_delays")] == [
        0.01180637,
        None,
        0.01180637,
    ]
    usage.answers["attempt2"] = TWO_JOBS
    assert [record.run.attempt for record in recorder(table, usage).record_due("daily_delays").completed] == [2]
    assert recorder(table, usage).record_due("daily_delays").completed == ()
    assert usage.asked == [1, 2, 3, 2]


def test_a_failed_run_costs_and_a_running_one_is_not_due(table):
    table.save(a_record(2, state=RunState.FAILED))
    table.save(a_record(3, state=RunState.RUNNING, ended=None))
    usage = Usage(attempt1=TWO_JOBS, attempt2=TWO_JOBS)
    assert [record.run.attempt for record in recorder(table, usage).record_due("daily_delays").completed] == [1, 2]


def test_it_stops_when_aws_throttles(table):
    usage = Usage(attempt1=TWO_JOBS, attempt2=Throttled("slow down"))
    done = recorder(table, usage).record_due("daily_delays")
    assert ([record.run.attempt for record in done.completed], done.errors) == ([1], ("slow down",))
    assert usage.asked == [1, 2]


def test_it_stops_after_a_minute(table):
    times = iter([NOW, NOW, NOW, NOW + timedelta(seconds=61)])
    usage = Usage(attempt1=TWO_JOBS)
    done = recorder(table, usage, now=lambda: next(times)).record_due("daily_delays")
    assert [record.run.attempt for record in done.completed] == [1]


def test_an_error_about_one_run_does_not_stop_the_others(table):
    usage = Usage(attempt1=CloudError("strange"), attempt2=TWO_JOBS, attempt3=AccessDenied("no"))
    done = recorder(table, usage).record_due("daily_delays")
    assert ([record.run.attempt for record in done.completed], done.errors) == ([2], ("strange", "no"))


def test_a_run_that_aws_does_not_know_any_more_is_given_up_at_once(table):
    provisional = price_run(TWO_JOBS._replace(ended=False), region="us-east-1", architecture="x86_64")
    table.save(a_record(1, cost=provisional))
    usage = Usage(attempt1=UsageGone("gone"), attempt2=UsageGone("gone"), attempt3=UsageGone("gone"))
    recorder(table, usage).record_due("daily_delays")
    first, second, _ = [record.cost for record in table.runs("daily_delays")]
    assert (first.usd, first.complete, first.unknown) == (0.01180637, True, "gone")
    assert (second.usd, second.complete, second.unknown) == (None, True, "gone")
    assert recorder(table, usage).record_due("daily_delays").completed == ()
    assert usage.asked == [1, 2, 3]


@pytest.mark.parametrize("answer", [TWO_JOBS._replace(jobs=(None,)), AccessDenied("its application was replaced")])
def test_a_run_whose_usage_is_not_reported_is_given_up_after_seven_days(answer):
    table, usage = DictRunTable(), Usage(attempt1=answer)
    table.save(a_record(ended=NOW - timedelta(days=7)))
    assert recorder(table, usage).record_due("daily_delays").completed == ()
    assert len(list(table.costs_due("daily_delays"))) == 1
    later = recorder(table, usage, now=lambda: NOW + timedelta(seconds=1)).record_due("daily_delays")
    [record] = later.completed
    assert record.cost.usd is None
    assert record.cost.unknown
    assert list(table.costs_due("daily_delays")) == []


def a_comparison(name="c1", *, before=1, after=2, started_at=NOW - timedelta(hours=1), cost=None):
    return ComparisonRun(
        pipeline="daily_delays", date="2013-03-10", before=before, after=after, started_at=started_at, cost=cost,
        execution=f"arn:aws:states:us-east-1:000000000000:execution:slackwater-compare-day:{name}",
    )  # fmt: skip


def test_comparisons_are_recorded_like_runs():
    table, usage = DictRunTable(), Usage(attempt2=TWO_JOBS, c1=TWO_JOBS._replace(jobs=(None,)), c2=TWO_JOBS)
    table.save(a_record(2))
    for name in ("c1", "c2"):
        table.save_comparison(a_comparison(name))
    assert list(table.costs_due("daily_delays")) == [(*DAY, 2, ""), (*DAY, 2, "c1"), (*DAY, 2, "c2")]
    done = recorder(table, usage).record_due("daily_delays")
    completed = (table.run("daily_delays", *DAY, 2), table.comparison("daily_delays", DueCost(*DAY, 2, "c2")))
    assert [item.cost for item in done.completed] == [item.cost for item in completed]
    assert [item.cost.usd for item in table.comparisons("daily_delays", *DAY)] == [None, 0.01180637]
    usage.answers["c1"] = TWO_JOBS
    recorder(table, usage).record_due("daily_delays")
    assert usage.asked == [2, "c1", "c2", "c1"]
    assert list(table.costs_due("daily_delays")) == []


def test_a_comparison_whose_usage_is_not_reported_is_given_up_seven_days_after_its_start():
    table = DictRunTable()
    table.save_comparison(a_comparison(started_at=NOW - timedelta(days=7, seconds=1)))
    recorder(table, Usage(c1=TWO_JOBS._replace(jobs=(None,)))).record_due("daily_delays")
    [given_up] = table.comparisons("daily_delays", *DAY)
    assert (given_up.cost.usd, given_up.cost.complete, given_up.cost.transitions) == (None, True, 9)


def test_the_costs_of_a_change_are_those_of_its_run_and_of_comparing_its_two_versions():
    table, usage = DictRunTable(), Usage(attempt3=TWO_JOBS._replace(ended=False), c1=TWO_JOBS, c2=UsageGone("gone"))
    table.save(a_record(3))
    priced = RunCost(usd=0.5, complete=True)
    for comparison in (a_comparison("other", after=3, before=1), a_comparison("final", after=3, before=2, cost=priced)):
        table.save_comparison(comparison)
    table.save_comparison(a_comparison("c1", before=2, after=3))
    recorded = dict(table.compared)
    costs = recorder(table, usage).attempt_costs("daily_delays", *DAY, before=2, after=3)
    assert (costs.run.usd, costs.comparison_usd) == (0.01180637, 0.51180637)
    # Nothing was recorded, so that the next check finds the costs that are due.
    assert (table.run("daily_delays", *DAY, 3).cost, table.compared) == (None, recorded)
    assert usage.asked == [3, "c1"]
    table.save_comparison(a_comparison("c2", before=2, after=3))
    assert recorder(table, usage).attempt_costs("daily_delays", *DAY, before=2, after=3).comparison_usd is None
    assert recorder(table, usage).attempt_costs("daily_delays", *DAY, before=4, after=5) == (None, None)


def test_the_cost_of_an_attempt_contains_the_comparisons_of_its_version():
    priced = RunCost(usd=0.5, complete=True)
    run = a_record(2, cost=RunCost(usd=0.25))
    compared = [a_comparison("c1", cost=priced), a_comparison("c2", before=2, after=3, cost=priced)]
    assert attempt_usd(run, []) == 0.25
    assert attempt_usd(run, compared) == 0.75
    assert attempt_usd(run, [*compared, a_comparison("c3")]) is None
    assert attempt_usd(a_record(2), compared) is None


def test_a_record_of_an_older_version_is_read_without_a_cost():
    stored = a_record().model_dump(mode="json", exclude={"cost"})
    assert RunRecord.model_validate(stored).cost is None
