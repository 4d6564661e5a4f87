"""A scenario of late data with a scripted partner, in a local cloud of its own. `make scenario` runs it.

Files change, disappear, shrink, and arrive late. Each run begins with an empty cloud in `.slackwater/scenario/`, so its
numbers are the same each time. With `--json FILE`, it also writes what each part did as a document.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from examples.late_orders.feed import ORDERS, Feed
from examples.nyc_flights.demo import Parts, run_days
from examples.nyc_flights.partner import PartnerServer
from slackwater import Client
from slackwater.cli.commands.deploy import print_deployment
from slackwater.cli.commands.monitor import (
    monitor_document,
    monitor_pipeline,
    print_day_outcomes,
    print_decisions,
)
from slackwater.cli.commands.pull import print_pull_totals, pull_source
from slackwater.cli.main import run as run_command
from slackwater.cli.output import print_note, print_table, print_text, to_json_value
from slackwater.client.days.costs import DayCost
from slackwater.client.workspace import Workspace
from slackwater.deploy.deploy import deploy
from slackwater.errors import InputError, RunFailed, SlackwaterError
from slackwater.local import cloud

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".slackwater" / "scenario"
"""Folder of the cloud, of the copy of the project, and of the states of the partner's files."""
SOURCE, DAILY, WEEKLY = "orders", "daily_orders", "weekly_orders"
MONDAY, TUESDAY, WEDNESDAY = DAYS = (date(2024, 3, 4), date(2024, 3, 5), date(2024, 3, 6))
"""The days that are published."""
THURSDAY, FRIDAY = "2024-03-07", "2024-03-08"
"""The days as of which the parts happen. The pipelines check the three days before."""
MORE, FEWER, LATE = 45, 10, 6
"""Orders of the file that grows, of the file that shrinks, and of each file that arrives late."""
LATE_HOUR = 18
"""The late files have orders from this hour on that no other file has."""
WITHOUT_CANCELLED = ("FROM orders\n", "FROM orders\n        WHERE status <> 'cancelled'\n")
"""The edit of `daily_orders` that makes its new definition."""
METRICS = ("orders", "items", "revenue_cents")
_ROWS = f"SELECT date, product, {', '.join(METRICS)} FROM {{table}} ORDER BY date, product"  # noqa: S608
_TOTALS = f"SELECT date, {', '.join(f'sum({name})' for name in METRICS)} FROM {{table}} GROUP BY date ORDER BY date"  # noqa: S608
# What a scenario leaves in its folder.
_OURS = {".slackwater", "cdk.out", "events", "partner", "project"}
# `pull.url` in `sources/orders.yaml`.
_URL = "http://127.0.0.1:8714/orders"

Documents = dict[str, dict[str, Any]]
"""What each part did, by its name."""


@dataclass
class Scenario:
    """The parts of the scenario. Each returns a document of what it did."""

    workspace: Workspace
    client: Client
    feed: Feed
    partner: PartnerServer
    parts: Parts
    documents: Documents = field(default_factory=dict)

    def part(self, name: str, title: str, play: Callable[[], dict[str, Any]]) -> None:
        """Run a part, and print what is published after it. It begins with the partner's files of the part before."""
        with self.parts.part(title):
            self.feed.begin(name)
            self.partner.folder = self.feed.state
            document = play()
            self.documents[name] = {"files": str(self.feed.state), **document, **self._published()}

    def publish(self) -> dict[str, Any]:
        """Publish the days and their week."""
        pulled = self._pull(THURSDAY)
        run_days(self.client, DAILY, [day.isoformat() for day in DAYS])
        run_days(self.client, WEEKLY, [WEDNESDAY.isoformat()])
        return {"pull": pulled, "weekly_rows": self.client.query(_ROWS.format(table=WEEKLY)).rows}

    def lose_rows(self) -> dict[str, Any]:
        """A file of Tuesday is removed, one of Wednesday shrinks: a person releases one day and keeps the other."""
        removed, shrunk = self.feed.remove(TUESDAY, 18), self.feed.write(WEDNESDAY, 6, count=FEWER)
        print_text(f"{removed} is removed, with its {ORDERS} orders; {shrunk} is changed: {ORDERS} -> {FEWER} orders")
        pulled, monitored = self._pull(THURSDAY), self._monitor(DAILY, THURSDAY)
        held = self._days_on_hold()
        tuesday, wednesday = (("--date", day.isoformat()) for day in (TUESDAY, WEDNESDAY))
        self._command("run", DAILY, *tuesday, code=1)
        self._command("late", "release", DAILY, *tuesday, "--reason", "the shop withdrew the file")
        self._command("late", "keep", DAILY, *wednesday, "--reason", "the file was cut off")
        return {"pull": pulled, "monitor": monitored, "held": held, "held_after": self._days_on_hold()}

    def change(self) -> dict[str, Any]:
        """A file of Monday gets more orders: Monday and then the week run again. Nobody is asked about Wednesday."""
        file = self.feed.write(MONDAY, 12, count=MORE)
        print_text(f"{file} is changed: {ORDERS} -> {MORE} orders")
        pulled, daily, weekly = self._pull(THURSDAY), self._monitor(DAILY, THURSDAY), self._monitor(WEEKLY, THURSDAY)
        rows = self.client.query(_ROWS.format(table=WEEKLY)).rows
        held = [day.date for day in self.client.days_on_hold()]
        return {"pull": pulled, "monitor": daily, "weekly": weekly, "weekly_rows": rows, "held_after": held}

    def arrive_after_the_window(self) -> dict[str, Any]:
        """A day later, a file of Monday arrives, which is before the window by now: a person runs Monday."""
        file = self.feed.write(MONDAY, LATE_HOUR, first=ORDERS, count=LATE, name="late")
        print_text(f"{file} arrives, with {LATE} orders; as of {FRIDAY}, {MONDAY} is before the window of three days")
        pulled, monitored = self._pull(FRIDAY), self._monitor(DAILY, FRIDAY)
        self._command("run", DAILY, "--date", MONDAY.isoformat())
        return {"pull": pulled, "monitor": monitored}

    def define(self) -> dict[str, Any]:
        """A new definition is deployed, and a file of Tuesday arrives: the message names both causes."""
        pipeline = self.workspace.project / "pipelines" / f"{DAILY}.yaml"
        pipeline.write_text(pipeline.read_text(encoding="utf-8").replace(*WITHOUT_CANCELLED), encoding="utf-8")
        print_text(f"{DAILY} is edited: {WITHOUT_CANCELLED[1].split(maxsplit=2)[2].strip()}")
        deploy_project(self.workspace)
        file = self.feed.write(TUESDAY, LATE_HOUR, first=ORDERS, count=LATE, name="late")
        print_text(f"{file} arrives, with {LATE} orders")
        return {"pull": self._pull(FRIDAY), "monitor": self._monitor(DAILY, FRIDAY)}

    def look_back(self) -> dict[str, Any]:
        """Print the versions of Tuesday, and what everything has cost."""
        self._command("history", DAILY, "--date", TUESDAY.isoformat())
        self._command("cost")
        history = self.client.history(DAILY, TUESDAY)
        costs = [cost_document(day) for day in self.client.cost()]
        return {"history": [version.model_dump(mode="json") for version in history], "cost": costs}

    def _published(self) -> dict[str, Any]:
        """Print the totals of the published days; return these and the rows of the days."""
        totals = self.client.query(_TOTALS.format(table=DAILY)).rows
        print_text("")
        print_table(("date", *METRICS), totals, title=f"{DAILY}, published now")
        return {"totals": totals, "rows": self.client.query(_ROWS.format(table=DAILY)).rows}

    def _pull(self, as_of: str) -> dict[str, Any]:
        totals = pull_source(self.client, SOURCE, as_of=as_of)
        print_pull_totals(totals, self.client.project)
        return dict(totals)

    def _monitor(self, pipeline: str, as_of: str) -> dict[str, Any]:
        return show_monitoring(self.client, pipeline, as_of)

    def _days_on_hold(self) -> list[dict[str, Any]]:
        self._command("late")
        return [day.model_dump(mode="json", include={"date", "hold"}) for day in self.client.days_on_hold()]

    def _command(self, *arguments: str, code: int = 0) -> None:
        show_command(self.workspace, *arguments, code=code)


def show_command(workspace: Workspace, *arguments: str, code: int = 0) -> None:
    """Print a command of the command line, and run it. Raises `RunFailed` if it ends with another exit code."""
    shown = " ".join(f'"{word}"' if " " in word else word for word in arguments)
    print_text(f"\n$ slackwater {shown}", style="bold")
    ended = run_command([*arguments, "--project", str(workspace.project)])
    if ended != code:
        raise RunFailed(f"slackwater {shown}: its exit code is {ended}, not {code}")


def show_monitoring(client: Client, pipeline: str, as_of: str) -> dict[str, Any]:
    """Monitor a pipeline, and print the decisions and what they changed; return its document. Raises `RunFailed`."""
    result = monitor_pipeline(client, pipeline, as_of, show_report=print_decisions)
    print_day_outcomes(result)
    if result.failure:
        raise RunFailed(result.failure)
    return monitor_document(result)


def cost_document(day: DayCost) -> dict[str, Any]:
    """Return the sums of a day as `slackwater cost` prints them, and the costs that they add up."""
    sums = {name: value for name, value in vars(day).items() if name not in {"records", "compared"}}
    runs = [
        {
            "attempt": item.run.attempt,
            "started_at": item.started_at.isoformat(),
            "rows": item.run.rows,
            "merged": any(stage.reference.is_merged for stage in item.stages),
            "cost": item.cost and item.cost.model_dump(mode="json"),
            "estimated_usd": item.estimated_usd,
        }
        for item in day.records
    ]
    comparisons = [
        {"before": item.before, "after": item.after, "cost": item.cost and item.cost.model_dump(mode="json")}
        for item in day.compared
    ]
    return {**sums, "of_runs": runs, "of_comparisons": comparisons}


def empty(folder: Path) -> None:
    """Remove what an earlier scenario has left in the folder. Raises `InputError` if it has other files."""
    if folder.exists():
        if others := sorted({item.name for item in folder.iterdir()} - _OURS):
            raise InputError(f"--folder: {folder} has other files, such as {others[0]}: name a new folder")
        cloud.down(folder)  # of a scenario that was killed
        shutil.rmtree(folder)


def copy_project(folder: Path, example: Path) -> Workspace:
    """Copy the definitions of an example, and return the workspace with a cloud of its own."""
    (folder / ".slackwater").mkdir(parents=True)
    (folder / ".slackwater" / "jars").symlink_to(ROOT / ".slackwater" / "jars")
    project = folder / "project"
    for name in ("sources", "pipelines"):
        shutil.copytree(example / name, project / name)
    return Workspace(root=folder, project=project)


def set_partner(project: Path, url: str) -> None:
    """Write the URL of the partner's server into the definition of the source."""
    source = project / "sources" / f"{SOURCE}.yaml"
    source.write_text(source.read_text(encoding="utf-8").replace(_URL, url), encoding="utf-8")


def deploy_project(workspace: Workspace) -> None:
    """Deploy the project. No schedule and no arrival starts anything: the scenario starts everything itself.

    Jobs run one after the other: a driver that has run a job runs the next one in a third of the processor time.
    """
    print_deployment(
        deploy(workspace, {"schedule": "none", "collect_minutes": "0", "concurrent_runs": "1"}),
        workspace.load_project(),
    )


def scenario(folder: Path) -> Documents:
    """Run every part in an empty folder; return their documents. Raises `SlackwaterError` at the first failure."""
    parts = Parts()
    empty(folder)
    feed = Feed.make(folder / "partner", "prepared", DAYS)
    with PartnerServer(feed.state, path="/orders") as partner:
        with parts.part("Start a local cloud, and deploy the pipelines"):
            workspace = copy_project(folder, Path(__file__).parent)
            set_partner(workspace.project, partner.url)
            os.environ.update(cloud.up(folder).environment())
            deploy_project(workspace)
        # After the start of the cloud, because boto3 reads the endpoint from the environment.
        with Client.open(workspace) as client:
            played = Scenario(workspace, client, feed, partner, parts)
            play(played)
    print_text("")
    parts.print_seconds()
    return played.documents


def play(played: Scenario) -> None:
    """Play the parts in order."""
    played.part("published", f"Publish three days of {DAILY}, and {WEEKLY}", played.publish)
    title = f"The shop removes a file of {TUESDAY}, and a file of {WEDNESDAY} shrinks"
    played.part("lost", title, played.lose_rows)
    played.part("changed", f"The shop changes a file of {MONDAY}", played.change)
    played.part("older", "Data of a day before the window arrives", played.arrive_after_the_window)
    played.part("defined", "A new definition is deployed, and late data arrives", played.define)
    with played.parts.part("History and cost"):
        played.documents["looked_back"] = played.look_back()


def main() -> int:
    """Run the scenario; return its exit code."""
    return play_command(scenario, FOLDER, __doc__)


def play_command(scenario: Callable[[Path], Documents], folder: Path, description: str | None) -> int:
    """Run a scenario with the options of the command line; return the exit code.

    `folder` is the default of `--folder`. The cloud of the scenario is stopped at the end, and its files stay.
    """
    parser = argparse.ArgumentParser(description=description.partition("\n")[0] if description else None)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the documents of the parts")
    parser.add_argument(
        "--folder", type=Path, default=folder, help="folder that is emptied first (default: %(default)s)"
    )
    arguments = parser.parse_args()
    try:
        documents = scenario(arguments.folder.resolve())
        if arguments.json:
            arguments.json.write_text(json.dumps(to_json_value(documents), indent=2), encoding="utf-8")
    except SlackwaterError as error:
        print_note(f"error: {error}", style="red")
        return error.exit_code
    except KeyboardInterrupt:
        print_note("interrupted", style="yellow")
        return 130
    finally:
        cloud.down(arguments.folder.resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
