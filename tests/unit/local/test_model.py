"""The local EMR Serverless reads and refuses requests by the model of the API."""

from __future__ import annotations

import json

import pytest

from slackwater.local.service_model import (
    EmrResourceNotFound,
    EmrValidationError,
    camel_case,
    input_shape,
    pascal_case,
    read_request,
    rename_members,
    service_model,
)

pytestmark = pytest.mark.unit

ROLE = "arn:aws:iam::000000000000:role/job"
START = {"clientToken": "t", "executionRoleArn": ROLE, "jobDriver": {"sparkSubmit": {"entryPoint": "s3://b/j.py"}}}
APPLICATION = "arn:aws:emr-serverless:us-east-1:000000000000:/applications/00abc"


def read(method: str, path: str, query=None, body=None):
    return read_request(method, path, query or {}, json.dumps(body).encode() if body is not None else b"")


def test_method_and_path_select_the_operation():
    assert read("POST", "/applications/00abc/jobruns", body=START)[0] == "StartJobRun"
    assert read("GET", "/applications/00abc/jobruns/00def")[1] == {"applicationId": "00abc", "jobRunId": "00def"}
    assert read("DELETE", "/applications/00abc")[0] == "DeleteApplication"


def test_an_arn_in_the_path_keeps_its_slashes():
    call = read("GET", f"/tags/{APPLICATION}/jobruns/00def")
    assert call == ("ListTagsForResource", {"resourceArn": f"{APPLICATION}/jobruns/00def"})
    assert read("GET", "/tags/" + APPLICATION.replace("/", "%2F"))[1] == {"resourceArn": APPLICATION}


def test_query_parameters_are_typed():
    query = {"maxResults": ["5"], "states": ["SUCCESS", "FAILED"], "createdAtAfter": ["2013-03-08T00:00:00Z"]}
    parameters = read("GET", "/applications/00abc/jobruns", query)[1]
    assert parameters["maxResults"] == 5
    assert parameters["states"] == ["SUCCESS", "FAILED"]
    assert parameters["createdAtAfter"] == 1362700800.0


def test_a_path_of_no_operation_is_not_found():
    with pytest.raises(EmrResourceNotFound):
        read("GET", "/nothing")


@pytest.mark.parametrize(
    "change",
    [
        {"executionRoleArn": None},
        {"executionRoleArn": "not an arn at all here"},
        {"clientToken": "with spaces"},
        {"clientToken": "x" * 65},
        {"jobDriver": {}},
        {"jobDriver": {"sparkSubmit": {}}},
        {"jobDriver": {"sparkSubmit": {"entryPoint": " "}}},
        {"jobDriver": {"sparkSubmit": {"entryPoint": 7}}},
        {"jobDriver": {"sparkSubmit": {"entryPoint": "a", "entryPointArguments": "not a list"}}},
        {"jobDriver": {"sparkSubmit": {"entryPoint": "a", "entryPointArguments": ["--restore", ""]}}},
        {"jobDriver": {"sparkSubmit": {"entryPoint": "a", "entryPointArguments": [" \n"]}}},
        {"jobDriver": {"sparkSubmit": {"entryPoint": "a"}, "hive": {"query": "SELECT 1"}}},
        {"mode": "SOMETIMES"},
        {"executionTimeoutMinutes": -1},
        {"executionTimeoutMinutes": True},
        {"retryPolicy": {"maxAttempts": 0}},
        {"tags": {"": "empty key"}},
        {"tags": ["not", "a", "map"]},
    ],
)
def test_a_request_that_breaks_the_model_is_refused(change):
    with pytest.raises(EmrValidationError):
        read("POST", "/applications/00abc/jobruns", body={**START, **change})


@pytest.mark.parametrize(
    "query", [{"maxResults": ["0"]}, {"maxResults": ["51"]}, {"maxResults": ["x"]}, {"createdAtAfter": ["x"]}]
)
def test_query_parameters_that_break_the_model_are_refused(query):
    with pytest.raises(EmrValidationError):
        read("GET", "/applications/00abc/jobruns", query)


def test_identifiers_that_break_the_model_are_refused():
    with pytest.raises(EmrValidationError):
        read("GET", "/applications/UPPER")


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff"])
def test_a_body_that_is_not_a_json_object_is_refused(body):
    with pytest.raises(EmrValidationError):
        read_request("POST", "/applications", {}, body)


def test_members_are_renamed_and_the_users_keys_are_not():
    shape = input_shape("StartJobRun")
    pascal = {
        "ApplicationId": "00abc",
        "Tags": {"Owner": "me"},
        "JobDriver": {"SparkSubmit": {"EntryPointArguments": ["A"]}},
        "ConfigurationOverrides": {
            "ApplicationConfiguration": [{"Classification": "spark-defaults", "Properties": {"spark.A": "1"}}]
        },
    }
    wire = rename_members(shape, pascal, camel_case)
    assert wire["tags"] == {"Owner": "me"}
    assert wire["jobDriver"] == {"sparkSubmit": {"entryPointArguments": ["A"]}}
    assert wire["configurationOverrides"]["applicationConfiguration"][0]["properties"] == {"spark.A": "1"}
    assert rename_members(shape, wire, pascal_case) == pascal


def test_names_that_start_with_two_capitals_survive():
    shape = service_model().shape_for("ResourceUtilization")
    assert rename_members(shape, {"vCPUHour": 1.0}, pascal_case) == {"VCPUHour": 1.0}
    assert rename_members(shape, {"VCPUHour": 1.0}, camel_case) == {"vCPUHour": 1.0}
