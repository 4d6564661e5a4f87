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
from ministack.core import (
    iam_actions,
    iam_evaluator,
    lambda_runtime,
    persistence,
    responses,
    router,
)
from ministack.services import (
    apigateway_v1,
    cloudwatch,
    cloudwatch_logs,
    dynamodb,
    iam,
    lambda_svc,
    s3,
    sns,
    sqs,
    stepfunctions,
    sts,
)
from ministack.services.cloudformation import provisioners

from slackwater.local import checkpoint, emulator
from slackwater.local.services import state_machines

pytestmark = pytest.mark.unit


def parameters(function) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_version_is_the_pinned_one():
    assert version("ministack") == "1.5.33"


def test_services_are_registered_in_these_tables():
    assert app.SERVICE_REGISTRY["elasticmapreduce"] == {"module": "emr"}
    assert parameters(app.SERVICE_HANDLERS["elasticmapreduce"]) == ["method", "path", "headers", "body", "query_params"]
    assert app._state_map["emr"] == "emr"
    assert isinstance(app._loaded_modules, dict)
    assert "host_patterns" in router.SERVICE_PATTERNS["elasticmapreduce"]
    assert "emr-serverless" not in app.SERVICE_REGISTRY or app.SERVICE_REGISTRY["emr-serverless"]["module"] != "emr"


def test_the_signature_selects_the_service_of_a_request():
    signed = "AWS4-HMAC-SHA256 Credential=test/20130308/us-east-1/elasticmapreduce/aws4_request"
    assert router.detect_service("GET", "/anything", {"authorization": signed}, {}) == "elasticmapreduce"


def test_the_application_is_asgi():
    assert parameters(app.app) == ["scope", "receive", "send"]


def test_state_is_read_and_saved_by_these_functions():
    assert parameters(app._build_persistence_save_dict) == []
    assert parameters(app.save_all) == ["services"]
    assert all(callable(get_state) for get_state in app._build_persistence_save_dict().values())
    assert isinstance(persistence._state_format_version("emr"), int)
    scoped = responses.AccountRegionScopedDict()
    scoped["key"] = {"a": b"bytes"}
    assert set(persistence._json_default(scoped)) == {"__account_region_scoped__", "data"}
    assert persistence._json_default(b"bytes") == {"__bytes__": "Ynl0ZXM="}


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


def test_requests_have_an_account_and_a_region():
    assert responses.get_account_id() == "000000000000"
    assert isinstance(responses.get_region(), str)


def test_resources_of_stacks_are_provisioned_by_these_handlers():
    handlers = provisioners._RESOURCE_HANDLERS["AWS::S3::Bucket"]
    assert parameters(handlers["create"]) == ["logical_id", "props", "stack_name"]
    assert parameters(handlers["delete"]) == ["physical_id", "props"]
    assert parameters(handlers["update"])[:4] == ["physical_id", "old_props", "new_props", "stack_name"]


def test_states_call_their_integrations_by_these_functions():
    assert parameters(stepfunctions._SERVICE_DISPATCH["arn:aws:states:::sns:publish"]) == ["resource", "input_data"]
    assert parameters(stepfunctions._execute_task) == ["state_def", "raw_input", "execution", "ctx"]
    # The time limit of a task is a number in its definition.
    assert 'resource, effective, state_def["TimeoutSeconds"])' in inspect.getsource(stepfunctions._execute_task)
    error = stepfunctions._ExecutionError("States.TaskFailed", "why")
    assert (error.error, error.cause) == ("States.TaskFailed", "why")
    # `.sync` is removed from the resource for the lookup, and passed to the integration in full.
    source = inspect.getsource(stepfunctions._invoke_resource)
    assert 'resource.replace(".sync", "")' in source
    assert "handler(resource, input_data)" in source


def test_executions_are_kept_in_this_table():
    assert hasattr(stepfunctions._executions, "all_values")


def test_executions_fail_by_this_function():
    assert parameters(stepfunctions._fail_execution) == ["execution", "error", "cause"]
    assert "_fail_execution(execution, err.error, err.cause)" in inspect.getsource(stepfunctions._run_execution)
    assert '"stateMachineArn": sm_arn' in inspect.getsource(stepfunctions._start_execution)


def test_starting_workers_get_layers_by_this_function():
    assert parameters(lambda_svc._resolve_layer_zip) == ["attachment"]
    assert parameters(lambda_runtime.Worker._spawn) == ["self"]
    assert "import _resolve_layer_zip" in inspect.getsource(lambda_runtime.Worker._spawn)
    assert "site.addsitedir" in lambda_runtime._PYTHON_WORKER_SCRIPT.replace("_site", "site")


def test_workers_are_started_by_this_call():
    assert lambda_runtime._detect_runtime_binary("python3.11")[0] == sys.executable
    start = " ".join(inspect.getsource(lambda_runtime.Worker._spawn).partition("self._proc = ")[2].split())
    assert start.startswith(
        "subprocess.Popen( [binary, worker_path], cwd=code_dir, stdin=subprocess.PIPE, stdout=subprocess.PIPE, "
        "stderr=subprocess.PIPE, text=True, bufsize=1, env=spawn_env, )"
    )
    used = set(re.findall(r"_?proc\.(\w+)", inspect.getsource(lambda_runtime)))
    assert used <= {"poll", "wait", "kill", "terminate", "stdin", "stdout", "stderr"}


def test_the_code_of_functions_is_kept_in_this_folder_and_pruned_by_this_function():
    assert lambda_svc.CODE_BLOB_DIR.endswith(f"/{checkpoint._CODE_FOLDER}")
    assert f'f"{{sha}}{checkpoint._CODE_SUFFIX}"' in inspect.getsource(lambda_svc._write_code_blob)
    assert parameters(lambda_svc._prune_orphan_code_blobs) == ["referenced"]
    assert "_prune_orphan_code_blobs(referenced)" in inspect.getsource(lambda_svc.get_state)
    assert inspect.getsource(lambda_svc).count("_prune_orphan_code_blobs(") == 2  # the definition, and this call


def test_invocations_get_and_return_workers_by_these_functions():
    assert parameters(lambda_runtime.acquire_worker)[:4] == ["func_name", "config", "code_zip", "qualifier"]
    assert parameters(lambda_runtime._worker_key) == ["func_name", "config", "qualifier"]
    source = inspect.getsource(lambda_svc._execute_function_warm)
    assert "acquire_worker(func_name, config, code_zip, qualifier=qualifier)" in source
    assert "release_worker(worker)" in source


def test_functions_and_clients_write_log_lines_by_this_function():
    assert parameters(cloudwatch_logs._append_log_events) == ["stream", "events"]
    assert "_cwl._append_log_events(stream" in inspect.getsource(lambda_svc._emit_lambda_logs)
    assert "_append_log_events(s, stored)" in inspect.getsource(cloudwatch_logs._put_log_events)
    assert '{"timestamp": now_ms, "message": line' in inspect.getsource(lambda_svc._emit_lambda_logs)


def test_metrics_are_kept_by_namespace_name_and_dimensions_in_this_table():
    names = ["namespace", "name", "dims", "ts", "unit", "value", "values", "counts", "stat_values"]
    assert parameters(cloudwatch._store_datum) == names
    key = cloudwatch._dims_key(cloudwatch._dims_from_list([{"Name": "b", "Value": "2"}, {"Name": "a", "Value": "1"}]))
    cloudwatch._store_datum("N", "M", {"a": "1", "b": "2"}, 1.5, "Count", None, (2.0, 3.0), None, None)
    try:
        points = cloudwatch._metrics.get(("N", "M", key))
        assert [(point["Timestamp"], point["Value"]) for point in points] == [(1.5, 2.0), (1.5, 3.0)]
        assert cloudwatch._stat_value(cloudwatch._calc_stats(points), "Sum", points) == 5.0
        assert cloudwatch._stat_value(cloudwatch._calc_stats(points), "p100", points) == 3.0
    finally:
        cloudwatch.reset()


def test_alarms_are_evaluated_by_this_function_and_fire_by_these():
    assert parameters(cloudwatch._evaluate_alarm) == ["alarm"]
    for caller in (cloudwatch._evaluate_all_alarms, cloudwatch.cloudformation_put_metric_alarm):
        assert "_evaluate_alarm(alarm)" in inspect.getsource(caller)
    assert parameters(cloudwatch._record_history)[:4] == ["alarm_name", "old_state", "new_state", "reason"]
    assert parameters(cloudwatch._dispatch_alarm_actions) == ["alarm", "old_state", "new_state", "reason"]
    assert parameters(cloudwatch._evaluate_parent_alarms)[0] == "child"
    assert isinstance(cloudwatch._alarms, responses.AccountRegionScopedDict)


def test_composite_alarms_are_put_and_deleted_by_these_functions_and_have_no_resource_type():
    for function in (cloudwatch._put_composite_alarm, cloudwatch._delete_alarms):
        assert parameters(function) == ["params", "cbor_data", "is_cbor", "is_json"]
    assert "AWS::CloudWatch::CompositeAlarm" not in provisioners._RESOURCE_HANDLERS
    # It ignores a suppressor.
    assert "Suppressor" not in inspect.getsource(cloudwatch)


def test_requests_are_authorised_by_these_functions():
    assert parameters(iam_evaluator._resolve_condition_key) == ["key", "ctx"]
    assert "_resolve_condition_key(key, ctx)" in inspect.getsource(iam_evaluator._conditions_met)
    assert parameters(router.extract_access_key_id)[:2] == ["headers", "query_params"]
    names = ["service", "method", "path", "headers", "body", "query_params", "region", "account_id"]
    assert parameters(iam_actions.extract_resource_arn) == names
    names = ["access_key_id", "iam_action", "service", "region", "resource_arn", "service_context"]
    assert parameters(iam_evaluator.enforce) == names
    dispatch = inspect.getsource(app._dispatch_service_request)
    assert "resource_arn=checked_arn, service_context=" in dispatch
    assert "from ministack.core.iam_evaluator import AuthError, enforce" in dispatch
    assert parameters(iam_actions.identity_denial_message) == ["action", "principal_arn", "resource", "explicit_deny"]
    assert parameters(iam_actions.access_denied_response)[:5] == [
        *("service", "action", "principal_arn", "request_id", "error_code")
    ]
    assert iam_actions.SERVICE_TO_IAM_NAMESPACE.get("emr-serverless") is None
    assert parameters(s3._bucket_owner_account) == ["name"]


def test_objects_are_read_by_these_functions():
    assert parameters(s3._get_object) == ["bucket_name", "key", "headers", "query_params"]
    assert parameters(s3._read_body) == ["bucket_name", "key", "obj"]
    assert parameters(s3._object_disk_path)[:2] == ["bucket", "key"]
    assert parameters(s3._version_entry_from_record) == ["obj", "version_id", "data"]
    source = inspect.getsource(s3._get_object)
    assert "body[start : end + 1]" in source
    assert "body[offset : offset + length]" in source
    # A version without a body in memory is read from disk.
    assert "_read_body(bucket_name, key, current)" in inspect.getsource(s3._version_body)


def test_roles_and_sessions_are_kept_by_these_functions():
    assert hasattr(iam._roles, "get_scoped")
    assert parameters(sts.register_session) == ["access_key", "session"]
    assert all(callable(make) for make in (sts._gen_session_access_key, sts._gen_secret, sts._gen_session_token))
    assert parameters(lambda_runtime.execution_credentials) == ["config"]


def test_services_act_by_these_functions():
    assert parameters(stepfunctions._invoke_resource) == ["resource", "input_data"]
    assert "_invoke_resource, resource, input_data)" in inspect.getsource(stepfunctions._invoke_resource_with_timeout)
    assert parameters(lambda_svc._emit_lambda_logs)[0] == "func"
    assert parameters(lambda_svc._get_func_record_for_ref)
    assert parameters(lambda_svc.function_policy_for_arn) == ["resource_arn"]
    names = ["integration", "api_id", "stage_name", "stage", "resource", "request_path", "method"]
    assert parameters(apigateway_v1._invoke_lambda_proxy_v1)[:7] == names
    assert "invoke = _invoke_lambda_proxy_v1" in inspect.getsource(apigateway_v1._execute_in_scope)
    assert parameters(cloudwatch._dispatch_alarm_actions) == ["alarm", "old_state", "new_state", "reason"]
    assert parameters(sns.topic_policy_allows) == ["topic_arn", "service", "source_arn", "source_account"]


def test_a_scope_applies_to_a_block():
    before = responses.get_account_id(), responses.get_region()
    with responses.request_scope("111111111111", "eu-west-1"):
        assert (responses.get_account_id(), responses.get_region()) == ("111111111111", "eu-west-1")
        scoped = responses.AccountRegionScopedDict()
        scoped["key"] = 1
        assert scoped.all_items() == [(("111111111111", "eu-west-1", "key"), 1)]
    assert (responses.get_account_id(), responses.get_region()) == before


def test_queues_keep_their_messages_in_this_table():
    url = sqs._act_create_queue({"QueueName": "q"}, "")["QueueUrl"]
    try:
        sqs._act_send_message({"QueueUrl": url, "MessageBody": "m"}, url)
        [(_, queue)] = sqs._queues.all_items()
        assert queue["name"] == "q"
        assert [type(message["visible_at"]) for message in queue["messages"]] == [float]
        assert sqs._queue_by_arn(queue["attributes"]["QueueArn"]) is queue
    finally:
        sqs.reset()


def test_functions_receive_messages_by_this_function():
    assert parameters(sqs._receive_messages_for_esm) == ["queue_url", "max_number"]
    assert parameters(sqs._collect_msgs) == ["q", "max_n", "vis_timeout"]
    poll = inspect.getsource(lambda_svc._poll_sqs)
    assert "_sqs._receive_messages_for_esm(queue_url, batch_size)" in poll
    assert 'esm.get("BatchSize", 10)' in poll
    for step in ("_expire_retained(q)", "_dlq_sweep(q)", "_collect_msgs(q, max_n, vis)", "with _queues_lock:"):
        assert step in inspect.getsource(sqs._receive_messages_for_esm)
    # When the emulator does this itself one day, slackwater.local.services.queues can go.
    assert "MaximumBatchingWindowInSeconds" not in poll
    assert "min(int(max_number or 1), 10)" in inspect.getsource(sqs._receive_messages_for_esm)


def test_the_depth_of_an_invocation_is_a_header_of_its_requests_that_messages_lose():
    assert lambda_svc.MAX_INVOKE_DEPTH == 16
    assert parameters(lambda_svc._recursive_loop_drop) == ["name", "func", "depth"]
    assert parameters(lambda_svc._inbound_invoke_depth) == ["headers"]
    names = ["esm", "func_rec", "event", "batch", "queue_url", "queue_name"]
    assert parameters(lambda_svc._run_sqs_batch) == names
    # It looks the function up when it is called, and so do these.
    assert "_run_sqs_batch, esm," in inspect.getsource(lambda_svc._poll_sqs)
    assert "depth=_invoke_depth.get()" in inspect.getsource(lambda_svc)
    assert parameters(sqs._build_send_sys_attrs) == ["now", "sys_attrs_input"]
    assert '"sys": _build_send_sys_attrs(' in inspect.getsource(sqs._act_send_message)
    assert "mod.handle_request(" in inspect.getsource(app._lazy_handler)
    assert parameters(lambda_svc._put_function_recursion_config) == ["func_name", "data"]
    assert parameters(provisioners._lambda_create) == ["logical_id", "props", "stack_name"]
    assert parameters(provisioners._lambda_update)[:3] == ["physical_id", "old_props", "new_props"]
    # When the emulator does this itself one day, slackwater.local.services.recursive_loops can go.
    assert "depth" not in inspect.getsource(lambda_svc._run_sqs_batch)
    assert "RecursiveLoop" not in inspect.getsource(provisioners._lambda_create)


def test_topics_deliver_to_queues_by_this_function():
    names = ["endpoint", "envelope", "raw", "raw_message"]
    assert parameters(sns._deliver_to_sqs)[:4] == names
    assert "topic_arn=topic_arn" in inspect.getsource(sns._fanout).partition("_deliver_to_sqs(")[2][:300]
    assert parameters(sns._topic_by_arn_any_scope) == ["topic_arn"]
    assert '"RedrivePolicy"' in inspect.getsource(sns._subscribe)


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


def test_keys_of_indexes_are_checked_by_this_function_for_single_writes_and_transactions():
    assert parameters(dynamodb._index_key_empty_reason) == ["table", "item", "update_expr"]
    for caller in (dynamodb._validate_index_key_values, dynamodb._transact_write_items):
        assert "_index_key_empty_reason(" in inspect.getsource(caller)


def test_items_are_read_by_keys_and_measured_by_these_functions():
    assert parameters(dynamodb._batch_get_item) == ["data"]
    assert '"BatchGetItem": _batch_get_item' in inspect.getsource(dynamodb.handle_request)
    assert dynamodb._item_size_bytes({"key": {"S": "é"}}) == 5


def test_a_succeed_state_needs_the_adapter():
    source = inspect.getsource(stepfunctions._run_execution)
    succeed = source.partition('if state_type == "Succeed":')[2].partition("continue")[0]
    assert "_apply_output_path(state_def, current_input, ctx)" in succeed
    assert "_apply_jsonata_output" not in succeed
    assert parameters(stepfunctions._apply_output_path) == ["state_def", "data", "ctx"]
    assert parameters(stepfunctions._apply_jsonata_output)[:3] == ["state_def", "raw_input", "ctx"]
    assert parameters(stepfunctions._state_query_language) == ["state_def", "ctx"]


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
    assert parameters(stepfunctions._add_event) == ["execution", "event_type", "details"]
    assert '_add_event(execution, "TaskScheduled"' in inspect.getsource(stepfunctions._execute_task)
    execution = {"events": []}
    details = {"resourceType": "lambda" if "lambda" in resource else "states", "resource": resource}
    stepfunctions._add_event(execution, "TaskScheduled", {"taskScheduledEventDetails": details})
    stepfunctions._add_event(execution, "ExecutionStarted")
    assert execution["events"][0]["taskScheduledEventDetails"] == {"resourceType": service, "resource": action}
    assert execution["events"][1]["type"] == "ExecutionStarted"
    assert [event["previousEventId"] for event in execution["events"]] == [0, 1]


def test_states_of_branches_have_events_and_each_names_the_event_before_it_in_its_branch(aws_states, monkeypatch):
    monkeypatch.setitem(stepfunctions._SERVICE_DISPATCH, "arn:aws:states:::none:none", lambda *_: {})
    assert parameters(stepfunctions._run_parallel_branches) == ["state_def", "raw_input", "execution", "ctx"]
    assert parameters(stepfunctions._execute_choice) == ["state_def", "raw_input", "ctx"]
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
