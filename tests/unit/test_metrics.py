"""Metrics: names, units, dimensions, the log line of a value, and the metrics of each response."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from lambdas import fetch_file, freeze_inputs, list_files, receive_events, record_run
from slackwater.aws.emf import put_metric
from slackwater.local.services.monitoring import read_metrics
from slackwater.metrics import Metric, Subject, Unit
from slackwater.receiver.event_counts import EventCount
from slackwater.receiver.pull.fetch_result import FetchResult
from slackwater.receiver.pull.file_cache import FileCounts
from slackwater.receiver.pull.plan import PullPlan
from slackwater.receiver.push.request import error_response
from slackwater.runs.attempt_files import publication_uri
from tests.example_project import example_project
from tests.fakes_check import PIPELINE, PUBLICATION, World
from tests.fakes_functions import resources_of, use_resources
from tests.fakes_receiver import MemoryEventCounts, a_source
from tests.pushing import Setup

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = ROOT / "docs" / "operations" / "metrics.md"


@pytest.fixture(autouse=True)
def powertools_service_name(monkeypatch):
    """Set the service name as in Lambda, where powertools would add it as a dimension."""
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "record_run")


def read_put_metrics(capsys):
    """Return the metrics put since the last call: name, dimensions, values."""
    lines = capsys.readouterr().out.splitlines()
    return [(datum.name, datum.dimensions, datum.values) for line in lines for datum in read_metrics(line)]


@pytest.mark.parametrize("metric", list(Metric))
def test_a_metric_is_put_in_one_line_with_its_unit_and_its_subject(capsys, metric):
    put_metric(metric, 3, **{metric.subject.value: "of"})
    [line] = capsys.readouterr().out.splitlines()
    [datum] = read_metrics(line)
    assert (datum.namespace, datum.name, datum.unit) == ("Slackwater/of-tests", metric.value, metric.unit.value)
    assert (datum.dimensions, datum.values) == ({metric.subject.value: "of"} if metric.has_dimension else {}, (3.0,))
    # Also without a dimension, a query of the logs can group by the source.
    assert json.loads(line)[metric.subject.value] == "of"


@pytest.mark.parametrize("subjects", [{}, {"source": "flights"}, {"pipeline": "p", "source": "flights"}])
def test_a_metric_of_a_pipeline_needs_exactly_the_pipeline(capsys, subjects):
    with pytest.raises(ValueError, match="RunsFailed belongs to a pipeline, not to "):
        put_metric(Metric.RUNS_FAILED, 1, **subjects)
    assert read_put_metrics(capsys) == []


def test_bytes_are_bytes_and_hours_minutes_and_usd_have_no_unit():
    assert {metric for metric in Metric if metric.unit is Unit.BYTES} == {m for m in Metric if "Bytes" in m.value}
    assert {metric for metric in Metric if metric.unit is Unit.NONE} == {
        Metric.RUN_COST,
        *(m for m in Metric if "Hours" in m.value or "Minutes" in m.value),
    }


def test_metrics_of_inputs_belong_to_a_source_and_all_others_to_a_pipeline():
    of_sources = {metric for metric in Metric if metric.subject is Subject.SOURCE}
    assert of_sources == {m for m in Metric if m.value.startswith(("Events", "Files", "Hours", "Silence", "Rejected"))}


@pytest.mark.parametrize("metric", list(Metric))
def test_the_page_for_operators_names_every_metric_with_unit_and_dimension(metric):
    page = OPERATIONS.read_text(encoding="utf-8").splitlines()
    [row] = [line for line in page if line.startswith(f"| `{metric.value}` ")]
    _, _, unit, dimension, *_ = [cell.strip() for cell in row.split("|")]
    assert (unit, dimension) == (metric.unit.value, metric.subject.value if metric.has_dimension else "none")


@pytest.fixture(autouse=True)
def event_counts(monkeypatch):
    """The counts to which functions add the events of batches and files."""
    counts = MemoryEventCounts()
    for function in (receive_events, fetch_file):
        use_resources(monkeypatch, function, event_counts=counts)
    return counts


@pytest.fixture
def fetched(event_counts):
    """Report a fetched file of the source `flights`."""
    return partial(fetch_file.report_fetched, "flights")


@pytest.mark.parametrize("buffer", ["none", "queue"])
def test_a_batch_that_is_sent_again_counts_its_events_once(capsys, buffer):
    setup = Setup(a_source(push={"buffer": buffer}))
    receiver = replace(setup.receiver, put_metric=put_metric)
    api = replace(setup.api, receiver=receiver)
    event = {"id": "a", "at": "2013-03-08T12:00:00Z", "count": 1}
    body = "\n".join(map(json.dumps, [event, {**event, "id": "b"}, {**event, "count": "many"}])).encode()
    for _ in range(3):
        headers = {"authorization": "Bearer good", "content-type": "application/x-ndjson"}
        _, document = api.post("things", headers, body, "c")
        receive_events.count_events("things", document)
    metrics = read_put_metrics(capsys)
    duplicates = [("EventsDuplicate", {}, (2.0,))] * 2 if buffer == "none" else []
    assert sorted(metrics) == [("EventsAccepted", {}, (2.0,)), *duplicates, ("EventsRejected", {}, (1.0,))]


def test_a_batch_that_was_refused_counts_for_no_source(capsys):
    receive_events.count_events("no such source", error_response(404, "no_such_source", "there is none")[1])
    assert read_put_metrics(capsys) == []


def test_a_stored_file_is_counted_with_its_events(capsys, fetched):
    fetched(FetchResult(path="f.csv", state="stored", counts=FileCounts(files=1, rows=7, rejected=2)))
    assert read_put_metrics(capsys) == [
        ("FilesStored", {}, (1.0,)),
        ("EventsAccepted", {}, (7.0,)),
        ("EventsRejected", {}, (2.0,)),
    ]


def test_pushed_and_pulled_events_are_added_to_the_counts_of_their_source(event_counts, fetched):
    body = {"batch_id": "b", "accepted": 3, "duplicates": 4, "rejected": [{"index": 0, "reason": "r"}]}
    receive_events.count_events("weather", body)
    receive_events.count_events("unknown", error_response(404, "no_such_source", "there is none")[1])
    fetched(FetchResult(path="f.csv", state="stored", counts=FileCounts(files=1, rows=7, rejected=2)))
    assert {source: list(hours.values()) for source, hours in event_counts.by_source.items()} == {
        "weather": [EventCount(8, 1)],
        "flights": [EventCount(9, 2)],
    }


def test_events_that_cannot_be_counted_are_stored_nevertheless(event_counts, fetched):
    event_counts.broken = True
    body = {"accepted": 1, "duplicates": 0, "rejected": []}
    receive_events.count_events("weather", body)
    fetched(FetchResult(path="f.csv", state="stored", counts=FileCounts(files=1, rows=7)))
    assert event_counts.by_source == {}


@pytest.mark.parametrize("state", ["unchanged", "duplicate", "vanished", "busy"])
def test_a_file_that_was_not_stored_is_not_counted(capsys, fetched, state):
    fetched(FetchResult(path="f.csv", state=state, bytes=10))
    assert read_put_metrics(capsys) == []


def plan(left=0, oldest_not_taken=None):
    counts = dict.fromkeys(("listed", "unchanged", "busy", "waiting", "removed"), 0)
    return PullPlan(items=(), doubtful=(), left=left, oldest_not_taken=oldest_not_taken, **counts)


FLIGHTS = example_project().source("flights")
# In New York, the timezone of the pull, it is still 11 March.
PULLED = datetime(2013, 3, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize("as_of", [None, date(2013, 3, 11)])
def test_a_pull_puts_the_files_that_it_leaves_and_the_age_of_the_oldest_file_that_is_not_taken(capsys, as_of):
    since = PULLED - timedelta(hours=30)
    list_files.put_metrics(plan(left=7, oldest_not_taken=since), FLIGHTS, as_of=as_of, now=PULLED)
    of = {"source": "flights"}
    assert read_put_metrics(capsys) == [("FilesLeft", of, (7.0,)), ("HoursNotTaken", of, (30.0,))]


def test_a_pull_that_takes_all_files_puts_zeros_which_clear_the_alarms(capsys):
    list_files.put_metrics(plan(), FLIGHTS, as_of=None, now=PULLED)
    of = {"source": "flights"}
    assert read_put_metrics(capsys) == [("FilesLeft", of, (0.0,)), ("HoursNotTaken", of, (0.0,))]


def test_a_pull_of_a_past_date_does_not_fire_the_alarm_of_files_that_are_left(capsys):
    list_files.put_metrics(plan(left=7), FLIGHTS, as_of=date(2013, 3, 8), now=PULLED)
    assert read_put_metrics(capsys) == [("HoursNotTaken", {"source": "flights"}, (0.0,))]


@pytest.fixture
def end(monkeypatch):
    """Record the end of a run that has published its day, with these parts of the event."""
    world = World()
    world.add("flights", "2013-03-08", "12")
    run = world.freeze("2013-03-08")
    world.store.put(publication_uri(run.prefix), PUBLICATION.model_dump_json().encode())
    use_resources(monkeypatch, record_run, {"intermediate_days": "30"}, store=world.store, run_table=world.table)
    return lambda **event: record_run.handler({**event, "run": run.model_dump()}, None)


FAILED = {"event": "failed", "error": "States.TaskFailed", "cause": "", "retried": False}


@pytest.mark.parametrize(("event", "counted"), [(FAILED, "RunsFailed"), ({"event": "published"}, "RunsPublished")])
def test_an_ended_run_is_counted_once_even_if_its_end_is_recorded_repeatedly(capsys, end, event, counted):
    for _ in range(2):
        end(**event)
    assert read_put_metrics(capsys) == [(counted, {"pipeline": PIPELINE}, (1.0,))]


@pytest.mark.parametrize(("retried", "counted"), [(False, []), (True, ["RunsFailed"])])
def test_a_failure_after_which_the_day_runs_once_more_is_not_counted(capsys, end, retried, counted):
    answer = end(**FAILED | {"cause": '{"State": "FAILED", "StateDetails": "lost"}', "retried": retried})
    assert answer["retry"] is not retried
    assert [metric for metric, _, _ in read_put_metrics(capsys)] == counted


def test_a_lost_run_is_counted_as_failed(capsys):
    settings = {"exchange_bucket": "exchange", "kept_days": "1", "intermediate_days": "1"}
    ports = {"project": None, "store": None, "inputs": None, "run_table": None, "state_machines": None}
    ports["counts_reader"] = None
    freeze_inputs.freezer(resources_of(settings, **ports)).on_run_lost("daily_delays")
    assert read_put_metrics(capsys) == [("RunsFailed", {"pipeline": "daily_delays"}, (1.0,))]
