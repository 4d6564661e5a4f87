"""The monitoring state machine alone, with stubs of the functions and state machines that it calls."""

from __future__ import annotations

import io
import json
import time
import zipfile

import pytest

from slackwater.aws.executions.state_machines import StateMachines
from slackwater.pipeline.retries import with_retries
from tests.cloud.roles import create_role
from tests.conftest import ROOT

pytestmark = pytest.mark.cloud

BROKEN, RERUN, OWED = "2013-01-01", "2013-01-02", "2013-01-03"
NOT_COMPARED, NOT_NOTIFIED = "2013-01-04", "2013-01-05"
STUB = f'''
DAYS = [{{"date": "{BROKEN}", "action": "rerun"}}, {{"date": "{RERUN}", "action": "rerun"}},
        {{"date": "{OWED}", "action": "notify"}}, {{"date": "{NOT_COMPARED}", "action": "rerun"}},
        {{"date": "{NOT_NOTIFIED}", "action": "notify"}}]


def handler(event, _):
    if "comparison" in event:
        if event["date"] == "{NOT_NOTIFIED}":
            raise OSError("the topic is gone")
        return {{"notified": True, "reason": "", "message": "s3://m/" + event["date"]}}
    if "report" in event:
        if event["correlation_id"] == "ledger-fails":
            raise OSError('the "table" is gone')
        return {{"rows": 0}}
    return {{"report": "s3://r", "days": [] if event["as_of"] == "2000-01-01" else DAYS}}
'''
PUBLISHED = {"outcome": "published", "run": {"run_id": "r", "attempt": 2}}
RUNS = {
    "QueryLanguage": "JSONata",
    "StartAt": "Which",
    "States": {
        "Which": {
            "Type": "Choice",
            "Choices": [{"Condition": f"{{% $states.input.date = '{BROKEN}' %}}", "Next": "Broken"}],
            "Default": "Published",
        },
        "Broken": {"Type": "Fail", "Error": "RunFailed", "Cause": 'CloudError: "it" broke'},
        "Published": {"Type": "Pass", "Output": PUBLISHED, "End": True},
    },
}
COMPARISON = {"uri": "s3://c", "before": 1, "after": 2, "differing": 3, "reason": ""}
COMPARES = {
    "QueryLanguage": "JSONata",
    "StartAt": "Which",
    "States": {
        "Which": {
            "Type": "Choice",
            "Choices": [{"Condition": f"{{% $states.input.date = '{NOT_COMPARED}' %}}", "Next": "Broken"}],
            "Default": "Compared",
        },
        "Broken": {"Type": "Fail", "Error": "ComparisonFailed", "Cause": "RunFailed: too large"},
        "Compared": {"Type": "Pass", "Output": COMPARISON, "End": True},
    },
}


FAILED_DAYS = (
    f'3 of 5 late days of p failed: {BROKEN}: CloudError: "it" broke; '
    f"{NOT_COMPARED}: published as attempt 2, but not compared: RunFailed: too large; "
    f"{NOT_NOTIFIED}: published, but nobody was notified: the topic is gone"
)


@pytest.fixture(scope="module")
def machine(cloud):
    """ARN of the monitoring state machine, which calls the stubs."""
    states, packed = cloud.client("stepfunctions"), io.BytesIO()
    role = create_role(cloud.client("iam"), "stub", "lambda", "states")
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("stub.py", STUB)
    function = cloud.client("lambda").create_function(
        FunctionName="stub",
        Runtime="python3.11",
        Role=role,
        Handler="stub.handler",
        Code={"ZipFile": packed.getvalue()},
    )["FunctionArn"]

    def create(name, definition):
        response = states.create_state_machine(name=name, definition=definition, roleArn=role)
        return response["stateMachineArn"]

    runs, compares = create("stub-pipeline-p", json.dumps(RUNS)), create("stub-compare", json.dumps(COMPARES))
    frame = json.loads((ROOT / "step_functions" / "monitor_days.asl.json").read_text())
    definition = json.dumps(with_retries(frame))
    for name, value in {
        "CheckDaysFunction": function,
        "NotifyChangeFunction": function,
        "WriteLedgerFunction": function,
        "CompareMachineArn": compares,
        "PipelineMachinePrefix": runs.removesuffix("p"),
    }.items():
        definition = definition.replace(f"${{{name}}}", value)
    return create("stub-monitor", definition)


def ended(cloud, machine, **payload):
    machines = StateMachines(cloud.client("stepfunctions"))
    execution = machines.start(machine, name=f"t{time.time_ns()}", payload={"pipeline": "p", **payload})
    *_, view = machines.follow([execution])
    return machines, view


def test_a_failing_day_stops_no_other_and_is_named_at_the_end(cloud, machine):
    machines, view = ended(cloud, machine)
    assert (view.status, view.error) == ("FAILED", "DaysFailed")
    assert view.cause == FAILED_DAYS
    days = {day["date"]: day for day in machines.failure_input(view.arn)["days"]}
    assert {date: (day["outcome"], day.get("failed_step")) for date, day in days.items()} == {
        BROKEN: ("failed", "run"),
        RERUN: ("published", None),
        OWED: ("published", None),
        NOT_COMPARED: ("published", "compare"),
        NOT_NOTIFIED: ("published", "notify"),
    }
    assert (days[NOT_COMPARED]["run_id"], days[NOT_COMPARED]["attempt"]) == ("r", 2)
    assert (days[RERUN]["attempt"], days[RERUN]["notified"], days[RERUN]["comparison"]) == (2, True, "s3://c")
    assert days[OWED]["message"] == f"s3://m/{OWED}"


@pytest.mark.parametrize(
    ("as_of", "error", "cause"),
    [
        (None, "DaysFailed", f"{FAILED_DAYS}; "),
        ("2000-01-01", "LedgerNotWritten", ""),
    ],
)
def test_a_failed_ledger_fails_the_monitoring_and_hides_no_failed_day(cloud, machine, as_of, error, cause):
    machines, view = ended(cloud, machine, as_of=as_of, correlation_id="ledger-fails")
    assert (view.status, view.error) == ("FAILED", error)
    reason = 'the ledger of p was not written, the next monitoring writes it: the "table" is gone'
    assert view.cause == f"{cause}{reason}"
    assert len(machines.failure_input(view.arn)["days"]) == (0 if as_of else 5)


def test_a_check_without_late_days_succeeds(cloud, machine):
    _, view = ended(cloud, machine, as_of="2000-01-01")
    assert (view.succeeded, view.output["days"], view.output["failed"]) == (True, [], 0)
