"""Checks of the deployed stacks: their states and versions, the Spark application, and who may use them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any, NamedTuple

from slackwater import __version__
from slackwater.aws.deployment import STACKS, Deployment, read_deployment, read_project
from slackwater.aws.failures import translated
from slackwater.aws.objects import S3ObjectStore
from slackwater.deploy.check_account import Caller, check_permissions, is_ours
from slackwater.deploy.check_objects import check_objects
from slackwater.deploy.check_versions import check_old_versions
from slackwater.deploy.finding import Clients, Finding, Findings, failed, ok, run_checks, supported_until, warning

# "Lambda runtimes": the dates from which AWS deprecates a runtime. A month later, Lambda creates no function on it.
_RUNTIME_ENDS = {
    "python3.11": date(2027, 6, 30),
    "python3.12": date(2028, 10, 31),
    "python3.13": date(2029, 6, 30),
    "python3.14": date(2029, 6, 30),
}
# "Standard support until" in the releases' pages of the EMR release guide.
_RELEASE_ENDS = {"emr-spark-8.0.0": date(2027, 5, 20), "emr-spark-8.1.0": date(2029, 9, 7)}
# CloudFormation's limit of resources in a stack, and the number from which on to warn.
_RESOURCE_LIMIT, _MANY_RESOURCES = 500, 450


class Deployed(NamedTuple):
    """What is deployed."""

    deployment: Deployment
    application: Mapping[str, Any]
    """The EMR Serverless application."""

    @property
    def maximum_vcpu(self) -> int:
        """The maximum capacity of the application."""
        return int(self.application["maximumCapacity"]["cpu"].split()[0])


def read_deployed(clients: Clients, prefix: str) -> Deployed:
    """Read what is deployed. Raises `NotDeployed` and `CloudError`."""
    deployment = read_deployment(clients("cloudformation"), prefix=prefix)
    with translated(f"read the application {deployment.application_id}"):
        application = clients("emr-serverless").get_application(applicationId=deployment.application_id)["application"]
    return Deployed(deployment, application)


def check_stacks(states: Mapping[str, str], prefix: str) -> Finding:
    """Check the stacks by their states: all of them are deployed, or none."""
    if not states:
        return ok(f"none has the prefix {prefix!r} (SLACKWATER_PREFIX, or slackwater:prefix in cdk.json)")
    problems = {f"{prefix}-{stack}": "missing" for stack in STACKS} | dict(states)
    problems = {name: state for name, state in problems.items() if state not in {"CREATE_COMPLETE", "UPDATE_COMPLETE"}}
    found = ", ".join(f"{name} is {state}" for name, state in problems.items())
    if not problems:
        return ok(f"{len(states)} with the prefix {prefix!r}")
    if all(state.endswith("_IN_PROGRESS") for state in problems.values()):
        return warning(found, "wait until the deployment has ended")
    return failed(found, "run slackwater deploy; .slackwater/deploy.log names the resource that failed")


def check_deployment(
    clients: Clients, caller: Caller, deployed: Deployed, *, stacks: Iterable[str], prefix: str, now: datetime
) -> Findings:
    """Check a complete deployment; `stacks` are the names of its stacks."""
    (deployment, application), today = deployed, now.date()
    return run_checks(
        {
            "library": lambda: _library(deployment.library_version),
            "EMR release": lambda: supported_until(
                application["releaseLabel"],
                _RELEASE_ENDS.get(application["releaseLabel"]),
                today=today,
                remedy="set emr_release to a newer release",
            ),
            "Spark jars": lambda: _jars(application, deployment.spark_submit_parameters),
            "functions' Python": lambda: _runtimes(clients, prefix, today),
            "resources": lambda: _resources(clients, stacks),
            "old versions": lambda: check_old_versions(clients, database=deployment.warehouse_database),
            "raw objects": lambda: _raw_objects(clients, deployment, now),
            "schedule": lambda: _schedule(stacks, prefix, deployment.schedule),
            "permission to operate": lambda: _operator(clients, caller, deployment),
        }
    )


def _library(deployed: str) -> Finding:
    if deployed == __version__:
        return ok(deployed)
    return failed(f"{deployed} is deployed, and this is {__version__}", "deploy again, or use the deployed version")


def _jars(application: Mapping[str, Any], parameters: str) -> Finding:
    properties = [configuration.get("properties", {}) for configuration in application.get("runtimeConfiguration", [])]
    jars = [names["spark.jars"] for names in properties if "spark.jars" in names]
    jars += re.findall(r"--conf spark\.jars=(\S+)", parameters)
    if not jars:
        return ok("only those of the release; only slackwater doctor --job shows that it has Iceberg on its class path")
    return warning(
        f"every job loads {', '.join(jars)}, and fails if it is missing",
        "run slackwater doctor --job; if the job fails, remove spark.jars from the application, or spark_jars from the "
        "settings",
    )


def _runtimes(clients: Clients, prefix: str, today: date) -> Finding:
    with translated("list the functions"):
        pages = clients("lambda").get_paginator("list_functions").paginate()
        functions = [function for page in pages for function in page["Functions"]]
    runtimes = {
        function["Runtime"]
        for function in functions
        if is_ours(function["FunctionName"], prefix) and "Runtime" in function
    }
    if not runtimes:
        return failed(f"no function is named {prefix}-*", "run slackwater deploy")
    # `date.min` is before any known date, so a runtime that is not known comes first.
    runtime = min(runtimes, key=lambda name: _RUNTIME_ENDS.get(name, date.min))
    remedy = "set lambda_python to a newer version and deploy"
    return supported_until(runtime, _RUNTIME_ENDS.get(runtime), today=today, remedy=remedy)


def _resources(clients: Clients, stacks: Iterable[str]) -> Finding:
    counts = {}
    for name in stacks:
        with translated(f"list the resources of {name}"):
            pages = clients("cloudformation").get_paginator("list_stack_resources").paginate(StackName=name)
            counts[name] = sum(len(page["StackResourceSummaries"]) for page in pages)
    largest = max(counts, key=lambda name: counts[name])
    found = f"at most {counts[largest]} of the {_RESOURCE_LIMIT} that a stack may have ({largest})"
    if counts[largest] < _MANY_RESOURCES:
        return ok(found)
    return warning(found, "divide the project into two, each with a prefix of its own")


def _raw_objects(clients: Clients, deployment: Deployment, now: datetime) -> Finding:
    store = S3ObjectStore(clients("s3"))
    project = read_project(store, deployment.project_uri)
    return check_objects(project, store, raw_bucket=deployment.raw_bucket, now=now)


def _schedule(stacks: Iterable[str], prefix: str, scheduler: str) -> Finding:
    if f"{prefix}-schedule" in set(stacks):
        return ok(f"the stack {prefix}-schedule starts pulls, runs and checks")
    if scheduler == "airflow":
        return ok("an Airflow environment that is not part of the deployment starts pulls, runs and checks")
    return warning(
        "no scheduler is deployed: nothing starts by itself",
        "if no scheduler of your own does it, remove the setting schedule=none and deploy (docs/schedule.md)",
    )


def _operator(clients: Clients, caller: Caller, deployment: Deployment) -> Finding:
    """Check what most commands do: start and follow executions, read the run table, objects and job runs."""
    machines = [
        deployment.pull_machine_arn,
        deployment.monitor_machine_arn,
        deployment.compare_machine_arn,
        deployment.backfill_machine_arn,
    ]
    executions = [f"{machine.replace(':stateMachine:', ':execution:')}:any" for machine in machines]
    buckets = [
        f"arn:{caller.partition}:s3:::{bucket}"
        for bucket in (deployment.raw_bucket, deployment.exchange_bucket, deployment.warehouse_bucket)
    ]
    application = caller.regional_arn("emr-serverless", f"/applications/{deployment.application_id}")
    wanted = {
        "states:StartExecution": machines,
        "states:GetExecutionHistory": executions,
        "dynamodb:Query": [caller.regional_arn("dynamodb", f"table/{deployment.run_table}")],
        "s3:ListBucket": buckets,
        "s3:GetObject": [f"{bucket}/any" for bucket in buckets],
        "emr-serverless:ListJobRuns": [application],
    }
    return check_permissions(clients, caller, wanted)
