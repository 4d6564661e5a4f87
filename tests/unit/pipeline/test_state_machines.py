"""Rules for every state machine: names of states, retries, and errors without a cause."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from annotated_types import Le
from jsonata.functions import Functions

from slackwater.client.days.backfill_plan import MAX_DAYS, MAX_PARALLEL
from slackwater.errors import CloudError, DefinitionError, Throttled, Unavailable
from slackwater.late.check.tasks import MOST_TASKS
from slackwater.local.emr.drivers import INPUT_BYTES
from slackwater.local.emr.submit import read_submission
from slackwater.pipeline.compile import compile_machine
from slackwater.pipeline.definition import Late
from slackwater.pipeline.retries import EXECUTION, LAMBDA, RETRIES, SPARK_JOB, Machine, with_retries
from slackwater.project.project import load_project
from tests.execution_events import ENDS, HISTORY_LIMIT, Waiting, most_events
from tests.machines import evaluated, states_of, tasks_of

pytestmark = pytest.mark.unit
DIED = {"Lambda.Unknown", "Runtime.ExitError"}
"""The errors of a function whose process has ended."""


def read(name: str) -> Machine:
    machine: Machine = json.loads(Path("step_functions", f"{name}.asl.json").read_text())
    return machine


ONE_FOR_ALL = ("pull_source", "compare_day", "monitor_days", "backfill")
FILES = {name: read(name) for name in (*ONE_FOR_ALL, "pipeline")}
COMPILED = {name: with_retries(FILES[name]) for name in ONE_FOR_ALL} | {
    f"pipeline-{pipeline.pipeline}": compile_machine(pipeline, FILES["pipeline"])
    for pipeline in load_project(Path("examples/nyc_flights")).pipelines.values()
}
VARIABLES = {
    "run": {"run_id": "r", "attempt": 1},
    "chosen": {"prefix": "s3://exchange/p/", "job": "j", "correlation_id": "c"},
    "tried": {"prefix": "s3://exchange/p/", "job": "j"},
    "since": "notified",
    "comparison": {"uri": "s3://exchange/p/comparison.json"},
    "plan": {
        "job": "0" * 32,
        "run": {"read_bytes": 200_000_000, "correlation_id": "c"},
        "files": {"project": "s3://a/p.json", "archive": "s3://a/old.zip", "entry_point": "s3://a/run_stage.py"},
    },
    "archive": "s3://a/new.zip",
    "spark_parameters": "--conf spark.driver.cores=1",
    "pipeline": "p",
    "date": "2013-03-10",
    "correlation_id": "c",
    "retried": False,
    "reason": "E: no cause was given",
    "check": {"days": [{}]},
}
"""Variables that the states before a failure have assigned."""
WITHOUT_JOBS = ("monitor_days", "backfill")
"""Machines that start other machines, and no Spark job."""


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from leaves(part)
    else:
        yield value


@pytest.mark.parametrize("name", COMPILED)
def test_names_of_states_are_sentences(name):
    for state, _, _ in states_of(COMPILED[name]):
        assert re.fullmatch(r"[A-Z][a-z]+( [a-z0-9_]+)+", state)
        assert len(state) <= 80


@pytest.mark.parametrize("name", COMPILED)
def test_every_task_has_the_retries_of_its_service(name):
    tasks = tasks_of(COMPILED[name])
    assert tasks
    for state, task in tasks:
        assert task["Retry"][-1] == RETRIES[task["Resource"]], state
        own = {"Throttled", "Unavailable", "DayChanged"} & set(task["Retry"][-1]["ErrorEquals"])
        assert len(own) == (3 if task["Resource"].startswith(LAMBDA) else 0), state


@pytest.mark.parametrize("name", COMPILED)
def test_only_temporary_errors_are_retried(name):
    retried = {
        error for _, task in tasks_of(COMPILED[name]) for retrier in task["Retry"] for error in retrier["ErrorEquals"]
    }
    own = {error for error in retried if "." not in error}
    functions = set() if name == "backfill" else {"Throttled", "Unavailable", "DayChanged"}
    assert own == functions | ({"CloudError"} if name == "monitor_days" else set())
    assert not {error for error in retried if error.startswith("States.")}


def test_a_function_is_called_again_after_each_error_of_lambda_for_which_aws_recommends_it():
    """Those of "Handle Lambda service exceptions" in the guide of Step Functions."""
    transient = ("ClientExecutionTimeoutException", "ServiceException", "AWSLambdaException", "SdkClientException")
    errors = {f"Lambda.{name}" for name in (*transient, "TooManyRequestsException")}
    assert {error for error in RETRIES[LAMBDA]["ErrorEquals"] if "." in error} == errors | DIED


@pytest.mark.parametrize("name", COMPILED)
def test_a_function_whose_process_has_died_is_called_again_but_no_file_is_fetched_again_at_once(name):
    for state, task in tasks_of(COMPILED[name]):
        if task["Resource"].startswith(LAMBDA):
            first = next(retrier for retrier in task["Retry"] if set(retrier["ErrorEquals"]) & DIED)
            assert set(first["ErrorEquals"]) >= DIED
            # The lease of the dead process holds the file: the next pull fetches it.
            assert (first["MaxAttempts"] == 0) == (state == "Fetch one file"), state


@pytest.mark.parametrize("name", FILES)
def test_a_file_repeats_a_retry_of_a_service_only_to_wait_longer(name):
    def longest_wait(retrier: Machine) -> float:
        return sum(retrier["IntervalSeconds"] * retrier["BackoffRate"] ** n for n in range(retrier["MaxAttempts"]))

    for state, task in tasks_of(FILES[name]):
        standard = RETRIES[task["Resource"]]
        for own in task.get("Retry", []):
            if own["MaxAttempts"] and set(own["ErrorEquals"]) & set(standard["ErrorEquals"]):
                assert longest_wait(own) > 2 * longest_wait(standard), state


@pytest.mark.parametrize("error", [CloudError, Throttled, Unavailable])
def test_a_monitoring_waits_five_minutes_for_aws_when_it_fails_for_all_days(error):
    retriers = COMPILED["monitor_days"]["States"]["Check the days"]["Retry"]
    first = next(retrier for retrier in retriers if error.__name__ in retrier["ErrorEquals"])
    assert sum(first["IntervalSeconds"] * first["BackoffRate"] ** n for n in range(first["MaxAttempts"])) == 310


def jobs_of(name: str) -> list[Machine]:
    return [task for _, task in tasks_of(COMPILED[name]) if task["Resource"] == SPARK_JOB]


def request(job: Machine, run: Any, *, retries: int = 0, correlation_id: str = "c", **variables: Any) -> Any:
    """Return the request for a job of this run, also that of a retry."""
    entered = {"source": "s", "index": 1, "work": "w", "answer": "a", "job": "0123", "correlation_id": correlation_id}
    execution = {"Id": "e", "Name": "n", "Input": {"date": "2013-03-10"}}
    context = {"Execution": execution, "State": {"RetryCount": retries, "EnteredTime": f"12:00:0{retries}"}}
    chosen = {**VARIABLES["chosen"], "correlation_id": correlation_id}
    plan = {**VARIABLES["plan"], "run": {**VARIABLES["plan"]["run"], "correlation_id": correlation_id}}
    values = {**VARIABLES, "run": run, "chosen": chosen, "plan": plan, "correlation_id": correlation_id, **variables}
    return evaluated(job["Arguments"], {"input": entered, "context": context}, values)


RUN = {"run_id": "0" * 32, "attempt": 1000, "date": "2013-03-10", "correlation_id": "c"}
with_jobs = pytest.mark.parametrize("name", [name for name in COMPILED if name not in WITHOUT_JOBS])


@with_jobs
def test_a_repeated_request_for_a_job_is_equal_to_the_first_so_that_emr_starts_one_job(name):
    assert jobs_of(name)
    for job in jobs_of(name):
        first = request(job, RUN)
        assert re.fullmatch("[A-Za-z0-9._-]{1,64}", first["ClientToken"])
        assert [request(job, RUN, retries=retries) for retries in (1, 4)] == [first, first]


@with_jobs
def test_jobs_of_pipelines_have_the_size_of_their_input_as_the_property_that_the_local_cloud_reads(name):
    """By it, the local cloud chooses the compilers and the memory of a job's JVM."""
    run = {**RUN, "read_bytes": 200_000_000}
    for job in jobs_of(name):
        arguments = request(job, run, spark_parameters="--conf spark.driver.cores=1")
        submit = arguments["JobDriver"]["SparkSubmit"]
        parameters = submit["SparkSubmitParameters"].replace("${SparkSubmitParameters}", "")
        submission = {"jobDriver": {"sparkSubmit": {"entryPoint": "s3://a/b", "sparkSubmitParameters": parameters}}}
        conf = read_submission(submission, []).conf
        own = {key: value for key, value in conf.items() if key.startswith("spark.slackwater.")}
        runs_stages = name.startswith("pipeline-") or "--run" in submit["EntryPointArguments"]
        assert own == ({INPUT_BYTES: "200000000"} if runs_stages else {})


@with_jobs
def test_the_tags_of_a_job_have_the_correlation_id_with_the_characters_that_emr_allows(name):
    correlation_id = "nightly/2013-03-10#1 (c)"
    for job in jobs_of(name):
        tags = request(job, {**RUN, "correlation_id": correlation_id}, correlation_id=correlation_id)["Tags"]
        assert tags["slackwater:correlation"] == "nightly_2013-03-10_1 _c_"


def test_an_execution_that_step_functions_is_too_busy_to_start_is_started_again_whatever_the_name_of_its_error():
    """AWS's guide, public machines and AWS's own solutions have different names for it."""
    names = ("ExecutionLimitExceeded", "ExecutionLimitExceededException", "AWSStepFunctionsException")
    assert {f"StepFunctions.{name}" for name in names} <= set(RETRIES[EXECUTION]["ErrorEquals"])


@pytest.mark.parametrize("name", COMPILED)
@pytest.mark.parametrize("cause", [None, "it broke"])
def test_every_catch_works_with_and_without_a_cause(name, cause):
    error = {"Error": "States.Timeout"} | ({"Cause": cause} if cause else {})
    for state, task, level in states_of(COMPILED[name]):
        for catch in task.get("Catch", []):
            entered = {"input": {"path": "f", "index": 1, "date": "2013-03-10", "failed": 0}, "errorOutput": error}
            output = evaluated(catch.get("Output", error), entered, VARIABLES)
            variables = {**VARIABLES, **evaluated(catch.get("Assign", {}), entered, VARIABLES)}
            assert None not in leaves(output), state
            handler = level[catch["Next"]]
            execution = {"Id": "e", "Name": "n", "StartTime": "t", "Input": {"date": "2013-03-10"}}
            states = {"input": output, "context": {"Execution": execution, "Task": {"Token": "t"}}}
            fields = {key: handler[key] for key in ("Arguments", "Output", "Cause") if key in handler}
            if handler["Type"] == "Task":
                fields.pop("Output", None)  # of the answer, not of the error
            if handler["Type"] == "Choice":
                fields = {"Conditions": [choice["Condition"] for choice in handler["Choices"]]}
            assert fields, catch["Next"]
            results = evaluated(fields, states, variables)
            assert None not in leaves(results), (state, results)


MESSAGE = 'version "1" with \\2\\ failed: `slackwater diff`'


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (MESSAGE, MESSAGE),
        # A function has failed, and an execution, and an execution whose function has failed.
        (json.dumps({"errorMessage": MESSAGE, "errorType": "RunFailed"}), MESSAGE),
        (json.dumps({"Cause": MESSAGE, "Error": "RunFailed"}), MESSAGE),
        (json.dumps({"Cause": json.dumps({"errorMessage": MESSAGE, "stackTrace": []}), "Error": "RunFailed"}), MESSAGE),
        (None, "RunFailed"),
    ],
)
def test_a_failed_day_is_reported_with_the_message_of_its_error(cause, reason):
    days = COMPILED["monitor_days"]["States"]["Handle the late days"]["ItemProcessor"]["States"]
    error = {"Error": "RunFailed"} | ({"Cause": cause} if cause else {})
    variables = {**VARIABLES, "error": error, "step": "run", "outcome": {}}
    reported = evaluated(days["Report the failed day"]["Output"], {}, variables)
    failed = {"date": "2013-03-10", "outcome": "failed", "failed_step": "run"}
    assert reported == failed | {"error": "RunFailed", "reason": reason}


# The text that a regular expression reads, and the expression.
REGEX_USE = re.compile(r"\$(?:match|replace|contains|split)\(((?:[^()]|\([^()]*\))*?), /(.+?)(?<!\\)/")
CUT_OR_SHORT = re.compile(r"\$substring\(\$[\w.]+, 0, 4000\)|\$matches\[0\]\.groups\[\d\]|\$[\w.]+\.correlation_id")


def regex_uses() -> Iterator[tuple[str, str, str, str]]:
    """Yield machine, state, text and pattern of every regular expression in a state machine."""
    for machine, definition in COMPILED.items():
        for state, fields, _ in states_of(definition):
            own = {key: value for key, value in fields.items() if key not in ("ItemProcessor", "Branches")}
            expressions = "\n".join(leaf for leaf in leaves(own) if isinstance(leaf, str) and leaf.startswith("{%"))
            found = REGEX_USE.findall(expressions)
            # A slash behind a comma begins a regular expression.
            assert len(found) == len(re.findall(r",\s*/|~>\s*/", expressions)), (machine, state)
            yield from ((machine, state, text, pattern) for text, pattern in found)


REGEX_USES = list(regex_uses())
LONG_TEXTS = [
    (machine, state, member)
    for machine, state, text, pattern in REGEX_USES
    if text.startswith("$substring(")
    for member in re.findall("Cause|errorMessage", pattern)
]


def test_every_regular_expression_reads_a_text_that_is_cut_or_short():
    """Step Functions applies regular expressions to at most 4,000 characters."""
    assert {machine for machine, *_ in LONG_TEXTS} == {"backfill", "monitor_days", "pull_source"}
    for machine, state, text, _ in REGEX_USES:
        assert CUT_OR_SHORT.fullmatch(text), (machine, state, text)


@pytest.mark.parametrize(("machine", "state", "member"), LONG_TEXTS)
def test_a_long_cause_is_cut_before_a_regular_expression_reads_it(machine, state, member, monkeypatch):
    """The cut may be inside of the message."""
    lengths, evaluate_matcher = [], Functions.evaluate_matcher

    def matcher(pattern, text):
        lengths.append(len(text))
        return evaluate_matcher(pattern, text)

    monkeypatch.setattr(Functions, "evaluate_matcher", matcher)
    [reporting] = [definition for name, definition, _ in states_of(COMPILED[machine]) if name == state]
    output = reporting["Catch"][0]["Output"] if "Catch" in reporting else reporting["Output"]
    message = "a failed run: " + "x" * 40_000
    error = {"Error": "E", "Cause": json.dumps({member: message})}
    entered = {"input": {"cause": error["Cause"]}, "errorOutput": error}
    reported = evaluated(output, entered, {**VARIABLES, "error": error, "step": "run", "outcome": {}})
    reasons = {"reason", "ledger_error", "hours_error"} & reported.keys()
    assert all(message.startswith(reported[name]) for name in reasons)
    assert reasons
    assert 0 < max(lengths) <= 4000


@pytest.mark.parametrize(
    ("outcome", "step", "reason"),
    [
        ({"outcome": "published", "run_id": "r", "attempt": 3}, "compare", "published as attempt 3, but not compared"),
        (
            {"outcome": "published", "run_id": "r", "attempt": 3},
            "notify",
            "published as attempt 3, but nobody was notified",
        ),
        ({"outcome": "published"}, "compare", "published, but not compared"),
        ({"outcome": "unchanged", "run_id": "r", "attempt": 2}, "notify", "unchanged, but nobody was notified"),
    ],
)
def test_a_published_day_that_is_not_compared_or_notified_keeps_its_outcome(outcome, step, reason):
    days = COMPILED["monitor_days"]["States"]["Handle the late days"]["ItemProcessor"]["States"]
    steps = {name: state["Catch"][0]["Assign"]["step"] for name, state in days.items() if "Catch" in state}
    assert steps == {
        "Run the day again": "run",
        "Compare the versions": "compare",
        "Send the notification": "notify",
    }
    error = {"Error": "E", "Cause": "c" * 400}
    variables = {**VARIABLES, "error": error, "step": step, "outcome": outcome}
    reported = evaluated(days["Report the failed day"]["Output"], {}, variables)
    cause = f"{reason}: {'c' * 400}"[:300]
    assert reported == {"date": "2013-03-10", **outcome, "failed_step": step, "error": "E", "reason": cause}


HOURS = [
    {"date": "2013-03-10T15", "outcome": "published", "attempt": 2, "comparison": "s3://e/c", "differing": 1},
    {"date": "2013-03-10T16", "outcome": "failed", "failed_step": "run", "reason": "x"},
    {"date": "2013-03-10T17", "outcome": "unchanged", "comparison": "", "notified": False, "reason": "y"},
]  # fmt: skip


@pytest.mark.parametrize(("hourly", "days"), [(True, HOURS), (True, HOURS[1:]), (True, []), (False, HOURS)])
def test_people_are_notified_of_hours_when_all_of_them_are_compared(hourly, days):
    states = COMPILED["monitor_days"]["States"]
    check = {"days": days, "hourly": hourly, "timezone": "Europe/Berlin", "report": "s3://r"}
    variables, entered = {**VARIABLES, "check": check}, {"pipeline": "p", "days": days, "failed": 1}
    condition = states["Decide whether to notify of hours"]["Choices"][0]["Condition"]
    is_due = evaluated(condition, {"input": entered}, variables)
    assert is_due is (hourly and days == HOURS)
    of_hour = states["Handle the late days"]["ItemProcessor"]["States"]["Decide whether to notify"]["Choices"][1]
    assert evaluated(of_hour["Condition"], {"input": {"uri": "s3://e/c"}}, variables) is hourly
    if not is_due:
        return
    task = states["Send the notifications of hours"]
    payload = evaluated(task["Arguments"], {"input": entered, "context": {"Execution": {"Id": "e"}}}, variables)[
        "Payload"
    ]
    assert payload == {
        "pipeline": "p",
        "timezone": "Europe/Berlin",
        "hours": [{"date": "2013-03-10T15", "comparison": "s3://e/c"}],
        "execution": "e",
        "correlation_id": "c",
    }
    sent = {"date": "2013-03-10T15", "notified": True, "reason": "", "message": "s3://e/m"}
    answered = {"input": entered, "result": {"Payload": {"hours": [sent]}}}
    output = evaluated(task["Output"], answered, variables)
    assert output == {**entered, "days": [{**HOURS[0], **sent}, *HOURS[1:]]}
    failed = {"input": entered, "errorOutput": {"Error": "E", "Cause": json.dumps({"errorMessage": "no topic"})}}
    caught = evaluated(task["Catch"][0]["Output"], failed, variables)
    reported = evaluated(states["Report the hours without a notification"]["Output"], {"input": caught}, variables)
    without = {**HOURS[0], "failed_step": "notify", "reason": "nobody was notified: no topic"}
    assert reported == {"pipeline": "p", "days": [without, *HOURS[1:]], "failed": 2}


@pytest.mark.parametrize("name", COMPILED)
def test_every_failure_is_caught_or_ends_the_execution_with_its_error(name):
    """Only the first task, before anything was claimed, and the tasks that handle an error have no catch."""
    uncaught = {state for state, task in tasks_of(COMPILED[name]) if "Catch" not in task}
    assert uncaught == {
        "pull_source": {"List files"},
        "compare_day": {"Choose the versions", "Find out why it failed"},
        "monitor_days": {"Check the days"},
        "backfill": set(),
    }.get(name, {"Freeze inputs", "Record the failure"})


@pytest.mark.parametrize("name", COMPILED)
def test_machines_end_in_a_succeed_state_a_fail_state_or_a_task(name):
    ends = {
        state["Type"] for state in COMPILED[name]["States"].values() if "Next" not in state and "Default" not in state
    }
    assert ends <= {"Succeed", "Fail", "Task"}


def test_the_days_of_the_largest_monitoring_fit_into_the_history_with_all_retries():
    (limit,) = [item.le for item in Late.model_fields["window_days"].metadata if isinstance(item, Le)]
    assert limit <= MOST_TASKS
    assert ENDS + most_events(COMPILED["monitor_days"], items=MOST_TASKS) < HISTORY_LIMIT


@pytest.mark.parametrize("count", [1, 90, 91, 100, 200, MOST_TASKS])
def test_the_outcomes_of_a_monitoring_fit_into_a_payload_and_its_cause_into_an_execution(count):
    """A payload has at most 256 KB, a cause 32,768 characters ("Service quotas", and the API reference)."""
    states = COMPILED["monitor_days"]["States"]
    reported = states["Handle the late days"]["ItemProcessor"]["States"]["Report the failed day"]["Output"]
    outcome = {"outcome": "published", "run_id": "r" * 32, "attempt": 99_999}
    error = {"Error": "States.TaskFailed", "Cause": json.dumps({"Cause": "\U0001f30a" * 5000}, ensure_ascii=False)}
    variables = {"check": {"report": "s3://" + "r" * 200, "days": [{}] * count}, "pipeline": "p" * 63}
    variables |= {"date": "2013-03-10", "error": error, "step": "run", "outcome": outcome}
    day = evaluated(reported, {}, variables)
    assert set(day["reason"]) == {"\U0001f30a"}
    assert (len(day["reason"]) == 300) is (count <= 90)
    output = {"report": variables["check"]["report"], "days": [day] * count, "failed": count, "ledger_error": "l" * 300}
    assert len(json.dumps(output, ensure_ascii=False).encode()) < 256 * 1024
    cause = evaluated(states["Fail the monitoring"]["Cause"], {"input": output}, variables)
    assert cause.startswith(f"{count} of {count} late days of {'p' * 63} failed: 2013-03-10: \U0001f30a")
    assert cause.endswith("l" * 300)
    assert len(cause) < 32_768


def test_the_longest_backfill_fits_into_the_history_with_all_of_its_retries():
    assert ENDS + most_events(COMPILED["backfill"], items=MAX_DAYS) < HISTORY_LIMIT


def test_the_outcomes_of_the_longest_backfill_fit_into_a_payload_and_its_cause_into_an_execution():
    """A payload has at most 256 KB, a cause 32,768 characters ("Service quotas", and the API reference)."""
    states = COMPILED["backfill"]["States"]
    reported = states["Run the days"]["ItemProcessor"]["States"]["Report the failed day"]["Output"]
    error = {"Error": "States.TaskFailed", "Cause": json.dumps({"Cause": "\U0001f30a" * 5000}, ensure_ascii=False)}
    day = evaluated(reported, {}, {"date": "2013-03-10", "error": error})
    assert day["reason"] == "\U0001f30a" * 100
    output = {"days": [day] * MAX_DAYS, "failed": MAX_DAYS, "pipeline": "p" * 63, "correlation_id": "c" * 128}
    assert len(json.dumps(output, ensure_ascii=False).encode()) < 256 * 1024
    cause = evaluated(states["Fail the backfill"]["Cause"], {"input": output}, {"pipeline": "p" * 63})
    assert cause.startswith(f"366 of 366 days of {'p' * 63} failed: 2013-03-10, ")
    assert len(cause) < 32_768


@pytest.mark.parametrize(
    ("answer", "reported"),
    [
        ({"Status": "SUCCEEDED", "Output": '{"outcome": "unchanged", "run": {}}'}, {"outcome": "unchanged"}),
        (
            {"Status": "FAILED", "Error": "RunFailed", "Cause": "x" * 101},
            {"outcome": "failed", "error": "RunFailed", "reason": "x" * 100},
        ),
        ({"Status": "ABORTED"}, {"outcome": "failed", "error": "ABORTED", "reason": "ABORTED"}),
    ],
)
def test_a_repeated_start_of_a_day_that_has_ended_reports_the_outcome_of_its_execution(answer, reported):
    days = COMPILED["backfill"]["States"]["Run the days"]["ItemProcessor"]["States"]
    start, context = days["Run the day"], {"Execution": {"Name": "days-" + "c" * 90, "Id": "arn:e"}}
    states = {"input": {"date": "2013-03-10"}, "context": context}
    for error in ("StepFunctions.ExecutionAlreadyExists", "StepFunctions.ExecutionAlreadyExistsException"):
        catch = next(catch for catch in start["Catch"] if {error, "States.ALL"} & set(catch["ErrorEquals"]))
        assert catch["Next"] == "Read the ended day"
    variables = {"pipeline": "p", "correlation_id": "c", **evaluated(catch["Assign"], states, {})}
    read = json.loads(
        json.dumps(days["Read the ended day"]).replace("${PipelineMachinePrefix}", "arn:aws:states:r:0:stateMachine:s-")
    )
    # The name is that with which the execution was started.
    name = evaluated(start["Arguments"], states, variables)["Name"]
    assert evaluated(read["Arguments"], states, variables) == {
        "ExecutionArn": f"arn:aws:states:r:0:execution:s-p:{name}"
    }
    output = evaluated(read["Output"], {**states, "result": answer}, variables)
    assert output == {"date": "2013-03-10", **reported}


@pytest.mark.parametrize(
    ("parallel", "count", "following"),
    [
        (1, 1, "Run the days"),
        (MAX_PARALLEL, MAX_DAYS, "Run the days"),
        (0, 1, "Refuse the input"),
        (MAX_PARALLEL + 1, 1, "Refuse the input"),
        (1.5, 1, "Refuse the input"),
        (None, 1, "Refuse the input"),
        (1, MAX_DAYS + 1, "Refuse the input"),
    ],
)
def test_a_backfill_that_was_started_by_hand_is_refused_if_step_functions_could_not_run_it(parallel, count, following):
    check = COMPILED["backfill"]["States"]["Check the input"]
    given = {"dates": ["2013-03-10"] * count} | ({} if parallel is None else {"parallel": parallel})
    (choice,) = check["Choices"]
    accepted = evaluated(choice["Condition"], {"input": given}, {})
    assert (choice["Next"] if accepted else check["Default"]) == following


def test_waiting_for_another_execution_ends_with_a_clear_error_long_before_the_history_is_full():
    waiting = Waiting(COMPILED["pipeline-daily_delays"])
    assert (waiting.error, waiting.cause) == (
        "RunFailed",
        "other executions have been running 2013-03-08 for 12 hours: stop the one that is stuck (Step Functions, "
        "state machine m), then run the day again",
    )
    assert waiting.events < HISTORY_LIMIT / 2, "the run of the day follows in the same history"


def test_the_waits_for_another_execution_double_from_5_seconds_to_5_minutes_for_half_a_day():
    waits = Waiting(COMPILED["pipeline-daily_delays"]).waits
    assert waits[:8] == [5, 10, 20, 40, 80, 160, 300, 300]
    assert set(waits[6:]) == {300}
    assert 12 * 3600 <= sum(waits) < 12 * 3600 + 300


def test_retries_are_added_inside_map_and_parallel_states_after_a_task_s_own():
    own = {"ErrorEquals": ["ObjectMissing"]}
    machine = {
        "States": {
            "Map": {"Type": "Map", "ItemProcessor": {"States": {"Call": {"Type": "Task", "Resource": LAMBDA}}}},
            "Both": {"Type": "Parallel", "Branches": [{"States": {"Run": {"Type": "Task", "Resource": SPARK_JOB}}}]},
            "Start": {"Type": "Task", "Resource": EXECUTION, "Retry": [own]},
            "End": {"Type": "Succeed"},
        }
    }
    states = with_retries(machine)["States"]
    assert states["Map"]["ItemProcessor"]["States"]["Call"]["Retry"] == [RETRIES[LAMBDA]]
    assert states["Both"]["Branches"][0]["States"]["Run"]["Retry"] == [RETRIES[SPARK_JOB]]
    assert states["Start"]["Retry"] == [own, RETRIES[EXECUTION]]
    assert states["End"] == {"Type": "Succeed"}
    assert machine["States"]["Start"]["Retry"] == [own], "the definition that was given stays as it is"


def test_a_task_of_another_service_is_refused():
    machine = {"States": {"Wait": {"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage"}}}
    with pytest.raises(DefinitionError, match=r"state 'Wait': no retry policy for the resource arn:aws:states:::sqs:"):
        with_retries(machine)
