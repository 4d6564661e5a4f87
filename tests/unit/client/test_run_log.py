"""The log of a run: lines of all sources in time order, of one attempt, and what could not be read."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from pathlib import Path

import boto3
import pytest
from botocore.stub import Stubber

from slackwater.aws.executions.function_logs import MAX_LINES, FunctionLogs
from slackwater.aws.executions.job_logs import JobLogs
from slackwater.client.days.attempts import Attempt
from slackwater.client.days.run_log import RUN_FUNCTIONS, parse_line, read_run_log
from slackwater.runs.record import RunRecord, RunState
from tests.fakes_cli import BEGIN, FakeEmr, FakeObjects, FakeStates
from tests.unit.client.test_runs import RUN, SERVICES

pytestmark = pytest.mark.unit

STATES = ["Freeze inputs", "Run joined", "Run last!", "Record the failure"]
"""Each is entered ten seconds after the one before."""
JOBS = [
    {"id": f"job-{stage}", "name": f"daily_delays 2013-03-10 {stage}", "state": "SUCCESS", "createdAt": at}
    for stage, at in (("joined", BEGIN + timedelta(seconds=11)), ("last", BEGIN + timedelta(seconds=21)))
]
RECORD = RunRecord(
    run=RUN,
    state=RunState.FAILED,
    execution="arn:e",
    started_at=BEGIN + timedelta(seconds=1),
    ended_at=BEGIN + timedelta(seconds=35),
)


def function_line(second, message, **more):
    at = BEGIN + timedelta(seconds=second)
    timestamp = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}+0000"
    line = {"level": "INFO", "message": message, "timestamp": timestamp, "correlation_id": "c", **more}
    # CloudWatch may receive a line later than it was written.
    return {"timestamp": round(at.timestamp() * 1000) + 900, "message": json.dumps(line)}


def job_line(second, message, **more):
    at = BEGIN + timedelta(seconds=second)
    return json.dumps({"timestamp": at.isoformat(timespec="milliseconds"), "level": "INFO", "message": message, **more})


def driver_log(stage, *lines):
    uri = f"s3://logs/applications/app/jobs/job-{stage}/SPARK_DRIVER/stdout.gz"
    return {uri: gzip.compress("\n".join(lines).encode())}


OBJECTS = {
    **driver_log(
        "joined", job_line(13, "spark started"), "printed by a step", job_line(14.5, "done", work_seconds=1.5)
    ),
    **driver_log("last", job_line(28, "failed", traceback="Traceback")),
}
FROZEN = function_line(2, "inputs frozen", action="run", pipeline="daily_delays", date="2013-03-10")
RECORDED = function_line(32, "run: failed", pipeline="daily_delays", date="2013-03-10")


def read_log(frozen=(FROZEN,), *, denied=False, objects=OBJECTS, attempt=None, stage=None, states=STATES):
    """Read the log of the failed run. `frozen` are the lines of the first function that CloudWatch returns."""
    logs = boto3.client("logs", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    executions = FakeStates(services=SERVICES | {"Run last": "emr-serverless"})
    executions._now, executions._over = states, True
    jobs = JobLogs(emr=FakeEmr(JOBS), store=FakeObjects(objects), application="app", prefix="s3://logs/")
    with Stubber(logs) as stub:
        for lines in (frozen, [RECORDED]) if stage is None else ():
            if denied:
                stub.add_client_error("filter_log_events", "AccessDeniedException", "logs:FilterLogEvents")
            else:
                stub.add_response("filter_log_events", {"events": list(lines)})
        functions = FunctionLogs(logs=logs, prefix="slackwater")
        log = read_run_log(
            attempt or Attempt(record=RECORD), states=executions, functions=functions, jobs=jobs, stage=stage
        )
        stub.assert_no_pending_responses()
    return log


def shown(log):
    return [((line.at - BEGIN).total_seconds(), line.source, line.message) for line in log.lines]


def test_lines_of_all_sources_are_merged_by_time():
    log = read_log()
    assert shown(log) == [
        (0, "state machine", "Freeze inputs entered"),
        (2, "freeze-inputs", "inputs frozen"),
        (10, "state machine", "Run joined entered"),
        (13, "job joined", "spark started"),
        (13, "job joined", "printed by a step"),
        (14.5, "job joined", "done"),
        (20, "state machine", "Run last entered"),
        (28, "job last", "failed"),
        (29, "state machine", "Run last failed"),
        (30, "state machine", "Record the failure entered"),
        (32, "record-run", "run: failed"),
        (40, "state machine", "execution failed"),
    ]
    assert log.missing == ()
    assert log.lines[5].fields == {"work_seconds": 1.5}
    assert [line.level for line in log.lines if line.message == "Run last failed"] == ["ERROR"]


@pytest.mark.parametrize(
    "other",
    [
        {"date": "2013-03-09"},
        {"pipeline": "weekly_delays"},
        {"correlation_id": "more-c"},
    ],
)
def test_lines_about_other_runs_with_the_same_correlation_id_are_left_out(other):
    day = {"pipeline": "daily_delays", "date": "2013-03-10"}
    assert shown(read_log([function_line(2, "other", **(day | other)), FROZEN])) == shown(read_log())


def test_the_lines_of_another_attempt_of_the_execution_are_left_out():
    run, started = RUN.model_copy(update={"attempt": 3}), BEGIN + timedelta(seconds=20)
    other = RECORD.model_copy(update={"run": run, "started_at": started})
    states = [*STATES[:2], "Freeze inputs", "Run last!"]
    first = RECORD.model_copy(update={"ended_at": BEGIN + timedelta(seconds=15)})
    lines = [FROZEN, function_line(25, "inputs frozen", attempt=3)]
    seconds = [
        [second for second, _, _ in shown(read_log(lines, attempt=attempt, states=states))]
        for attempt in (Attempt(record=first, later=other), Attempt(record=other, earlier=first))
    ]
    assert seconds == [[0, 2, 10, 13, 13, 14.5], [20, 25, 28, 30, 32, 39, 40]]


def test_a_stage_has_the_lines_of_its_states_and_of_its_job():
    assert shown(read_log(stage="last")) == [
        (20, "state machine", "Run last entered"),
        (28, "job last", "failed"),
        (29, "state machine", "Run last failed"),
    ]


def test_what_cannot_be_read_is_named_and_the_rest_returned():
    log = read_log(denied=True, objects=driver_log("last", job_line(28, "failed")))
    assert [text.partition(":")[0] for text in log.missing] == [
        "could not read the log group /aws/lambda/slackwater-freeze-inputs",
        "could not read the log group /aws/lambda/slackwater-record-run",
        "job job-joined (daily_delays 2013-03-10 joined, success) has no log at s3",
    ]
    assert {line.source for line in log.lines} == {"state machine", "job last"}


def test_the_lines_of_a_function_are_limited():
    log = read_log([FROZEN] * MAX_LINES)
    assert log.missing == (f"lines of freeze-inputs after 2013-03-11T06:00:02.900000+00:00: only {MAX_LINES} are read",)


def test_the_state_machine_of_a_pipeline_calls_these_functions():
    states = json.loads(Path("step_functions/pipeline.asl.json").read_text(encoding="utf-8"))["States"].values()
    called = {state["Arguments"]["FunctionName"] for state in states if "FunctionName" in state.get("Arguments", {})}
    names = {name: "".join(part.capitalize() for part in name.split("-")) for name in RUN_FUNCTIONS}
    # Waiting for inputs is over before an attempt begins.
    assert called - {"${AwaitInputsFunction}"} == {f"${{{name}Function}}" for name in names.values()}


@pytest.mark.parametrize("text", ["", "plain words", "[1]", '{"a": 1}', "{broken", '{"timestamp": 1, "message": "m"}'])
def test_a_line_that_is_not_ours_is_kept_as_it_is(text):
    line = parse_line(text, source="job x", at=BEGIN)
    assert (line.at, line.message, line.level, line.fields) == (BEGIN, text, "", {})
