"""The deployed Spark application, which AWS changes and deletes only while it is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slackwater.aws.failures import translated, unless_refused
from slackwater.errors import CloudError

_TYPE = "AWS::EMRServerless::Application"
_STOPPED = ("CREATED", "STOPPED", "TERMINATED")
_UNFINISHED = ("SUBMITTED", "PENDING", "SCHEDULED", "RUNNING", "QUEUED", "CANCELLING")
_STOP_SECONDS, _PAUSE = 300, 2.0
# Jobs in an error message; a queue may hold hundreds.
_LISTED = 20


@dataclass(frozen=True, kw_only=True)
class SparkApplications:
    """The Spark applications of a stack, over a CloudFormation and an EMR Serverless client."""

    cloudformation: Any
    emr: Any

    def changed(self, stack: str, template: Mapping[str, Any]) -> list[str]:
        """Return the ids of the stack's applications that a deployment of `template` would change or delete.

        This compares the properties in both templates. CloudFormation calls UpdateApplication for every change of one,
        also of a tag. Raises `CloudError`.
        """
        with translated(f"read the template of stack {stack}"):
            # CloudFormation's answer for a stack that does not exist
            found = unless_refused("ValidationError", lambda: self.cloudformation.get_template(StackName=stack))
            deployed = found["TemplateBody"].get("Resources", {}) if found else {}
            changed = [
                name
                for name, resource in deployed.items()
                if resource["Type"] == _TYPE
                and template["Resources"].get(name, {}).get("Properties") != resource["Properties"]
            ]
            resources = [
                self.cloudformation.describe_stack_resource(StackName=stack, LogicalResourceId=name) for name in changed
            ]
        return [resource["StackResourceDetail"]["PhysicalResourceId"] for resource in resources]

    def stop(self, application: str, *, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Stop an application that has nothing to do. Return whether it ran.

        Raises `CloudError` that lists the jobs of an application that runs or queues any, or when it does not stop.
        """
        if self._state(application) in _STOPPED:
            return False
        with translated(f"list the jobs of the Spark application {application}"):
            pages = self.emr.get_paginator("list_job_runs").paginate(
                applicationId=application, states=list(_UNFINISHED)
            )
            jobs = [f"  {job.get('name', job['id'])} ({job['state']})" for page in pages for job in page["jobRuns"]]
        if jobs:
            more = [f"  and {len(jobs) - _LISTED} more"] if len(jobs) > _LISTED else []
            raise CloudError(
                f"nothing was changed: AWS changes and deletes the Spark application {application} only while it is "
                "stopped, and it has unfinished jobs:\n" + "\n".join([*jobs[:_LISTED], *more]) + "\n"
                "Repeat the command when they have ended, or stop their executions in Step Functions first"
            )
        with translated(f"stop the Spark application {application}"):
            self.emr.stop_application(applicationId=application)
        deadline = time.monotonic() + _STOP_SECONDS
        while self._state(application) not in _STOPPED:
            if time.monotonic() > deadline:
                raise CloudError(
                    f"nothing was changed: the Spark application {application} has not stopped within "
                    f"{_STOP_SECONDS} s: repeat the command"
                )
            sleep(_PAUSE)
        return True

    def _state(self, application: str) -> str:
        with translated(f"read the state of the Spark application {application}"):
            found = unless_refused(
                "ResourceNotFoundException", lambda: self.emr.get_application(applicationId=application)
            )
        return str(found["application"]["state"]) if found else "TERMINATED"
