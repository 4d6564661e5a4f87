"""Roles of the local cloud: who may assume them, and which resources a request needs permissions on."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from ministack.services import apigateway_v1, iam, lambda_svc, sts

from slackwater.errors import AccessDenied
from slackwater.local.services import permissions
from slackwater.local.services.permissions import assume_role

pytestmark = pytest.mark.unit

APPLICATION = "arn:aws:emr-serverless:us-east-1:000000000000:/applications/one"
ROLE = "arn:aws:iam::000000000000:role/job"
EMR = "emr-serverless.amazonaws.com"
GLUE = "arn:aws:glue:us-east-1:000000000000:"


@pytest.fixture
def role():
    """A role that EMR Serverless may assume for one application, and a function that sets its permissions."""
    conditions = {"ArnLike": {"aws:SourceArn": APPLICATION}, "StringEquals": {"aws:SourceAccount": "000000000000"}}
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": EMR}, "Condition": conditions}
    stored = {"RoleId": "AROA1", "AssumeRolePolicyDocument": json.dumps({"Statement": [trust]}), "InlinePolicies": {}}
    iam._roles["job"] = stored

    def allow(*statements):
        stored["InlinePolicies"]["p"] = json.dumps({"Statement": [{"Effect": "Allow", **item} for item in statements]})

    yield allow
    del iam._roles["job"]
    sts._sessions.clear()


def assumed(**changes):
    return assume_role(ROLE, **{"service": EMR, "source": APPLICATION, "session": "run", **changes})


def test_a_session_may_do_what_its_role_allows_and_nothing_else(role):
    role({"Action": "s3:GetObject", "Resource": "arn:aws:s3:::raw/raw/*"})
    session = assumed()
    session.require("s3:GetObject", "arn:aws:s3:::raw/raw/a")
    who = "arn:aws:sts::000000000000:assumed-role/job/run is not authorized to perform: s3:PutObject on resource: "
    with pytest.raises(AccessDenied, match=who + "arn:aws:s3:::raw/raw/a because no identity-based policy allows"):
        session.require("s3:PutObject", "arn:aws:s3:::raw/raw/a")
    assert session.environment()["AWS_SESSION_TOKEN"]


def test_sessions_are_registered_one_at_a_time(role, monkeypatch):
    """The emulator iterates over all of them, which fails if another thread adds one meanwhile."""
    inside, most = [], []

    def evict():
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()

    monkeypatch.setattr(sts, "register_session", sts.register_session)
    monkeypatch.setattr(sts, "_evict_expired_sessions", evict)
    permissions._register_sessions_one_at_a_time()
    with ThreadPoolExecutor(4) as pool:
        sessions = list(pool.map(lambda _: assumed(), range(4)))
    assert {session.access_key for session in sessions} == set(sts._sessions)
    assert most == [1] * 4


def test_a_condition_is_compared_with_the_request(role):
    job = {"StringEquals": {"iam:PassedToService": EMR}}
    role({"Action": "iam:PassRole", "Resource": ROLE, "Condition": job})
    assumed().require("iam:PassRole", ROLE, {"iam:PassedToService": EMR})
    with pytest.raises(AccessDenied, match="iam:PassRole"):
        assumed().require("iam:PassRole", ROLE, {"iam:PassedToService": "lambda.amazonaws.com"})


@pytest.mark.parametrize(
    "changes",
    [{"service": "lambda.amazonaws.com"}, {"source": f"{APPLICATION}-else"}],
    ids=["another service", "another application"],
)
def test_a_role_is_assumed_only_by_whom_it_trusts(role, changes):
    with pytest.raises(AccessDenied, match="not authorized to perform: sts:AssumeRole on resource: " + ROLE):
        assumed(**changes)


def test_a_missing_role_cannot_be_assumed():
    with pytest.raises(AccessDenied, match="role/none"):
        assume_role("arn:aws:iam::000000000000:role/none", service=EMR, source=APPLICATION, session="run")


@pytest.mark.parametrize(
    ("operation", "request_members", "resource"),
    [
        ("GetTable", {"DatabaseName": "d", "Name": "t"}, "table/d/t"),
        ("BatchCreatePartition", {"DatabaseName": "d", "TableName": "t"}, "table/d/t"),
        ("CreateTable", {"DatabaseName": "d", "TableInput": {"Name": "t"}}, "table/d/t"),
        ("GetTables", {"DatabaseName": "d"}, "table/d/*"),
        ("GetDatabase", {"Name": "d"}, "database/d"),
        ("CreateDatabase", {"DatabaseInput": {"Name": "d"}}, "database/d"),
        ("GetDatabases", {}, None),
    ],
)
def test_a_request_to_glue_names_its_table_or_database(operation, request_members, resource):
    named = permissions.glue_resource(operation, json.dumps(request_members).encode(), GLUE)
    assert named == (resource and GLUE + resource)


def test_a_glue_table_needs_the_permission_on_its_database_and_the_catalog_too():
    assert permissions.glue_ancestors(f"{GLUE}table/d/t") == [f"{GLUE}catalog", f"{GLUE}database/d"]
    assert permissions.glue_ancestors(f"{GLUE}database/d") == [f"{GLUE}catalog"]
    assert permissions.glue_ancestors(f"{GLUE}catalog") == []


FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function:receive"
ROUTE = "/v1/sources/{source}/events"


@pytest.fixture
def invoke(monkeypatch):
    """A function that invokes a function as an API does, with a policy that names this route."""

    async def answer(*_, **__):
        return 200, {}, b""

    def invoke(allowed):
        condition = {"ArnLike": {"aws:SourceArn": f"arn:aws:execute-api:us-east-1:000000000000:{allowed}"}}
        statement = {"Effect": "Allow", "Action": "lambda:InvokeFunction", "Resource": FUNCTION, "Condition": condition}
        policy = {"Statement": [{**statement, "Principal": {"Service": "apigateway.amazonaws.com"}}]}
        monkeypatch.setattr(lambda_svc, "function_policy_for_arn", lambda _: (policy, "000000000000"))
        monkeypatch.setattr(apigateway_v1, "_invoke_lambda_proxy_v1", answer)
        permissions._check_invocations_by_apis()
        request = {"uri": FUNCTION}, "api", "live", {}, {"path": ROUTE}, "/", "POST", {}, b"", {}, {}
        return asyncio.run(apigateway_v1._invoke_lambda_proxy_v1(*request))[0]

    return invoke


@pytest.mark.parametrize(
    ("allowed", "status"),
    [
        ("api/live/POST/v1/sources/*/events", 200),
        ("api/*", 200),
        ("api/live/GET/v1/sources/*/events", 500),
        ("api/other/POST/v1/sources/*/events", 500),
        ("other/*", 500),
    ],
)
def test_an_api_invokes_a_function_only_if_the_functions_policy_names_its_route(invoke, allowed, status):
    assert invoke(allowed) == status
