"""Events reach a real HTTP server as the reference client would send them, and nothing about them fails a run."""

from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import attr
import pytest
from botocore.exceptions import EndpointConnectionError
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.generated import (
    column_lineage_dataset,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    nominal_time_run,
    output_statistics_output_dataset,
    parent_run,
    schema_dataset,
)
from openlineage.client.generated.base_subset_dataset import (
    InputSubsetInputDatasetFacet,
    OutputSubsetOutputDatasetFacet,
)
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport

from lambdas import freeze_inputs, record_run, send_lineage
from slackwater.aws.lineage_requests import LineageRequests
from slackwater.errors import CloudError, OutboundRefused, Unavailable
from slackwater.lineage.receiver import LineageReceiver
from slackwater.outbound.credentials import Credentials
from slackwater.outbound.guard import GuardedTransport, Outbound
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.record import RunState as State
from tests.fakes_check import KEPT, PIPELINE, PUBLICATION, freezer_of
from tests.fakes_functions import resources_of, use_resources
from tests.fakes_web import Reply, Web
from tests.lineage_runs import OF, a_step, validated
from tests.pushing import FunctionContext

pytestmark = pytest.mark.unit

PATH, TOKEN = "/api/v1/lineage", "secret-token"
FACETS = {
    "nominalTime": nominal_time_run.NominalTimeRunFacet,
    "parent": parent_run.ParentRunFacet,
    "errorMessage": error_message_run.ErrorMessageRunFacet,
    "jobType": job_type_job.JobTypeJobFacet,
    "version": dataset_version_dataset.DatasetVersionDatasetFacet,
    "schema": schema_dataset.SchemaDatasetFacet,
    "columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet,
    "inputStatistics": input_statistics_input_dataset.InputStatisticsInputDatasetFacet,
    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
    "dataQualityAssertions": data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet,
}
"""The classes of the reference client, by the key of a facet."""


@pytest.fixture
def web():
    with Web() as web:
        web.on(PATH, Reply(201))
        yield web


def receiver_of(url: str, *, credentials: Credentials | None = None, pauses: list[float] | None = None):
    transport = GuardedTransport(Outbound.of([urlsplit(url).netloc]))
    pauses = [] if pauses is None else pauses
    return LineageReceiver(url, transport=transport, credentials=credentials, sleep=pauses.append)


def a_token() -> Credentials:
    return Credentials.model_validate({"token": TOKEN})


def parsed(event: dict[str, Any]) -> RunEvent:
    """Return the event as the reference client's classes, which check their values."""

    def facets(of: dict[str, Any], *, is_input: bool = False) -> dict[str, Any]:
        subset = InputSubsetInputDatasetFacet if is_input else OutputSubsetOutputDatasetFacet
        found = {}
        for key, value in of.items():
            kind = subset if key == "subset" else FACETS[key]
            plain = {name: each for name, each in value.items() if not name.startswith("_")}
            found[key] = kind(**plain)
            assert found[key]._schemaURL == value["_schemaURL"]
            assert {field.name for field in attr.fields(kind)} >= set(plain)
        return found

    run, job = event["run"], event["job"]
    return RunEvent(
        eventTime=event["eventTime"],
        producer=event["producer"],
        eventType=RunState[event["eventType"]],
        run=Run(run["runId"], facets(run["facets"])),
        job=Job(job["namespace"], job["name"], facets(job["facets"])),
        inputs=[
            InputDataset(
                each["namespace"],
                each["name"],
                facets=facets(each["facets"]),
                inputFacets=facets(each["inputFacets"], is_input=True),
            )
            for each in event["inputs"]
        ],
        outputs=[
            OutputDataset(
                each["namespace"],
                each["name"],
                facets=facets(each["facets"]),
                outputFacets=facets(each.get("outputFacets", {})),
            )
            for each in event["outputs"]
        ],
    )


def without_producers(value: Any) -> Any:
    """Return an event without what the reference client adds: its own name and version, and empty values."""
    if isinstance(value, dict):
        items = {key: without_producers(each) for key, each in value.items() if key not in {"_producer", "tags"}}
        return {key: each for key, each in items.items() if each not in (None, {}, [])}
    return [without_producers(each) for each in value] if isinstance(value, list) else value


def test_the_reference_client_sends_the_same_request(web, runs, daily):
    failed = {"state": State.FAILED, "ended_at": runs.now(), "error": "DataError: no"}
    events = [
        *runs.events(daily).started(),
        *runs.events(daily).ended(),
        *runs.events(daily.model_copy(update=failed)).ended(),
    ]
    with receiver_of(web.url, credentials=a_token()) as receiver:
        assert receiver.send(events) == len(events) == 7
    ours, web.requests = web.requests, []
    auth = ApiKeyTokenProvider({"apiKey": TOKEN})
    client = OpenLineageClient(transport=HttpTransport(HttpConfig(url=web.url, auth=auth)))
    for event in validated(events):
        client.emit(parsed(event))
    assert len(web.requests) == len(ours)
    for own, theirs in zip(ours, web.requests, strict=True):
        assert (own.method, own.path) == (theirs.method, theirs.path) == ("POST", PATH)
        for header in ("authorization", "content-type"):
            assert own.headers[header] == theirs.headers[header]
        assert without_producers(json.loads(own.body)) == without_producers(json.loads(theirs.body))


def test_a_user_and_a_password_are_sent_as_such(web, runs, daily):
    credentials = Credentials.model_validate({"username": "ana", "password": "x"})
    with receiver_of(web.url, credentials=credentials) as receiver:
        receiver.send(runs.events(daily).started())
    assert web.requests[0].headers["authorization"] == "Basic YW5hOng="


def test_a_receiver_without_credentials_gets_none(web, runs, daily):
    with receiver_of(f"{web.url}/") as receiver:
        receiver.send(runs.events(daily).started())
    assert web.paths == [PATH]
    assert "authorization" not in web.requests[0].headers


@pytest.mark.parametrize("status", [0, 408, 429, 500, 503])
def test_a_busy_receiver_is_asked_three_times(web, runs, daily, status):
    pauses: list[float] = []
    web.on(PATH, Reply(status), Reply(status), Reply(200))
    with receiver_of(web.url, pauses=pauses) as receiver:
        assert receiver.send(runs.events(daily).started()) == 1
    assert (len(web.requests), len(pauses)) == (3, 2)
    web.requests.clear()
    web.on(PATH, Reply(status))
    with receiver_of(web.url, pauses=pauses) as receiver, pytest.raises(Unavailable, match=PATH):
        receiver.send(runs.events(daily).ended())
    assert len(web.requests) == 3  # of the first event: the others wait for the next call


def test_a_refused_event_is_not_repeated_and_the_answer_is_named(web, runs, daily):
    web.on(PATH, Reply(400, b"eventTime: no date"))
    with (
        receiver_of(web.url) as receiver,
        pytest.raises(CloudError, match="answered 400: eventTime: no date") as raised,
    ):
        receiver.send(runs.events(daily).started())
    assert not isinstance(raised.value, Unavailable)
    assert len(web.requests) == 1


def test_a_private_host_needs_the_setting(web, runs, daily):
    transport = GuardedTransport(Outbound.of([]))
    with (
        LineageReceiver(web.url, transport=transport, credentials=None) as receiver,
        pytest.raises(OutboundRefused, match="outbound_allow"),
    ):
        receiver.send(runs.events(daily).started())
    assert web.requests == []


# The function.


def settings_of(web: Web, **more: str) -> dict[str, str]:
    return {
        "openlineage_url": web.url, "openlineage_namespace": "acme", "openlineage_secret": "",
        "warehouse_database": "acme_warehouse", "files_prefix": "s3://warehouse/files/",
        "outbound_allow": f"files.example,{web.entry}", **more,
    }  # fmt: skip


def called(request: dict[str, Any]) -> dict[str, Any]:
    return send_lineage.handler(request, FunctionContext())


def test_the_function_sends_what_the_requests_ask_for(web, runs, monkeypatch):
    resources = {"project": runs.project, "store": runs.store, "run_table": runs.table}
    secrets = SimpleNamespace(read={"secretsmanager:marquez": a_token()}.__getitem__)
    settings = settings_of(web, openlineage_secret="secretsmanager:marquez")
    use_resources(monkeypatch, send_lineage, settings, **resources, secrets=secrets)
    requests: list[dict[str, Any]] = []
    functions = SimpleNamespace(invoke=lambda **call: requests.append(call))
    lineage = LineageRequests(lambda service: {"lambda": functions}[service], "acme-send-lineage")
    run = runs.start()
    lineage.started(run)
    assert called(json.loads(requests[0]["Payload"])) == {"events": 1}
    runs.store_stages(run, a_step("delays_by_carrier", "sql", {"flights": 20}))
    record = runs.publish_run(run)
    lineage.ended(run)
    assert {(each["FunctionName"], each["InvocationType"]) for each in requests} == {("acme-send-lineage", "Event")}
    assert called(json.loads(requests[1]["Payload"])) == {"events": 3}
    sent = [json.loads(each.body) for each in web.requests]
    of_run = json.loads(json.dumps([*runs.events(record).started(), *runs.events(record).ended()]))
    assert sent == of_run
    # Receivers show the state of the last event: a late one about the start is not the last.
    assert called(json.loads(requests[0]["Payload"])) == {"events": 4}
    assert [json.loads(each.body) for each in web.requests][4:] == of_run
    assert {each.headers["authorization"] for each in web.requests} == {f"Bearer {TOKEN}"}


def test_a_failed_call_is_an_error_of_the_function_so_that_lambda_repeats_it(web, runs, daily, monkeypatch):
    resources = {"project": runs.project, "store": runs.store, "run_table": runs.table}
    use_resources(monkeypatch, send_lineage, settings_of(web), **resources)
    web.on(PATH, Reply(400))
    request = {"event": "started", "pipeline": PIPELINE, "date": OF, "attempt": 1}
    with pytest.raises(CloudError, match="answered 400"):
        called(request)
    with pytest.raises(CloudError, match=f"has no attempt 9 of {PIPELINE} for {OF}"):
        called({**request, "attempt": 9})
    runs.start(force=True)
    with pytest.raises(CloudError, match=f"attempt 2 of {PIPELINE} for {OF} has not ended"):
        called({**request, "event": "ended", "attempt": 2})


# What asks for events.


class Asked(list[tuple[str, int]]):
    """Requests: what has happened, and to which attempt."""

    def started(self, run):
        self.append(("started", run.attempt))

    def ended(self, run):
        self.append(("ended", run.attempt))


def test_the_start_and_each_end_of_a_run_are_sent(runs):
    asked = Asked()
    freezer = freezer_of(runs, KEPT)
    freezer = type(freezer)(**{**vars(freezer), "on_started": asked.started, "on_ended": asked.ended})
    recorder = RunRecorder(store=runs.store, table=runs.table, now=runs.now, on_ended=asked.ended)

    def start(execution: str) -> Any:
        started = {"pipeline": PIPELINE, "date": OF, "correlation_id": "c", "force": True}
        return freezer.freeze(execution=execution, **started).run

    run = start("one")
    runs.store.put(f"{run.prefix}publication.json", PUBLICATION.model_dump_json().encode())
    recorder.record_published(run)
    assert asked == [("started", 1), ("ended", 1)]
    recorder.record_published(run)  # a repeated call: the first one may have ended before it asked
    assert asked[2:] == [("ended", 1)]
    failing = start("two")
    recorder.record_failure(failing, error="E", cause="")
    assert asked[3:] == [("started", 2), ("ended", 2)]
    start("lost")
    runs.time += timedelta(minutes=5)
    start("three")  # the execution `lost` does not run any more
    assert asked[5:] == [("started", 3), ("ended", 3), ("started", 4)]
    start("three")  # a repeated call
    assert asked[8:] == [("started", 4)]


@pytest.mark.parametrize("compose", [freeze_inputs.freezer, record_run.recorder])
@pytest.mark.parametrize("function", ["", "acme-send-lineage"])
def test_a_request_is_made_once_and_its_failure_is_only_logged(compose, function, daily, caplog):
    asked = []

    def refuse(**call: Any) -> None:
        asked.append(call["FunctionName"])
        raise EndpointConnectionError(endpoint_url="https://lambda.example")

    settings = {
        "exchange_bucket": "exchange", "kept_days": "29", "intermediate_days": "30", "raw_bucket": "raw",
        **({"lineage_function": function} if function else {}),
    }  # fmt: skip
    fakes = dict.fromkeys(("project", "store", "inputs", "counts_reader", "run_table", "state_machines"))
    resources = resources_of(settings, **fakes)
    resources.clients = lambda _: SimpleNamespace(invoke=refuse)
    compose(resources).on_ended(daily.run)
    assert asked == ([function] if function else [])
    assert ("no lineage of the run is sent" in caplog.text) == bool(function)
