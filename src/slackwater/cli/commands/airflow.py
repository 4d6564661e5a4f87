"""`slackwater airflow`: Airflow on this machine, with the project's DAGs."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import Annotated

from slackwater.cli.command import ProjectFolder, command_group, epilog
from slackwater.cli.options import option
from slackwater.cli.output import print_text
from slackwater.client.workspace import find_workspace
from slackwater.errors import CloudError, NotDeployed
from slackwater.progress import ProgressBoard, TaskState

group = command_group("airflow", "Airflow on this machine, with the project's DAGs.")


@group.command(epilog=epilog("slackwater airflow up", "slackwater airflow up --port 8080"))
def up(
    port: Annotated[
        int | None, option(metavar="PORT", min=1, max=65535, text="The port of the web interface. Default: a free one.")
    ] = None,
    project: ProjectFolder = None,
) -> None:
    """Run Airflow with the project's DAGs and the local cloud, until Ctrl-C.

    Deploy with --set schedule=airflow: then checks that arriving data starts are DAG runs too. With EventBridge
    Scheduler, the default, all tasks would start twice.
    """
    from slackwater.deploy import airflow
    from slackwater.local import cloud

    workspace = find_workspace(project)
    home = airflow.airflow_home(workspace)
    local_cloud = cloud.status(workspace.root)
    if local_cloud is None:
        raise NotDeployed("the local cloud does not run: slackwater local up, then slackwater deploy")
    home.write_schedule(workspace.load_project())
    url = airflow.free_url(port)
    machines = f"arn:aws:states:{local_cloud.region}:{local_cloud.account}:stateMachine:{workspace.prefix}-"
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a shell may have made it ignore SIGINT
        signal.signal(number, signal.default_int_handler)
    environment = home.environment(url, prefix=machines, cloud=local_cloud.environment())
    with ExitStack() as stack:
        with ProgressBoard() as progress:
            progress.update("Airflow")
            process = stack.enter_context(airflow.started(home, environment))
            progress.update("Airflow", TaskState.DONE)
        print_text(f"Airflow runs at {url}", style="green")
        if password := home.password:
            print_text(f"  user admin, password {password}")
        print_text(f"  log {home.log}")
        print_text("Ctrl-C stops it.")
        process.wait()
        raise CloudError(f"Airflow has ended with exit code {process.returncode}: see {home.log}")
