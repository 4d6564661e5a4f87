"""What slackwater.local uses of the emulator is still there, and still means what we take it to mean."""

from __future__ import annotations

import inspect
from importlib.metadata import version

import pytest
from ministack import app
from ministack.core import lambda_runtime, persistence, responses, router
from ministack.services import apigateway, lambda_svc, stepfunctions
from ministack.services.cloudformation import provisioners

from slackwater.local import emulator

pytestmark = pytest.mark.unit


def parameters(function) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_version_is_the_one_that_this_was_written_for():
    assert version("ministack") == "1.5.33"


def test_services_stand_in_these_tables():
    assert app.SERVICE_REGISTRY["elasticmapreduce"] == {"module": "emr"}
    assert parameters(app.SERVICE_HANDLERS["elasticmapreduce"]) == ["method", "path", "headers", "body", "query_params"]
    assert app._state_map["emr"] == "emr"
    assert isinstance(app._loaded_modules, dict)
    assert "host_patterns" in router.SERVICE_PATTERNS["elasticmapreduce"]
    assert "emr-serverless" not in app.SERVICE_REGISTRY or app.SERVICE_REGISTRY["emr-serverless"]["module"] != "emr"


def test_requests_go_to_the_service_that_they_are_signed_for():
    signed = "AWS4-HMAC-SHA256 Credential=test/20130308/us-east-1/elasticmapreduce/aws4_request"
    assert router.detect_service("GET", "/anything", {"authorization": signed}, {}) == "elasticmapreduce"


def test_the_application_is_asgi():
    assert parameters(app.app) == ["scope", "receive", "send"]


def test_state_is_taken_and_kept_like_this():
    assert parameters(app._build_persistence_save_dict) == []
    assert all(callable(get_state) for get_state in app._build_persistence_save_dict().values())
    assert isinstance(persistence._state_format_version("emr"), int)
    scoped = responses.AccountRegionScopedDict()
    scoped["key"] = {"a": b"bytes"}
    assert set(persistence._json_default(scoped)) == {"__account_region_scoped__", "data"}
    assert persistence._json_default(b"bytes") == {"__bytes__": "Ynl0ZXM="}


def test_requests_have_an_account_and_a_region():
    assert responses.get_account_id() == "000000000000"
    assert isinstance(responses.get_region(), str)


def test_stack_resources_are_provisioned_by_these_handlers():
    handlers = provisioners._RESOURCE_HANDLERS["AWS::S3::Bucket"]
    assert parameters(handlers["create"]) == ["logical_id", "props", "stack_name"]
    assert parameters(handlers["delete"]) == ["physical_id", "props"]
    assert parameters(handlers["update"])[:4] == ["physical_id", "old_props", "new_props", "stack_name"]


def test_states_call_their_integrations_like_this():
    assert parameters(stepfunctions._SERVICE_DISPATCH["arn:aws:states:::sns:publish"]) == ["resource", "input_data"]
    assert parameters(stepfunctions._execute_task) == ["state_def", "raw_input", "execution", "ctx"]
    assert parameters(stepfunctions._invoke_resource_with_timeout) == ["resource", "input_data", "timeout"]
    error = stepfunctions._ExecutionError("States.TaskFailed", "why")
    assert (error.error, error.cause) == ("States.TaskFailed", "why")
    # `.sync` is taken off the resource before it is looked up, and handed to the integration in full.
    source = inspect.getsource(stepfunctions._invoke_resource)
    assert 'resource.replace(".sync", "")' in source
    assert "handler(resource, input_data)" in source


def test_a_running_execution_says_so():
    assert hasattr(stepfunctions._executions, "all_values")


def test_apis_are_made_by_this_handler_and_kept_in_this_table(monkeypatch):
    handlers = dict(provisioners._RESOURCE_HANDLERS["AWS::ApiGatewayV2::Api"])
    monkeypatch.setitem(provisioners._RESOURCE_HANDLERS, "AWS::ApiGatewayV2::Api", handlers)
    emulator.address_apis_by_path("http://127.0.0.1:1")
    api_id, attributes = handlers["create"]("Api", {"Name": "a"}, "stack")
    try:
        path = f"/_aws/execute-api/{api_id}/$default"
        assert attributes["ApiEndpoint"] == apigateway._apis[api_id]["apiEndpoint"] == f"http://127.0.0.1:1{path}"
        assert app._parse_execute_api_url("127.0.0.1", f"{path}/v1/x") == (api_id, "$default", "/v1/x")
    finally:
        handlers["delete"](api_id, {})


def test_workers_ask_for_layers_by_this_name_when_they_start():
    assert parameters(lambda_svc._resolve_layer_zip) == ["attachment"]
    assert parameters(lambda_runtime.Worker._spawn) == ["self"]
    assert "import _resolve_layer_zip" in inspect.getsource(lambda_runtime.Worker._spawn)
    assert "site.addsitedir" in lambda_runtime._PYTHON_WORKER_SCRIPT.replace("_site", "site")
