"""`slackwater destroy`: delete the project's stacks."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from slackwater.cli.command import INTERRUPTED, Result, Session, command
from slackwater.cli.options import option
from slackwater.cli.output import print_note, print_table, print_text
from slackwater.errors import CloudError, InputError
from slackwater.formatting import counted
from slackwater.progress import ProgressBoard, TaskState


@command(
    "slackwater destroy", "slackwater destroy --environment staging", "slackwater destroy --yes --json", writes=True
)
def destroy(
    yes: Annotated[bool, option("--yes", text="Delete without asking.")] = False,
    *,
    session: Session,
    environment: Annotated[
        str | None, option(metavar="NAME", text="dev, staging or prod. Default: SLACKWATER_ENVIRONMENT.")
    ] = None,
) -> Result:
    """Delete the project's stacks.

    First it lists what is kept and what is deleted, and asks. With the setting removal_policy=retain, the default, the
    buckets, the DynamoDB tables and the queues of events are kept. Nothing is deleted while a stack has termination
    protection, a Spark job runs, or the deletion would lose objects or messages, and with credentials for another
    account or region than cdk.json has.
    """
    from slackwater.deploy.deploy import check_credentials, stack_deletion, stop_applications

    workspace = replace(session.workspace, chosen_environment=environment)
    prefix = workspace.prefix
    cloud = workspace.connect_cloud()
    check_credentials(workspace)
    deletion = stack_deletion()
    stacks = deletion.stacks(prefix)
    if not stacks:
        raise InputError(
            f"nothing is deployed with the prefix {prefix!r} in {cloud}: check SLACKWATER_PREFIX, "
            "SLACKWATER_ENVIRONMENT, AWS_PROFILE and AWS_REGION"
        )
    resources = [resource for stack in stacks for resource in stack.resources]
    kept = [resource for resource in resources if resource.kept]
    if not session.as_json:
        print_text(f"{prefix} in {cloud}: {counted(len(stacks), 'stack')}", style="bold")
        if kept:
            print_table(
                ("kept", "name", "stack"), [(resource.type, resource.name, resource.stack) for resource in kept]
            )
        deleted = Counter(resource.type for resource in resources if not resource.kept)
        print_table(("deleted", "number"), sorted(deleted.items()))
    if problems := list(deletion.problems(stacks)):
        raise CloudError("nothing was deleted:\n" + "\n".join(f"  {problem}" for problem in problems))
    if not yes:
        if session.as_json or not sys.stdin.isatty():
            raise InputError("--yes is missing: without a terminal, and with --json, the command cannot ask")
        if typer.prompt("Type the prefix to delete these stacks", err=True).strip() != prefix:
            raise InputError(f"nothing was deleted: the answer was not {prefix}")
    stop_applications(resources)
    try:
        with ProgressBoard() as progress:
            for stack in stacks:
                progress.update(stack.name)
                deletion.delete(stack)
                progress.update(stack.name, TaskState.DONE)
    except KeyboardInterrupt as error:
        print_note(f"The deletion of {stack.name} continues. The same command deletes the rest", style="yellow")
        raise typer.Exit(INTERRUPTED) from error
    summary = f"deleted: {counted(len(stacks), 'stack')}; kept: {counted(len(kept), 'resource')}"
    document = {"deleted": [stack.name for stack in stacks], "kept": [resource._asdict() for resource in kept]}
    return Result(document, partial(print_text, summary, style="green"))
