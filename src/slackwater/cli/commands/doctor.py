"""`slackwater doctor`: check an account before and after a deployment."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

from slackwater.cli.command import Result, Session, command
from slackwater.cli.options import option
from slackwater.cli.output import print_note, print_table


@command("slackwater doctor", "slackwater doctor --job", "slackwater doctor --json")
def doctor(
    job: Annotated[
        bool,
        option("--job", text="Also run a Spark job that does what a stage of a run needs, through Step Functions."),
    ] = False,
    *,
    session: Session,
) -> Result:
    """Check the account, and the deployment if there is one.

    Checks region, credentials, quotas, the CDK bootstrap, permissions and versions. All checks only read, except the
    job. The exit code is 1 if a check fails. A check that AWS does not answer is shown as `not checked`.
    """
    print_note(f"checking {session.workspace.connect_cloud()}")
    from slackwater.deploy.doctor import run_doctor

    findings = run_doctor(session.workspace, job=job)
    rows = [[name, finding.status, finding.found, finding.remedy] for name, finding in findings.items()]
    return Result(
        {"checks": [{"check": name, **asdict(finding)} for name, finding in findings.items()]},
        partial(print_table, ["check", "status", "found", "remedy"], rows),
        exit_code=1 if any(finding.status == "failed" for finding in findings.values()) else 0,
    )
