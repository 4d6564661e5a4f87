"""`slackwater deploy`: the stacks, to the cloud that is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slackwater.cli.context import find_place, load, reach_cloud
from slackwater.cli.options import AsJson, ProjectFolder, examples
from slackwater.cli.output import document, remark, say

if TYPE_CHECKING:
    from slackwater.cli.deploy import Deployed


def register(app: typer.Typer) -> None:
    """Add `deploy`."""
    app.command(
        epilog=examples(
            "slackwater deploy",
            "slackwater deploy --project examples/nyc_flights",
            "slackwater deploy --set outbound_allow=files.partner.example:8443 --set removal_policy=destroy",
        )
    )(deploy)


def deploy(
    setting: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting of infra/settings.py for this deployment; can be given again.",
            default_factory=list,
            show_default=False,
        ),
    ],
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """Build and deploy the project's stacks with the CDK.

    They go to the cloud that AWS_ENDPOINT_URL names, else to the local cloud if it runs, else to AWS.
    """
    place = find_place(project)
    load(place)
    cloud = reach_cloud(place)
    remark(f"deploying to {cloud}")
    from slackwater.cli.deploy import deploy as deploy_stacks

    deployed = deploy_stacks(place.root, project=place.project, settings=setting)
    if as_json:
        outputs = deployed.deployment.model_dump()
        document({"cloud": cloud, "changed": deployed.changed, "seconds": deployed.seconds, "deployment": outputs})
    else:
        show(deployed)


def show(deployed: Deployed) -> None:
    """Print what was deployed."""
    what = f"deployed: {', '.join(deployed.changed)}" if deployed.changed else "nothing had changed"
    say(f"{what} (the API: {deployed.deployment.api_url})", style="green")
