"""`slackwater plan`: what `slackwater deploy` would change."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from slackwater.cli.command import Result, Session, command
from slackwater.cli.options import option
from slackwater.cli.output import print_note
from slackwater.errors import NotDeployed


@command("slackwater plan", "slackwater plan --environment prod", "slackwater plan --json")
def plan(
    *,
    session: Session,
    environment: Annotated[
        str | None, option(metavar="NAME", text="dev, staging or prod. Default: SLACKWATER_ENVIRONMENT.")
    ] = None,
) -> Result:
    """List what `slackwater deploy` would change, and change nothing.

    Lists the definitions that are added, changed and removed, the published days that become stale, and what a removed
    definition leaves. Settings and the code of steps are not compared. Exits with 1 if `slackwater deploy` would refuse
    a definition, because it does not fit the stored data.
    """
    from slackwater.cli.changes import commands, plan_document, plan_lines
    from slackwater.deploy.deploy import check_credentials, plan_deployment

    workspace = replace(session.workspace, chosen_environment=environment)
    project = workspace.load_project()
    cloud = workspace.connect_cloud()
    target = workspace.target_name(cloud, **check_credentials(workspace))
    print_note(f"comparing with {target}")
    found = plan_deployment(project, prefix=workspace.prefix)
    if found is None:
        raise NotDeployed("the deployed project has the format of another version of slackwater: run slackwater deploy")
    lines = plan_lines(found)
    is_ready = not (found.refused or found.lacking)
    if is_ready and (to_run := commands(found, session.folder, environment=environment)):
        label = "to apply:" if found.changes else "to run the stale days again:"
        lines += [label, *(f"  {line}" for line in to_run)]
    document = {"target": target, **plan_document(found)}
    return Result(document, "\n".join(lines), exit_code=1 if found.refused else 0)
