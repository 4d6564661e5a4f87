"""`slackwater doctor`: check an account before and after a deployment."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from slackwater.cli.command import Result, Session, command
from slackwater.cli.output import print_note, print_table
from slackwater.cli.progress import ProgressBoard, TaskState
from slackwater.client.workspace import Workspace
from slackwater.errors import NotDeployed, SlackwaterError

if TYPE_CHECKING:
    from slackwater.deploy.finding import Findings


@command("slackwater doctor", "slackwater doctor --job", "slackwater doctor --json")
def doctor(
    job: Annotated[
        bool,
        typer.Option(
            "--job", help="Also run a Spark job that does what a stage of a run needs, through Step Functions."
        ),
    ] = False,
    *,
    session: Session,
) -> Result:
    """Check the account, and the deployment if there is one.

    Checks region, credentials, quotas, the CDK bootstrap, permissions and versions. All checks only read, except the
    job. The exit code is 1 if a check fails. A check that AWS does not answer is shown as `not checked`.
    """
    print_note(f"checking {session.workspace.connect_cloud()}")
    findings = run_doctor(session.workspace, job=job)
    rows = [[name, finding.status, finding.found, finding.remedy] for name, finding in findings.items()]
    return Result(
        {"checks": [{"check": name, **asdict(finding)} for name, finding in findings.items()]},
        partial(print_table, ["check", "status", "found", "remedy"], rows),
        exit_code=1 if any(finding.status == "failed" for finding in findings.values()) else 0,
    )


def run_doctor(workspace: Workspace, *, job: bool) -> Findings:
    """Run all checks that apply."""
    from slackwater.aws.clients import client
    from slackwater.aws.deployment import stack_states
    from slackwater.deploy import check_account as account
    from slackwater.deploy import check_deployment as deployment
    from slackwater.deploy.check_job import check_job
    from slackwater.deploy.finding import failed, not_checked, run_checks

    caller, findings = account.check_caller(client)
    if caller is None:
        return findings
    prefix, deployed, today = workspace.prefix, None, datetime.now(UTC).date()
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
    findings |= deployment.check_deployment(client, caller, deployed, stacks=states, prefix=prefix, today=today)
    if not job:
        return findings | {"job": not_checked("run slackwater doctor --job")}
    with ProgressBoard() as progress:
        check = partial(
            check_job, client, deployed.deployment, on_state=lambda state: progress.update("job", note=state)
        )
        findings |= run_checks({"job": check})
        progress.update("job", TaskState.DONE)
    return findings
