"""Checks an account before and after a deployment."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from slackwater.aws.clients import client
from slackwater.aws.deployment import stack_states
from slackwater.client.workspace import Workspace
from slackwater.deploy import check_account as account
from slackwater.deploy import check_deployment as deployment
from slackwater.deploy.check_job import check_job
from slackwater.deploy.finding import Findings, failed, not_checked, run_checks
from slackwater.errors import NotDeployed, SlackwaterError
from slackwater.progress import ProgressBoard, TaskState


def run_doctor(workspace: Workspace, *, job: bool) -> Findings:
    """Run all checks that apply."""
    caller, findings = account.check_caller(client)
    if caller is None:
        return findings
    prefix, deployed = workspace.prefix, None
    states: dict[str, str] = {}
    try:
        states = stack_states(client("cloudformation"), prefix=prefix)
        findings["stacks"] = deployment.check_stacks(states, prefix)
        if states:
            deployed = deployment.read_deployed(client, prefix)
        else:
            findings |= run_checks({"leftovers": lambda: account.check_leftovers(client, prefix)})
    except NotDeployed as error:
        findings["outputs"] = failed(str(error), "run slackwater deploy")
    except SlackwaterError as error:
        findings["deployment"] = not_checked(str(error))
    vcpu = deployed.maximum_vcpu if deployed else account.NEW_ACCOUNT_VCPU
    findings |= account.check_account(client, caller, qualifier=workspace.bootstrap_qualifier, needed_vcpu=vcpu)
    if deployed is None:
        return findings | ({"job": not_checked("it needs a complete deployment")} if job else {})
    findings |= deployment.check_deployment(
        client, caller, deployed, stacks=states, prefix=prefix, now=datetime.now(UTC)
    )
    if not job:
        return findings | {"job": not_checked("run slackwater doctor --job")}
    with ProgressBoard() as progress:
        check = partial(
            check_job, client, deployed.deployment, on_state=lambda state: progress.update("job", note=state)
        )
        findings |= run_checks({"job": check})
        progress.update("job", TaskState.DONE)
    return findings
