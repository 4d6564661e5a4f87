"""IAM as on AWS: each request needs a permission of its caller, and a service acts with the role that it is given.

The emulator checks the requests of clients; those with the keys of `layout.environment` come from the account's root
user and may do everything. This module adds what the emulator does not check: what state machines, event source
mappings, APIs and alarms do with roles and resource policies, the resources of requests to Glue and CloudWatch Logs,
and S3's answer for a missing object. It replaces functions of the emulator; see `emulator`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from slackwater.errors import AccessDenied
from slackwater.local.emulator import Response, module, replaces, request_scope, resource_handlers

# The longest session that a role can have.
_SESSION_SECONDS = 12 * 60 * 60


@dataclass(frozen=True)
class Principal:
    """A caller, by its access key."""

    access_key: str

    def require(self, action: str, resource: str, conditions: Mapping[str, str] | None = None) -> None:
        """Raise `AccessDenied`, with the words of AWS, unless the caller may call `action` on the ARN `resource`.

        `conditions` are the request's values of condition keys, such as `s3:prefix`.
        """
        service, region = action.partition(":")[0], request_scope().region
        denied = module("core.iam_evaluator").enforce(
            self.access_key, action, service, region, resource_arn=resource, service_context=conditions
        )
        if denied is None:
            return
        if isinstance(denied, module("core.iam_evaluator").AuthError):
            raise AccessDenied(denied.message)
        denial = module("core.iam_actions").identity_denial_message
        raise AccessDenied(denial(action, denied.principal_arn, resource, denied.decision == "Deny"))


@dataclass(frozen=True)
class RoleSession(Principal):
    """A service that has assumed a role, with temporary credentials."""

    secret_key: str
    token: str

    def environment(self) -> dict[str, str]:
        """Return the variables with which any AWS SDK uses the credentials."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_SESSION_TOKEN": self.token,
        }


def caller(headers: Mapping[str, str]) -> Principal:
    """Return the caller of a request."""
    return Principal(module("core.router").extract_access_key_id(headers, {}))


def assume_role(role: str, *, service: str, source: str, session: str) -> RoleSession:
    """Return a session of the role with the ARN `role` for a service that acts for the resource with the ARN `source`.

    Raises `AccessDenied` when the role does not exist or its trust policy does not allow this.
    """
    name, account = role.rpartition("/")[2], request_scope().account
    policy = (module("services.iam")._roles.get_scoped(account, None, name) or {}).get("AssumeRolePolicyDocument")
    if not _policy_allows(policy, service, "sts:AssumeRole", role, source):
        raise AccessDenied(f"{service} is not authorized to perform: sts:AssumeRole on resource: {role}")
    sessions = module("services.sts")
    credentials = RoleSession(sessions._gen_session_access_key(), sessions._gen_secret(), sessions._gen_session_token())
    sessions.register_session(
        credentials.access_key,
        {
            "Arn": f"arn:aws:sts::{account}:assumed-role/{name}/{session}",
            "UserId": f"{name}:{session}",
            "SecretAccessKey": credentials.secret_key,
            "SessionToken": credentials.token,
            "AccountId": account,
            "PrincipalType": "AssumedRole",
            "Expiration": time.time() + _SESSION_SECONDS,
        },
    )
    return credentials


def register() -> None:
    """Check the permissions that the emulator does not check."""
    _register_sessions_one_at_a_time()
    _count_connections_as_encrypted()
    _name_resources_as_aws()
    _hide_missing_objects()
    _check_event_source_mappings()
    _check_logs_of_functions()
    _check_invocations_by_apis()
    _check_actions_of_alarms()


def _policy_allows(policy: Any, service: str, action: str, resource: str, source: str) -> bool:
    """Return whether a resource's or role's policy lets a service call `action` for the resource `source`."""
    evaluator, scope = module("core.iam_evaluator"), request_scope()
    context = evaluator.EvalContext(
        principal_arn="*",
        principal_type="Service",
        principal_account="",
        action=action,
        resource_arn=resource,
        region=scope.region,
        service_context={"aws:sourcearn": source, "aws:sourceaccount": scope.account},
    )
    return bool(evaluator.evaluate_resource_policy(policy, context, service=service).decision == "Allow")


def _register_sessions_one_at_a_time() -> None:
    # Each registration iterates over all sessions, and states of a `Map` register theirs in threads.
    lock = threading.Lock()

    @replaces(module("services.sts"), "register_session")
    def register_alone(register_session: Any, access_key: str, session: dict[str, Any]) -> None:
        with lock:
            register_session(access_key, session)


def _count_connections_as_encrypted() -> None:
    # The endpoint is HTTP and takes the place of AWS's HTTPS endpoints. Bucket, queue and topic policies deny
    # everything else.
    @replaces(module("core.iam_evaluator"), "_resolve_condition_key")
    def resolve_key(resolve: Any, key: str, context: Any) -> Any:
        return "true" if key.lower() == "aws:securetransport" else resolve(key, context)


def _name_resources_as_aws() -> None:
    @replaces(module("core.iam_actions"), "extract_resource_arn")
    def extract_resource(extract: Any, service: str, *request: Any) -> str:
        arn: str = extract(service, *request)
        _, path, headers, body, _, region, account = request
        if service == "airflow" and path.startswith("/restapi/"):
            # MWAA accepts any Airflow role; `User` is the least that may start DAG runs.
            return f"arn:aws:airflow:{region}:{account}:role/{path.rpartition('/')[2]}/User"
        if service == "glue":
            operation = headers.get("x-amz-target", "").rpartition(".")[2]
            return glue_resource(operation, body, f"arn:aws:glue:{region}:{account}:") or arn
        if service == "logs" and ":log-group:" in arn:
            return f"{arn}:log-stream:{_members(body).get('logStreamName', '')}"
        return arn

    # A request to Glue needs the permission on its database or table, and on what contains it.
    @replaces(module("core.iam_evaluator"), "enforce")
    def enforce_with_ancestors(
        enforce: Any, access_key: str, action: str, service: str, region: str, *, resource_arn: str = "*", **more: Any
    ) -> Any:
        # SQS has no permissions for batches: SendMessageBatch needs `sqs:SendMessage`.
        action = action.removesuffix("Batch") if service == "sqs" else action
        arns = [*glue_ancestors(resource_arn), resource_arn] if service == "glue" else [resource_arn]
        results = (enforce(access_key, action, service, region, resource_arn=arn, **more) for arn in arns)
        return next((denied for denied in results if denied), None)


def glue_resource(operation: str, body: bytes, prefix: str) -> str | None:
    """Return the ARN of the database or table of a request to Glue; None for other resources."""
    members = _members(body)
    if operation.endswith("Database"):
        name = members.get("Name") or members.get("DatabaseInput", {}).get("Name")
        return f"{prefix}database/{name}" if name else None
    if not (database := members.get("DatabaseName")):
        return None
    table = members.get("TableName") or members.get("Name") or members.get("TableInput", {}).get("Name")
    return f"{prefix}table/{database}/{table or '*'}"


def glue_ancestors(arn: str) -> list[str]:
    """Return the ARNs of the catalog and, for a table, of the database that contain a resource of Glue."""
    prefix, kind, path = arn.partition(":table/" if ":table/" in arn else ":database/")
    if not kind:
        return []
    ancestors = [f"{prefix}:catalog"]
    return [*ancestors, f"{prefix}:database/{path.partition('/')[0]}"] if kind == ":table/" else ancestors


def _members(body: bytes) -> dict[str, Any]:
    """Return the members of a JSON request; none when it is malformed, which its service answers."""
    try:
        document = json.loads(body or b"{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _hide_missing_objects() -> None:
    # GetObject's documentation: for a missing object S3 answers 404 if the caller has s3:ListBucket, else 403. It does
    # not say what a condition on `s3:prefix` is compared with: here with the object's key.
    s3 = module("services.s3")

    @replaces(module("app").SERVICE_HANDLERS, "s3")
    async def handle_request(handle: Any, method: str, path: str, *request: Any) -> Any:
        response: Response = await handle(method, path, *request)
        bucket, _, key = path.lstrip("/").partition("/")
        if (
            response[0] != HTTPStatus.NOT_FOUND
            or method not in {"GET", "HEAD"}
            or not key
            or not s3._bucket_owner_account(bucket)
        ):
            return response
        try:
            headers, _, query = request
            access_key = module("core.router").extract_access_key_id(headers, query)
            Principal(access_key).require("s3:ListBucket", f"arn:aws:s3:::{bucket}", {"s3:prefix": key})
        except AccessDenied as error:
            denial = module("core.iam_actions").access_denied_response
            return denial("s3", "s3:ListBucket", "", "", message=str(error))
        return response


def _check_event_source_mappings() -> None:
    # Lambda polls a queue with the function's role, and refuses to create a mapping without these permissions.
    @replaces(resource_handlers("AWS::Lambda::EventSourceMapping"), "create")
    def create_mapping(create: Any, logical_id: str, props: Any, stack: str) -> Any:
        config = module("services.lambda_svc")._get_func_record_for_ref(props["FunctionName"])[1]
        if ":sqs:" in props["EventSourceArn"]:
            role = _function_role(config)
            for verb in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes"):
                role.require(f"sqs:{verb}", props["EventSourceArn"])
        return create(logical_id, props, stack)


def _check_logs_of_functions() -> None:
    # Without the permission, a function runs on AWS and writes no logs.
    @replaces(module("services.lambda_svc"), "_emit_lambda_logs")
    def emit_logs(emit: Any, func: Any, *arguments: Any, **options: Any) -> None:
        config = func.get("config") or func
        group = config.get("LoggingConfig", {}).get("LogGroup") or f"/aws/lambda/{config['FunctionName']}"
        scope = request_scope()
        arn = f"arn:aws:logs:{scope.region}:{scope.account}:log-group:{group}:log-stream:"
        try:
            role = _function_role(config)
            role.require("logs:CreateLogStream", arn)
            role.require("logs:PutLogEvents", f"{arn}new")
        except AccessDenied:
            return
        emit(func, *arguments, **options)


def _function_role(config: Mapping[str, Any]) -> Principal:
    return Principal(module("core.lambda_runtime").execution_credentials(config)["AWS_ACCESS_KEY_ID"])


def _check_invocations_by_apis() -> None:
    apis = module("services.apigateway_v1")

    @replaces(apis, "_invoke_lambda_proxy_v1")
    async def invoke_function(invoke: Any, integration: Any, *request: Any, **options: Any) -> Any:
        api_id, stage, _, resource, _, method = request[:6]
        function = apis._extract_lambda_ref_from_integration_uri(integration["uri"])
        if not _may_invoke(function, f"{api_id}/{stage}/{method}{resource['path']}"):
            return 500, {"Content-Type": "application/json"}, b'{"message":"Internal server error"}'
        return await invoke(integration, *request, **options)


def _may_invoke(function: str, route: str) -> bool:
    """Return whether a function's policy names an API and its route; otherwise API Gateway answers 500."""
    scope = request_scope()
    policy, _ = module("services.lambda_svc").function_policy_for_arn(function) or (None, None)
    source = f"arn:aws:execute-api:{scope.region}:{scope.account}:{route}"
    return _policy_allows(policy, "apigateway.amazonaws.com", "lambda:InvokeFunction", function, source)


def _check_actions_of_alarms() -> None:
    topics = module("services.sns")

    @replaces(module("services.cloudwatch"), "_dispatch_alarm_actions")
    def dispatch_actions(dispatch: Any, alarm: dict[str, Any], *states: str) -> None:
        scope = request_scope()

        def allowed(topic: str) -> bool:
            return bool(topics.topic_policy_allows(topic, "cloudwatch.amazonaws.com", alarm["AlarmArn"], scope.account))

        actions = {
            name: [action for action in alarm.get(name) or [] if ":sns:" not in action or allowed(action)]
            for name in ("AlarmActions", "OKActions", "InsufficientDataActions")
        }
        dispatch({**alarm, **actions}, *states)
