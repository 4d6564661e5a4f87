"""Run both pipelines of this example in a local cloud of its own, and print what they have written.

    python -m examples.all_steps.run

Everything is in `.slackwater/all_steps/`, which is emptied first.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3

from examples.all_steps.database import PASSWORD, USER, execute, running_database
from examples.all_steps.inputs import DATABASE, DAY, files, orders, write_pages
from examples.nyc_flights.demo import Parts, run_days
from examples.nyc_flights.partner import PartnerServer
from slackwater import Client
from slackwater.cli.commands.deploy import print_deployment
from slackwater.cli.commands.push import print_push_totals
from slackwater.cli.output import print_note, print_table, print_text
from slackwater.client.workspace import Workspace
from slackwater.deploy.deploy import deploy
from slackwater.errors import SlackwaterError
from slackwater.local import cloud

EXAMPLE = Path(__file__).resolve().parent
ROOT = EXAMPLE.parents[1]
FOLDER = ROOT / ".slackwater" / "all_steps"
PACKAGE = EXAMPLE / "step_package"
PIPELINES = ("order_lines", "category_sales")
"""The second one reads the table of the first one."""
SOURCE = "shop_orders"
API_PATH = "/v1"
SECRET = "all-steps/database"  # noqa: S105 - its name
# A pipeline with a `url` needs a network. The local cloud only looks at the settings.
_SETTINGS = {
    "schedule": "none",
    "collect_minutes": "0",
    "job_subnets": "subnet-0123456789abcdef0",
    "job_security_groups": "sg-0123456789abcdef0",
    "step_packages": str(PACKAGE),
}
_API, _DATABASE = "http://127.0.0.1:8716", "127.0.0.1:8717"


def copy_project(folder: Path, *, api_port: int, database_port: int) -> None:
    """Copy the definitions into a folder, with the ports of the API and of the database."""
    for name in ("sources", "pipelines"):
        shutil.copytree(EXAMPLE / name, folder / name, dirs_exist_ok=True)
    for name in PIPELINES:
        path = folder / "pipelines" / f"{name}.yaml"
        text = path.read_text(encoding="utf-8").replace(_API, f"http://127.0.0.1:{api_port}")
        path.write_text(text.replace(_DATABASE, f"127.0.0.1:{database_port}"), encoding="utf-8")


def store_inputs(client_of: Callable[[str], Any], files_prefix: str) -> None:
    """Store the project's files and the secret. `client_of` returns boto3's client of a service."""
    bucket, _, prefix = files_prefix.removeprefix("s3://").partition("/")
    for path, content in files().items():
        client_of("s3").put_object(Bucket=bucket, Key=prefix + path, Body=content)
    secret = json.dumps({"username": USER, "password": PASSWORD})
    client_of("secretsmanager").create_secret(Name=SECRET, SecretString=secret)


def play(folder: Path, parts: Parts) -> None:
    """Run every part in an empty folder. Raises `SlackwaterError` at the first failure."""
    write_pages(folder / "api")
    with ExitStack() as running:
        with parts.part("Start the API, the database and a local cloud, and deploy both pipelines"):
            api = running.enter_context(PartnerServer(folder / "api", path=API_PATH))
            port = running.enter_context(running_database())
            execute(port, DATABASE)
            copy_project(folder / "project", api_port=api.port, database_port=port)
            workspace = Workspace(root=folder, project=folder / "project")
            os.environ.update(cloud.up(folder).environment())
            print_deployment(deploy(workspace, _SETTINGS), workspace.load_project())
        client = running.enter_context(Client.open(workspace))
        prefix = client.connection.deployment.files_prefix
        with parts.part("Store the files and the secret, and push the orders"):
            store_inputs(boto3.client, prefix)
            print_push_totals(client.push(SOURCE, list(orders())))
        for pipeline in PIPELINES:
            with parts.part(f"Run {pipeline}"):
                run_days(client, pipeline, [DAY])
        with parts.part("What the load steps have written"):
            exported = [item.uri.removeprefix(prefix) for item in client.store.list(f"{prefix}exports/")]
            print_text("\n".join(exported))
            rows = execute(port, ["SELECT * FROM reports.category_sales ORDER BY category"])
            columns = ("date", "category", "orders", "returned", "items", "net", "largest", "target", "loaded_at")
            print_table(columns, [list(row) for row in rows], title="reports.category_sales in PostgreSQL")
    print_text("")
    parts.print_seconds()


def main() -> int:
    """Run the example; return its exit code. Its cloud is stopped at the end, and its files stay."""
    cloud.down(FOLDER)  # of a run that was killed
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / ".slackwater").mkdir(parents=True)
    (FOLDER / ".slackwater" / "jars").symlink_to(ROOT / ".slackwater" / "jars")
    try:
        play(FOLDER, Parts())
    except SlackwaterError as error:
        print_note(f"error: {error}", style="red")
        return error.exit_code
    finally:
        cloud.down(FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
