"""`slackwater deploy`: deploy the project's stacks."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from slackwater.cli.command import Result, Session, command
from slackwater.cli.options import option
from slackwater.cli.output import print_note, print_text
from slackwater.errors import DefinitionError, InputError
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.client.plan import Plan
    from slackwater.deploy.deploy import DeployResult
    from slackwater.project.project import Project


@command(
    "slackwater deploy",
    "slackwater deploy --project examples/nyc_flights",
    "slackwater deploy --environment prod --yes",
    "slackwater deploy --set outbound_allow=files.partner.example:8443 --set removal_policy=destroy",
    writes=True,
)
def deploy(
    setting: Annotated[
        list[str],
        option(
            "--set",
            metavar="NAME=VALUE",
            default_factory=list,
            text="A setting of infra/settings.py for this deployment. Can be repeated.",
        ),
    ],
    *,
    yes: Annotated[bool, option("--yes", text="Remove definitions without asking.")] = False,
    session: Session,
    environment: Annotated[
        str | None,
        option(metavar="NAME", text="dev, staging or prod. Other commands read it from SLACKWATER_ENVIRONMENT."),
    ] = None,
) -> Result:
    """Build and deploy the project's stacks with the CDK.

    The target is the cloud in AWS_ENDPOINT_URL if it is set, else the local cloud if it runs, else AWS. First the
    command lists what changes, as `slackwater plan` does, and asks before it removes a definition. Stacks that the
    project and the settings no longer need are named. On a terminal, the command asks whether to delete each.
    """
    from slackwater.cli.changes import commands, plan_document, plan_lines
    from slackwater.deploy.deploy import check_credentials, plan_deployment
    from slackwater.deploy.deploy import deploy as deploy_stacks
    from slackwater.project.environments import parse_settings

    workspace = replace(session.workspace, chosen_environment=environment)
    # A wrong setting or definition is reported before any cloud is contacted.
    settings = parse_settings(setting)
    prefix, project = workspace.prefix, workspace.load_project()
    cloud = workspace.connect_cloud()
    # Without region or credentials, nothing is built first.
    print_note(f"deploying to {workspace.target_name(cloud, **check_credentials(workspace))}")
    plan = plan_deployment(project, prefix=prefix)
    if plan:
        if plan.refused:
            raise DefinitionError("\n".join(plan.refused))
        print_note("\n".join(plan_lines(plan)))
        confirm_removals(plan, yes=yes, may_ask=sys.stdin.isatty() and not session.as_json)
    result = deploy_stacks(workspace, settings, on_note=print_note)
    outputs = result.deployment.model_dump()
    document = {
        "cloud": cloud,
        "plan": plan_document(plan) if plan else None,
        "changed": result.changed,
        "obsolete": result.obsolete,
        "seconds": result.seconds,
    }

    def view() -> None:
        print_deployment(result, project)
        again = commands(plan, session.folder)[1 if plan.changes else 0 :] if plan else []
        if again:
            print_text("\n  ".join(("to run the stale days again:", *again)))
        if result.obsolete:
            offer_deletion(result, prefix, may_ask=sys.stdin.isatty())

    if session.as_json and result.obsolete:
        offer_deletion(result, prefix, may_ask=False)
    return Result({**document, "deployment": outputs}, view)


def confirm_removals(plan: Plan, *, yes: bool, may_ask: bool) -> None:
    """Ask whether to remove definitions, if the plan removes any. Raises `InputError` unless the answer is yes."""
    removed = ", ".join(change.file for change in plan.removed)
    if yes or not removed:
        return
    if not may_ask:
        raise InputError(
            f"this removes {removed}, and without a terminal, and with --json, the command cannot ask: add --yes "
            "(slackwater deploy --yes), or restore the files"
        )
    if not typer.confirm(f"Remove {removed}?", err=True):
        raise InputError(f"nothing was deployed: restore {removed} to keep what is deployed")


def print_deployment(result: DeployResult, project: Project) -> None:
    """Print what is deployed, where events are pushed, and commands that may follow, for one source and pipeline."""
    deployed = f"{counted(len(project.sources), 'source')}, {counted(len(project.pipelines), 'pipeline')}"
    print_text(f"deployed: {deployed}" if result.changed else f"no changes: {deployed}", style="green")
    print_text(f"  API: {result.deployment.api_url}")
    for source in list(project.sources.values())[:1]:
        print_text(
            f"  to receive data: slackwater {f'pull {source.source}' if source.pull else f'push {source.source} FILE'}"
        )
    for name, pipeline in list(project.pipelines.items())[:1]:
        what, value = ("an hour", "HOUR") if pipeline.period == "hour" else ("a day", "DATE")
        print_text(f"  to run {what}: slackwater run {project.present_name(name)} --date {value}")


def offer_deletion(result: DeployResult, prefix: str, *, may_ask: bool) -> None:
    """Print what a deletion of each obsolete stack keeps and deletes. Delete a stack if the answer to that is yes."""
    from slackwater.deploy.deploy import stack_deletion

    deletion = stack_deletion()
    for stack in deletion.stacks(prefix):
        if stack.name not in result.obsolete:
            continue
        kept = [f"{resource.type} {resource.name}" for resource in stack.resources if resource.kept]
        deleted = Counter(resource.type for resource in stack.resources if not resource.kept)
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(deleted.items()))
        print_note(
            f"the stack {stack.name} is no longer part of this deployment and goes on costing. Its deletion keeps "
            f"{', '.join(kept) or 'nothing'}, and deletes {counts or 'nothing'}",
            style="yellow",
        )
        problems = list(deletion.problems([stack]))
        for problem in problems:
            print_note(f"  {problem}")
        if problems or not may_ask:
            print_note(f"  to delete it: aws cloudformation delete-stack --stack-name {stack.name}")
        elif typer.confirm(f"Delete the stack {stack.name}?", err=True):
            deletion.delete(stack)
            print_text(f"deleted: {stack.name}", style="green")
