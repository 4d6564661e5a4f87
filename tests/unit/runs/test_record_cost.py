"""`lambdas/record_run` records the cost of a run that has ended, and never fails because of it."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lambdas import record_run
from slackwater.aws.clients import SINGLE_CONFIG, Clients
from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.function_resources import function_resources
from slackwater.costs.cost import RunCost
from slackwater.errors import AccessDenied, Throttled
from slackwater.metrics import Metric
from slackwater.runs.attempt_files import publication_uri
from slackwater.runs.cost_recorder import UsageGone
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.record import ActiveRun, DayRecord, Publication, RunState
from tests.fakes_dynamodb import LocalDynamoDB
from tests.fakes_functions import use_resources
from tests.fakes_interleaving import take_turns
from tests.fakes_runs import RUN_TABLE, DictRunTable, DictStore
from tests.unit.runs.test_cost import NOW, TWO_JOBS, Usage, a_record, recorder

pytestmark = pytest.mark.unit

RUNNING = a_record(state=RunState.RUNNING, ended=None)
STEP_FUNCTIONS = Path(__file__).resolve().parents[3] / "step_functions"


@pytest.fixture
def table():
    table = DictRunTable()
    active = ActiveRun(execution="arn", run=RUNNING.run, since=NOW)
    table.save(DayRecord(pipeline="daily_delays", date="2013-03-10", active=active), RUNNING)
    return table


@pytest.fixture
def end(table, monkeypatch):
    """Record the end of the run, with this answer about its usage."""

    def end(answer, event="published", **more):
        store = DictStore()
        publication = Publication(table="t", snapshot_id="1", rows=1, replaced=0, seconds=1)
        store.put(publication_uri(RUNNING.run.prefix), publication.model_dump_json().encode())
        costs = recorder(table, Usage(attempt1=answer))
        recorded = RunRecorder(
            store=store,
            table=table,
            now=lambda: datetime.now(UTC),
            costs=costs,
        )
        use_resources(monkeypatch, record_run, {"intermediate_days": "30"}, recorder=recorded)
        return record_run.handler({"event": event, "run": RUNNING.run.model_dump(), **more}, None)

    return end


def test_a_published_run_has_the_cost_that_is_known_until_now(table, end):
    end(TWO_JOBS._replace(ended=False))
    [record] = table.runs("daily_delays")
    assert (record.state, record.cost.usd, record.cost.complete) == (RunState.PUBLISHED, 0.01180637, False)
    assert list(table.costs_due("daily_delays")) == [("2013-03-10", 1, "")]


def test_a_failed_run_has_a_cost(table, end):
    end(TWO_JOBS._replace(jobs=(None,), ended=False), "failed", error="E", cause="", retried=False)
    [record] = table.runs("daily_delays")
    assert (record.state, record.cost.usd, record.cost.transitions) == (RunState.FAILED, None, 9)


class UsageOf:
    """A `UsageReader` whose execution has ended, or not."""

    def __init__(self, *, ended):
        self.ended = ended

    def usage(self, record):
        return TWO_JOBS._replace(ended=self.ended)


@pytest.mark.parametrize("order", list(itertools.product((0, 1), repeat=5)))
def test_the_end_of_a_run_and_a_check_that_price_it_at_the_same_time_keep_the_final_cost(order):
    """For the check, the execution has ended: the cost that `record_run` knows must not replace the final one."""
    dynamodb = LocalDynamoDB()
    with dynamodb.table("runs", **RUN_TABLE) as name:
        table, completed = DynamoRunTable(dynamodb.client, name), []
        table.save(a_record())

        def end(wrap):
            costs = recorder(wrap(table), UsageOf(ended=False))
            RunRecorder(store=DictStore(), table=wrap(table), now=lambda: NOW, costs=costs).record_cost(RUNNING.run)

        def check(wrap):
            completed.extend(recorder(wrap(table), UsageOf(ended=True)).record_due("daily_delays").completed)

        def due():
            return list(table.costs_due("daily_delays"))

        take_turns([end, check], order, after_each=lambda: None)
        # If `record_run` has written first, the check has left the cost to the next one.
        stored = table.run("daily_delays", "2013-03-10", 1)
        assert stored.cost.complete == bool(completed) == (due() == [])
        check(lambda table: table)
        assert len(completed) == 1
        assert (table.run("daily_delays", "2013-03-10", 1).cost, due()) == (completed[0].cost, [])


@pytest.mark.parametrize("order", list(itertools.product((0, 1), repeat=5)))
def test_of_two_functions_that_learn_a_final_cost_at_the_same_time_one_puts_its_metrics(order):
    dynamodb, put = LocalDynamoDB(), []
    with dynamodb.table("runs", **RUN_TABLE) as name:
        table = DynamoRunTable(dynamodb.client, name)
        table.save(a_record())

        def costs(wrap):
            def put_metric(metric, value, *, pipeline):
                put.append((metric, value, pipeline))

            return recorder(wrap(table), UsageOf(ended=True), put_metric=put_metric)

        def end(wrap):
            RunRecorder(store=DictStore(), table=wrap(table), now=lambda: NOW, costs=costs(wrap)).record_cost(
                RUNNING.run
            )

        take_turns([end, lambda wrap: costs(wrap).record_due("daily_delays")], order, after_each=lambda: None)
        cost = table.run("daily_delays", "2013-03-10", 1).cost
        assert put == [
            (Metric.RUN_COST, cost.usd, "daily_delays"),
            (Metric.JOB_QUEUE_MINUTES, cost.queued_seconds / 60, "daily_delays"),
        ]


def test_a_record_that_keeps_changing_leaves_the_cost_to_the_next_check(table, end):
    reads, writes = [], []
    table.save_cost = lambda record: writes.append(record) or False
    stored, table.run = table.run, lambda *key: reads.append(key) or stored(*key)
    assert end(TWO_JOBS._replace(ended=False))["rows"] == 1
    # Each write is one of a record that was read for it.
    assert (len(writes), len(reads)) == (3, 4)
    assert list(table.costs_due("daily_delays")) == [("2013-03-10", 1, "")]


@pytest.mark.parametrize("error", [Throttled("slow down"), AccessDenied("no")])
def test_an_error_leaves_the_cost_to_the_next_check(table, end, error):
    assert end(error)["rows"] == 1
    [record] = table.runs("daily_delays")
    assert (record.state, record.cost) == (RunState.PUBLISHED, None)
    assert list(table.costs_due("daily_delays")) == [("2013-03-10", 1, "")]


def test_a_repeated_call_does_not_ask_for_a_final_cost_again(table, end):
    end(UsageGone("gone"))
    assert table.runs("daily_delays")[0].cost == RunCost(complete=True, unknown="gone")
    end(TWO_JOBS)
    assert table.runs("daily_delays")[0].cost == RunCost(complete=True, unknown="gone")


def test_the_environment_of_the_functions(monkeypatch):
    values = {"AWS_REGION": "us-east-1", "APPLICATION_ID": "app", "ARCHITECTURE": "x86_64", "RUN_TABLE": "runs"}
    for name, value in {**values, "FUNCTION_MB": '{"Freeze inputs": 1024}'}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Clients, "__call__", lambda _, service: None)
    costs = function_resources.__wrapped__(SINGLE_CONFIG).costs
    assert costs.reader.function_mb == {"Freeze inputs": 1024}
    assert (costs.region, costs.architecture, costs.reader.application) == ("us-east-1", "x86_64", "app")


def test_each_state_of_a_run_that_calls_a_function_has_a_known_memory():
    """`infra/stacks/processing.py` states the memory by the names of these states."""
    states = json.loads((STEP_FUNCTIONS / "pipeline.asl.json").read_text(encoding="utf-8"))["States"]
    calls = {name for name, state in states.items() if state.get("Resource") == "arn:aws:states:::lambda:invoke"}
    stack = (STEP_FUNCTIONS.parent / "infra" / "stacks" / "processing.py").read_text(encoding="utf-8")
    assert calls == {"Freeze inputs", "Record the publication", "Record the failure"}
    assert all(f'"{name}": _' in stack for name in calls)
