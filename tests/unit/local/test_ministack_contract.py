"""The emulator's internals that slackwater.local uses exist and behave as slackwater.local expects."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from importlib.metadata import version
from uuid import uuid4

import pytest
from ministack import app
from ministack.core import concurrency, iam_actions, iam_evaluator, lambda_runtime, persistence, responses, router
from ministack.services import (
    apigateway_v1,
    cloudwatch,
    cloudwatch_logs,
    dynamodb,
    iam,
    lambda_svc,
    mwaa,
    s3,
    sns,
    sqs,
    stepfunctions,
    sts,
)
from ministack.services.cloudformation import provisioners

from slackwater.local import checkpoint, emulator, lambda_workers
from slackwater.local.services import state_machines

pytestmark = pytest.mark.unit


def test_the_version_is_the_pinned_one():
    assert version("ministack") == "1.5.33"


SIGNATURES = {
    app.app: "scope receive send",
    app.SERVICE_HANDLERS["elasticmapreduce"]: "method path headers body query_params",
    app._build_persistence_save_dict: "",
    app.save_all: "services",
    provisioners._RESOURCE_HANDLERS["AWS::S3::Bucket"]["create"]: "logical_id props stack_name",
    provisioners._RESOURCE_HANDLERS["AWS::S3::Bucket"]["delete"]: "physical_id props",
    provisioners._RESOURCE_HANDLERS["AWS::S3::Bucket"]["update"]: "physical_id old_props new_props stack_name ...",
    provisioners._lambda_create: "logical_id props stack_name",
    provisioners._lambda_update: "physical_id old_props new_props ...",
    stepfunctions._SERVICE_DISPATCH["arn:aws:states:::sns:publish"]: "resource input_data",
    stepfunctions._execute_task: "state_def raw_input execution ctx",
    stepfunctions._execute_choice: "state_def raw_input ctx",
    stepfunctions._run_parallel_branches: "state_def raw_input execution ctx",
    stepfunctions._fail_execution: "execution error cause",
    stepfunctions._invoke_resource: "resource input_data",
    stepfunctions._apply_output_path: "state_def data ctx",
    stepfunctions._apply_jsonata_output: "state_def raw_input ctx ...",
    stepfunctions._state_query_language: "state_def ctx",
    stepfunctions._add_event: "execution event_type details",
    lambda_svc._resolve_layer_zip: "attachment",
    lambda_svc._prune_orphan_code_blobs: "referenced",
    lambda_svc._emit_lambda_logs: "func ...",
    lambda_svc.function_policy_for_arn: "resource_arn",
    lambda_svc._recursive_loop_drop: "name func depth",
    lambda_svc._inbound_invoke_depth: "headers",
    lambda_svc._run_sqs_batch: "esm func_rec event batch queue_url queue_name",
    lambda_svc._put_function_recursion_config: "func_name data",
    lambda_runtime.Worker._spawn: "self",
    lambda_runtime.acquire_worker: "func_name config code_zip qualifier ...",
    lambda_runtime._worker_key: "func_name config qualifier",
    lambda_runtime.execution_credentials: "config",
    cloudwatch_logs._append_log_events: "stream events",
    cloudwatch._store_datum: "namespace name dims ts unit value values counts stat_values",
    cloudwatch._evaluate_alarm: "alarm",
    cloudwatch._record_history: "alarm_name old_state new_state reason ...",
    cloudwatch._dispatch_alarm_actions: "alarm old_state new_state reason",
    cloudwatch._evaluate_parent_alarms: "child ...",
    cloudwatch._put_composite_alarm: "params cbor_data is_cbor is_json",
    cloudwatch._delete_alarms: "params cbor_data is_cbor is_json",
    iam_evaluator._resolve_condition_key: "key ctx",
    iam_evaluator.enforce: "access_key_id iam_action service region resource_arn service_context",
    iam_actions.extract_resource_arn: "service method path headers body query_params region account_id",
    iam_actions.identity_denial_message: "action principal_arn resource explicit_deny",
    iam_actions.access_denied_response: "service action principal_arn request_id error_code ...",
    router.extract_access_key_id: "headers query_params ...",
    s3._bucket_owner_account: "name",
    s3._collect_list_entries: "bucket_objects prefix delimiter max_keys start_after",
    s3._get_object: "bucket_name key headers query_params",
    s3._read_body: "bucket_name key obj",
    s3._object_disk_path: "bucket key ...",
    s3._version_entry_from_record: "obj version_id data",
    sts.register_session: "access_key session",
    apigateway_v1._invoke_lambda_proxy_v1: "integration api_id stage_name stage resource request_path method ...",
    sns.topic_policy_allows: "topic_arn service source_arn source_account",
    sns._deliver_to_sqs: "endpoint envelope raw raw_message ...",
    sns._topic_by_arn_any_scope: "topic_arn",
    sqs._receive_messages_for_esm: "queue_url max_number",
    sqs._collect_msgs: "q max_n vis_timeout",
    sqs._build_send_sys_attrs: "now sys_attrs_input",
    dynamodb._index_key_empty_reason: "table item update_expr",
    dynamodb._batch_get_item: "data",
    mwaa._invoke_rest_api: "method path headers body query_params",
    concurrency.run_offloop: "fn ...",
}
"""The parameters of each function that slackwater.local calls or replaces; ... stands for more of them."""


@pytest.mark.parametrize(("function", "names"), SIGNATURES.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_functions_have_these_parameters(function, names):
    first, more, _ = names.partition("...")
    found = list(inspect.signature(function).parameters)
    assert (found[: len(first.split())] if more else found) == first.split()


# Only those of which no other test of tests/unit/local or tests/cloud would fail.
CALLS = [
    (lambda_svc._write_code_blob, f'f"{{sha}}{checkpoint._CODE_SUFFIX}"'),
    (lambda_svc.get_state, "_prune_orphan_code_blobs(referenced)"),
    (lambda_svc._execute_function_warm, "acquire_worker(func_name, config, code_zip, qualifier=qualifier)"),
    (lambda_svc._execute_function_warm, "release_worker(worker)"),
    (lambda_runtime.Worker.invoke, f'"error": "{lambda_workers._DIED}"'),
    (cloudwatch._evaluate_all_alarms, "_evaluate_alarm(alarm)"),
    (cloudwatch.cloudformation_put_metric_alarm, "_evaluate_alarm(alarm)"),
    (s3._list_objects_v2, "= _collect_list_entries("),
    # A version without a body in memory is read from disk.
    (s3._version_body, "_read_body(bucket_name, key, current)"),
    (apigateway_v1._execute_in_scope, "invoke = _invoke_lambda_proxy_v1"),
    (lambda_svc._poll_sqs, "_sqs._receive_messages_for_esm(queue_url, batch_size)"),
    (lambda_svc._poll_sqs, 'esm.get("BatchSize", 10)'),
    (lambda_svc._poll_sqs, "_run_sqs_batch, esm,"),
    (lambda_svc, "depth=_invoke_depth.get()"),
    *((sqs._receive_messages_for_esm, step) for step in ("_expire_retained(q)", "_dlq_sweep(q)", "with _queues_lock:")),
    (sqs._receive_messages_for_esm, "_collect_msgs(q, max_n, vis)"),
    (sqs._receive_messages_for_esm, "min(int(max_number or 1), 10)"),
    (sqs._act_send_message, '"sys": _build_send_sys_attrs('),
    (sns._subscribe, '"RedrivePolicy"'),
    (dynamodb._validate_index_key_values, "_index_key_empty_reason("),
    (dynamodb._transact_write_items, "_index_key_empty_reason("),
    (dynamodb.handle_request, '"BatchGetItem": _batch_get_item'),
]


@pytest.mark.parametrize(("caller", "call"), CALLS, ids=[call for _, call in CALLS])
def test_functions_call_what_is_replaced(caller, call):
    assert call in inspect.getsource(caller)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        # When the emulator does one of these itself, the part of slackwater.local that does it can go.
        (lambda_svc._poll_sqs, "MaximumBatchingWindowInSeconds"),
        (lambda_svc._run_sqs_batch, "depth"),
        (provisioners._lambda_create, "RecursiveLoop"),
        (cloudwatch, "Suppressor"),
    ],
)
def test_the_emulator_does_not_do_this(function, name):
    assert name not in inspect.getsource(function)
    assert "AWS::CloudWatch::CompositeAlarm" not in provisioners._RESOURCE_HANDLERS
    assert iam_actions.SERVICE_TO_IAM_NAMESPACE.get("emr-serverless") is None
    assert app.SERVICE_REGISTRY.get("emr-serverless", {}).get("module") != "emr"


def test_services_are_registered_in_these_tables():
    assert app.SERVICE_REGISTRY["elasticmapreduce"] == {"module": "emr"}
    assert app._state_map["emr"] == "emr"
    assert isinstance(app._loaded_modules, dict)
    assert "host_patterns" in router.SERVICE_PATTERNS["elasticmapreduce"]
    signed = "AWS4-HMAC-SHA256 Credential=test/20130308/us-east-1/elasticmapreduce/aws4_request"
    assert router.detect_service("GET", "/anything", {"authorization": signed}, {}) == "elasticmapreduce"


def test_state_is_kept_in_these_tables():
    assert all(callable(get_state) for get_state in app._build_persistence_save_dict().values())
    assert isinstance(persistence._state_format_version("emr"), int)
    scoped = responses.AccountRegionScopedDict()
    scoped["key"] = {"a": b"bytes"}
    assert set(persistence._json_default(scoped)) == {"__account_region_scoped__", "data"}
    assert persistence._json_default(b"bytes") == {"__bytes__": "Ynl0ZXM="}
    assert hasattr(stepfunctions._executions, "all_values")
    assert hasattr(iam._roles, "get_scoped")
    assert isinstance(cloudwatch._alarms, responses.AccountRegionScopedDict)
    assert lambda_svc.CODE_BLOB_DIR.endswith(f"/{checkpoint._CODE_FOLDER}")
    assert lambda_svc.MAX_INVOKE_DEPTH == 16
    assert dynamodb._item_size_bytes({"key": {"S": "é"}}) == 5
    error = stepfunctions._ExecutionError("States.TaskFailed", "why")
    assert (error.error, error.cause) == ("States.TaskFailed", "why")
    assert all(callable(make) for make in (sts._gen_session_access_key, sts._gen_secret, sts._gen_session_token))


@pytest.mark.parametrize("name", emulator._COPIED_STATES)
def test_these_states_are_copies_of_tables_and_nothing_else(name):
    source = inspect.getsource(app._build_persistence_save_dict().get(name) or app._get_module(name).get_state)
    [function] = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    assert [type(statement) for statement in function.body] == [ast.Return]
    calls = {ast.unparse(call.func) for call in ast.walk(function) if isinstance(call, ast.Call)}
    assert calls <= {"copy.deepcopy", "store"}


def test_a_state_without_copies_is_the_same_document():
    app._get_module("glue")
    own = app._build_persistence_save_dict()["glue"]
    state = emulator.service_states()["glue"]
    assert emulator.encode_state("glue", state(), emulator.to_json_value) == emulator.encode_state(
        "glue", own(), emulator.to_json_value
    )
    assert state() is own.__globals__["_ALL_STATE"]


def test_workers_are_started_by_this_call():
    assert "site.addsitedir" in lambda_runtime._PYTHON_WORKER_SCRIPT.replace("_site", "site")
    assert lambda_runtime._detect_runtime_binary("python3.11")[0] == sys.executable
    start = " ".join(inspect.getsource(lambda_runtime.Worker._spawn).partition("self._proc = ")[2].split())
    assert start.startswith(
        "subprocess.Popen( [binary, worker_path], cwd=code_dir, stdin=subprocess.PIPE, stdout=subprocess.PIPE, "
        "stderr=subprocess.PIPE, text=True, bufsize=1, env=spawn_env, )"
    )
    used = set(re.findall(r"_?proc\.(\w+)", inspect.getsource(lambda_runtime)))
    assert used <= {"poll", "wait", "kill", "terminate", "stdin", "stdout", "stderr"}


@pytest.fixture
def aws_states(monkeypatch):
    """The emulator's state machines as `complete_states` leaves them, for one test."""
    for name in (*("_execute_task", "_execute_choice"), "_run_parallel_branches", "_apply_output_path", "_add_event"):
        monkeypatch.setattr(stepfunctions, name, getattr(stepfunctions, name))
    state_machines.complete_states()
    yield
    stepfunctions.reset()


def state_name(event):
    details = event.get("stateEnteredEventDetails") or event.get("stateExitedEventDetails") or {}
    return details.get("name")


def executed(definition):
    """Run a state machine to its end; return the response of Step Functions."""
    role = "arn:aws:iam::000000000000:role/r"
    created = stepfunctions._create_state_machine(
        {"name": uuid4().hex, "definition": json.dumps(definition), "roleArn": role, "type": "EXPRESS"}
    )
    arn = json.loads(created[2])["stateMachineArn"]
    return json.loads(stepfunctions._start_sync_execution({"stateMachineArn": arn, "input": '{"a": 1}'})[2])


@pytest.mark.parametrize(
    ("output", "expected"),
    [({"Output": {"b": "{% $states.input.a + 1 %}"}}, {"b": 2}), ({}, {"a": 1})],
)
def test_a_succeed_state_applies_its_output(aws_states, output, expected):
    end = {"Type": "Succeed", **output}
    top = {"QueryLanguage": "JSONata", "StartAt": "End", "States": {"End": end}}
    assert json.loads(executed(top)["output"]) == expected
    items = {
        "Type": "Map",
        "Items": "{% [$states.input] %}",
        "ItemProcessor": {"StartAt": "End", "States": {"End": end}},
        "End": True,
    }
    inside = {"QueryLanguage": "JSONata", "StartAt": "Items", "States": {"Items": items}}
    assert json.loads(executed(inside)["output"]) == [expected]


@pytest.mark.parametrize(
    ("resource", "service", "action"),
    [
        ("arn:aws:states:::lambda:invoke", "lambda", "invoke"),
        ("arn:aws:states:::emr-serverless:startJobRun.sync", "emr-serverless", "startJobRun.sync"),
        ("arn:aws:states:::states:startExecution.sync:2", "states", "startExecution.sync:2"),
        (
            "arn:aws:lambda:us-east-1:000000000000:function:f",
            "lambda",
            "arn:aws:lambda:us-east-1:000000000000:function:f",
        ),
    ],
)
def test_a_task_s_events_name_its_service_and_action(aws_states, resource, service, action):
    execution = {"events": []}
    details = {"resourceType": "lambda" if "lambda" in resource else "states", "resource": resource}
    stepfunctions._add_event(execution, "TaskScheduled", {"taskScheduledEventDetails": details})
    stepfunctions._add_event(execution, "ExecutionStarted")
    assert execution["events"][0]["taskScheduledEventDetails"] == {"resourceType": service, "resource": action}
    assert execution["events"][1]["type"] == "ExecutionStarted"
    assert [event["previousEventId"] for event in execution["events"]] == [0, 1]


def test_states_of_branches_have_events_and_each_names_the_event_before_it_in_its_branch(aws_states, monkeypatch):
    monkeypatch.setitem(stepfunctions._SERVICE_DISPATCH, "arn:aws:states:::none:none", lambda *_: {})
    branches = [
        {
            "StartAt": f"{name}1",
            "States": {
                f"{name}1": {"Type": "Choice", "Choices": [], "Default": f"{name}2"},
                f"{name}2": {"Type": "Task", "Resource": "arn:aws:states:::none:none", "End": True},
            },
        }
        for name in "ab"
    ]
    states = {"parallel": {"Type": "Parallel", "Branches": branches, "Next": "end"}, "end": {"Type": "Succeed"}}
    executed({"StartAt": "parallel", "QueryLanguage": "JSONata", "States": states})
    (execution,) = stepfunctions._executions.values()
    names = {event["id"]: state_name(event) for event in execution["events"]}
    of_branch = {name: [event for event in execution["events"] if of(event, name, names)] for name in "ab"}
    for name, events in of_branch.items():
        assert [(event["type"], state_name(event)) for event in events] == [
            ("ChoiceStateEntered", f"{name}1"),
            ("ChoiceStateExited", f"{name}1"),
            ("TaskStateEntered", f"{name}2"),
            ("TaskScheduled", None),
            ("TaskSucceeded", None),
            ("TaskStateExited", f"{name}2"),
        ]
        assert names[events[0]["previousEventId"]] == "parallel"
        assert [event["previousEventId"] for event in events[1:]] == [event["id"] for event in events[:-1]]
    # The exit of `parallel` and the events after it follow each other.
    last = execution["events"][-4:]
    assert [event["previousEventId"] for event in last] == [event["id"] - 1 for event in last]


def of(event, branch, names):
    """Return whether the event belongs to the branch, by the states of the events before it."""
    while event["id"] > 2:
        if names[event["id"]]:
            return names[event["id"]][0] == branch
        previous = event["previousEventId"]
        event = {"id": previous, "previousEventId": previous - 1}
    return False


def test_requests_to_services_that_it_lacks_are_known_by_the_names_in_their_signatures(monkeypatch):
    monkeypatch.setattr(router, "_KNOWN_AWS_SERVICE_NAMES", None)
    emulator.name_services()
    # The names of a folder, of an endpoint and of a signature.
    assert all(map(router._is_aws_service_name, ["service-quotas", "servicequotas", "freetier", "lakeformation"]))
    assert not router._is_aws_service_name("nothing")


@pytest.mark.parametrize("delimiter", ["", "/"])
@pytest.mark.parametrize("prefix", ["", "a", "a/", "none"])
def test_a_page_of_a_listing_has_the_entries_that_it_has_without_the_extension(monkeypatch, prefix, delimiter):
    whole = s3._collect_list_entries
    monkeypatch.setattr(s3, "_collect_list_entries", whole)  # and back at the end
    emulator.list_objects_in_pages()
    keys = [f"{folder}/{number * 7 % 50}" for folder in ("b", "a", "ab") for number in range(50)]
    for page in (1, 7, 50, 1000):
        start, is_truncated = "", True
        while is_truncated:
            found = s3._collect_list_entries(dict.fromkeys(keys), prefix, delimiter, page, start)
            assert found == whole(dict.fromkeys(keys), prefix, delimiter, page, start)
            *_, is_truncated, start = found
