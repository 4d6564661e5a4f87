"""`slackwater deploy`: deploy the project's stacks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from slackwater.cli.options import AsJson, ProjectFolder, examples
from slackwater.cli.output import print_json, print_note, print_text
from slackwater.client.workspace import find_workspace

if TYPE_CHECKING:
    from slackwater.cli.cdk import DeployResult


def register(app: typer.Typer) -> None:
    """Add `deploy`."""
    app.command(
        epilog=examples(
            "slackwater deploy",
            "slackwater deploy --project examples/nyc_flights",
            "slackwater deploy --environment prod",
            "slackwater deploy --set outbound_allow=files.partner.example:8443 --set removal_policy=destroy",
        )
    )(deploy)


def deploy(
    setting: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting of infra/settings.py for this deployment. Can be repeated.",
            default_factory=list,
            show_default=False,
        ),
    ],
    project: ProjectFolder = None,
    environment: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="dev, staging or prod. Other commands read it from SLACKWATER_ENVIRONMENT.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build and deploy the project's stacks with the CDK.

    The target is the cloud in AWS_ENDPOINT_URL if it is set, else the local cloud if it runs, else AWS.
    """
    from slackwater.cli.cdk import deploy as deploy_stacks
    from slackwater.cli.cdk import parse_settings

    workspace = replace(find_workspace(project), chosen_environment=environment)
    # A wrong setting or definition is reported before any cloud is contacted.
    settings = parse_settings(setting)
    environment, prefix = workspace.environment, workspace.prefix
    workspace.load_project()
    cloud = workspace.connect_cloud()
    print_note(f"deploying to {cloud}" + (f", environment {environment}, prefix {prefix}" if environment else ""))
    result = deploy_stacks(workspace, settings)
    if as_json:
        outputs = result.deployment.model_dump()
        print_json({"cloud": cloud, "changed": result.changed, "seconds": result.seconds, "deployment": outputs})
    else:
        print_deployment(result)


def print_deployment(result: DeployResult) -> None:
    """Print which stacks a deployment changed."""
    summary = f"deployed: {', '.join(result.changed)}" if result.changed else "no changes"
    print_text(f"{summary} (API: {result.deployment.api_url})", style="green")
