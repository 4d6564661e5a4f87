"""Checks of an account and a region that need no deployment: who calls, quotas, the CDK bootstrap, leftovers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slackwater.aws.deployment import DEFAULT_QUALIFIER, REQUIRED_BOOTSTRAP, bootstrap_version
from slackwater.aws.failures import translated
from slackwater.deploy.finding import Clients, Finding, Findings, failed, not_checked, ok, run_checks, warning
from slackwater.errors import SlackwaterError, Unavailable
from slackwater.project.installation import deployed_files
from slackwater.project.schedule import MONITOR_MACHINE, PIPELINE_MACHINE_PREFIX, PULL_MACHINE

NEW_ACCOUNT_VCPU = 16
"""vCPU that the default settings need, and that a new account may use ("Endpoints and quotas for EMR Serverless")."""
# 10 files of a pull, up to 10 batches of the queue, and pushes at the same time.
_LAMBDA_CONCURRENCY = 40
# The APIs, the state machines besides those of pipelines, and the CDK's function that copies the DAG files.
_NAMES = {"receiver", PULL_MACHINE, MONITOR_MACHINE, "compare-day", "backfill", "schedule-files"}


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who calls AWS, and where."""

    arn: str
    account: str
    region: str

    def regional_arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource of this account and region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{resource}"

    @property
    def partition(self) -> str:
        """The partition of AWS: `aws`, `aws-cn`, ..."""
        return self.arn.split(":")[1]


def check_caller(clients: Clients) -> tuple[Caller | None, Findings]:
    """Check region and credentials; return the caller, or None if nothing else can be checked."""
    try:
        # STS also has a client without a region.
        region, sts = clients("cloudformation").meta.region_name, clients("sts")
    except SlackwaterError as error:
        return None, {"region": failed(str(error), "set AWS_REGION, or AWS_PROFILE to a profile with a region")}
    findings = {"region": ok(region)}
    try:
        with translated("read who calls AWS"):
            answer = sts.get_caller_identity()
    except SlackwaterError as error:
        remedy = "set AWS_PROFILE, sign in again (aws sso login), or set the variables of temporary credentials"
        return None, {**findings, "credentials": failed(str(error), remedy)}
    caller = Caller(arn=answer["Arn"], account=answer["Account"], region=region)
    return caller, {**findings, "credentials": ok(caller.arn)}


def check_account(clients: Clients, caller: Caller, *, qualifier: str, needed_vcpu: int) -> Findings:
    """Check what a deployment needs of the account. `needed_vcpu` is the maximum capacity of the application."""
    return run_checks(
        {
            "account plan": lambda: _account_plan(clients),
            "API Gateway's log role": lambda: _log_role(clients),
            "EMR Serverless": lambda: _emr_serverless(clients, caller),
            "vCPU quota": lambda: _vcpu_quota(clients, needed_vcpu),
            "Lambda concurrency": lambda: _lambda_concurrency(clients),
            "CDK bootstrap": lambda: _bootstrap(clients, qualifier),
            "permission to deploy": lambda: _deployer(clients, caller, qualifier),
            "Lake Formation": lambda: _lake_formation(clients),
        }
    )


def _account_plan(clients: Clients) -> Finding:
    with translated("read the plan of the account"):
        plan = clients("freetier").get_account_plan_state()["accountPlanType"]
    if plan == "PAID":
        return ok("the paid plan")
    return failed(
        "the free plan: AWS offers only selected services, and closes the account when its credits are spent",
        "run aws freetier upgrade-account-plan --account-plan-type PAID --region us-east-1",
    )


def _emr_serverless(clients: Clients, caller: Caller) -> Finding:
    try:
        with translated("list applications"):
            clients("emr-serverless").list_applications(maxResults=1)
    except Unavailable as error:
        return failed(str(error), "deploy to a region that has EMR Serverless")
    return ok(f"answers in {caller.region}")


def _vcpu_quota(clients: Clients, needed: int) -> Finding:
    with translated("read the quota of EMR Serverless"):
        quota = clients("service-quotas").get_service_quota(ServiceCode="emr-serverless", QuotaCode="L-D05C8A75")
    value = int(quota["Quota"]["Value"])
    if value >= needed:
        return ok(f"{value} vCPU, of which the application uses up to {needed}")
    return failed(
        f"the account may use {value} vCPU at the same time and the application up to {needed}: jobs fail",
        "request an increase of the quota L-D05C8A75 (Max concurrent vCPUs per account), or lower maximum_vcpu and "
        "concurrent_runs",
    )


def _lambda_concurrency(clients: Clients) -> Finding:
    with translated("read the limits of Lambda"):
        limit = clients("lambda").get_account_settings()["AccountLimit"]["ConcurrentExecutions"]
    if limit >= _LAMBDA_CONCURRENCY:
        return ok(f"{limit} functions at the same time")
    return warning(
        f"{limit} functions at the same time: while files are pulled, partners' pushes are refused",
        f"request an increase of the quota L-B99A9384 (Concurrent executions) of Lambda to {_LAMBDA_CONCURRENCY} at "
        f"least",
    )


def _log_role(clients: Clients) -> Finding:
    with translated("read the settings of API Gateway"):
        role = clients("apigateway").get_account().get("cloudwatchRoleArn")
    if role:
        return ok(role)
    return warning(
        "API Gateway has no role for its logs in this account and region", "nothing: slackwater deploy creates one"
    )


def _bootstrap(clients: Clients, qualifier: str) -> Finding:
    version = bootstrap_version(clients("ssm"), qualifier=qualifier)
    found = f"qualifier {qualifier}, version {version or 'none'}; version {REQUIRED_BOOTSTRAP} is needed"
    if version >= REQUIRED_BOOTSTRAP:
        return ok(found)
    if qualifier == DEFAULT_QUALIFIER:
        return warning(found, "nothing: slackwater deploy bootstraps the account")
    return failed(found, f"run `cdk bootstrap --qualifier {qualifier}`, or look at the qualifier in cdk.json")


def _deployer(clients: Clients, caller: Caller, qualifier: str) -> Finding:
    roles = [
        f"arn:{caller.partition}:iam::{caller.account}:role/cdk-{qualifier}-{name}-role-{caller.account}-{caller.region}"
        for name in ("deploy", "file-publishing")
    ]
    return check_permissions(clients, caller, {"sts:AssumeRole": roles})


def check_permissions(clients: Clients, caller: Caller, wanted: Mapping[str, Sequence[str]]) -> Finding:
    """Check that the policies of the caller allow actions, each on its resources. Raises `SlackwaterError`.

    IAM simulates the actions and makes none of the calls. It knows the policies and the permissions boundary of the
    caller, but not the policies of the resources.
    """
    iam, resource = clients("iam"), caller.arn.split(":", 5)[5]
    if resource == "root":
        return warning("the root user may do everything", "use a role or a user instead")
    with translated(f"simulate the permissions of {caller.arn}"):
        match resource.split("/"):
            case ["assumed-role", role, *_]:
                # The ARN of a session lacks the path of its role.
                principal = iam.get_role(RoleName=role)["Role"]["Arn"]
            case ["user", *_]:
                principal = caller.arn
            case _:
                return not_checked(f"IAM does not simulate {caller.arn}")
        results = [
            result
            for action, resources in wanted.items()
            for result in iam.simulate_principal_policy(
                PolicySourceArn=principal, ActionNames=[action], ResourceArns=list(resources)
            )["EvaluationResults"]
        ]
    denied = [
        f"{result['EvalActionName']} on {result['EvalResourceName']}"
        for result in results
        if result["EvalDecision"] != "allowed"
    ]
    return (
        failed(f"denied: {', '.join(denied)}", f"allow it to {principal}") if denied else ok(f"allowed to {principal}")
    )


def _lake_formation(clients: Clients) -> Finding:
    with translated("read the settings of Lake Formation"):
        settings = clients("lakeformation").get_data_lake_settings()["DataLakeSettings"]
    for name in ("CreateDatabaseDefaultPermissions", "CreateTableDefaultPermissions"):
        principals = [entry["Principal"]["DataLakePrincipalIdentifier"] for entry in settings.get(name, [])]
        if "IAM_ALLOWED_PRINCIPALS" not in principals:
            return warning(
                f"{name} lacks IAM_ALLOWED_PRINCIPALS: IAM policies do not give access to new tables",
                "grant permissions to the roles of the deployment (docs/deploy/account.md, Lake Formation)",
            )
    return ok("IAM policies give access to tables")


def check_leftovers(clients: Clients, prefix: str) -> Finding:
    """Look for resources with fixed names that no stack has. Call it if no stack is deployed. Raises `CloudError`."""
    with translated("look for resources of an earlier deployment"):
        found = list(_named_resources(clients, prefix))
    if not found:
        return ok("no resource has a name that the deployment creates")
    return failed(
        f"there is no stack, but there are {', '.join(found)}: CloudFormation creates no name that exists",
        "delete them, or deploy with another prefix",
    )


def is_ours(name: str, prefix: str) -> bool:
    """Return whether a function, state machine or API of the deployment with this prefix has this name.

    `slackwater-dev-receiver` belongs to the deployment `slackwater-dev`, not to `slackwater`.
    """
    begin, _, rest = name.partition(f"{prefix}-")
    functions = {path.stem.replace("_", "-") for path in (deployed_files() / "lambdas").glob("*.py")}
    return not begin and (rest in functions | _NAMES or rest.startswith(PIPELINE_MACHINE_PREFIX))


def _named_resources(clients: Clients, prefix: str) -> Iterator[str]:
    # Lambda creates the log group of a function again if it still runs when its stack is deleted.
    for group in ("/aws/lambda/", "/aws/vendedlogs/states/", "/aws/vendedlogs/apis/", "aws-waf-logs-"):
        pages = clients("logs").get_paginator("describe_log_groups").paginate(logGroupNamePrefix=f"{group}{prefix}-")
        groups = (item["logGroupName"] for page in pages for item in page["logGroups"])
        yield from (name for name in groups if is_ours(name.removeprefix(group), prefix))
    pages = clients("stepfunctions").get_paginator("list_state_machines").paginate()
    machines = (item["name"] for page in pages for item in page["stateMachines"])
    yield from (name for name in machines if is_ours(name, prefix))
    pages = clients("glue").get_paginator("get_databases").paginate()
    databases = {f"{prefix.replace('-', '_')}_{name}" for name in ("raw", "warehouse")}
    yield from (item["Name"] for page in pages for item in page["DatabaseList"] if item["Name"] in databases)
