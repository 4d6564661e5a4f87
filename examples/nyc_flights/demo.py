"""The demo: processes real data, with late data, in the local cloud. `make demo` runs it.

It can be run again: no part repeats what an earlier run has already done.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from examples.nyc_flights.feed import Feed, make_feed
from examples.nyc_flights.partner import PartnerServer
from slackwater import Client
from slackwater.cli.commands.deploy import print_deployment
from slackwater.cli.commands.monitor import monitor_pipeline, print_day_outcomes, print_decisions
from slackwater.cli.commands.pull import print_pull_totals, pull_source
from slackwater.cli.commands.push import print_push_totals
from slackwater.cli.commands.run import format_breakdown
from slackwater.cli.output import print_note, print_table, print_text
from slackwater.client.events import read_events
from slackwater.client.workspace import Workspace
from slackwater.deploy.deploy import deploy
from slackwater.errors import PartnerError, RunFailed, SlackwaterError
from slackwater.local import cloud
from slackwater.progress import ProgressBoard, TaskState

ROOT = Path(__file__).resolve().parents[2]
WORKSPACE = Workspace(root=ROOT, project=Path(__file__).resolve().parent)
PIPELINE = "daily_delays"
WEEKLY = "weekly_delays"
"""It reads the days that `daily_delays` has published."""
DATES = ("2013-03-08", "2013-03-09", "2013-03-10", "2013-03-11", "2013-03-12")
LATE_DAY = "2013-03-10"
"""The day with late data. It has 23 hours, because clocks went forward."""
LATE_FILES = (f"flights-{LATE_DAY}-04.csv", f"flights-{LATE_DAY}-20.csv")
LATE_WEATHER = (datetime(2013, 3, 10, 20, tzinfo=UTC), datetime(2013, 3, 10, 21, tzinfo=UTC))
"""Start and end of the hour whose weather arrives late."""
TWO_DAYS_LATER = "2013-03-12"
# `sources/flights.yaml` has the same port.
PARTNER_PORT = 8713


@dataclass
class Parts:
    """The parts of the demo: their headings, and how long each took."""

    seconds: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def part(self, title: str) -> Iterator[None]:
        """Print the heading of a part, and record how long the part takes."""
        print_text(f"\n{len(self.seconds) + 1}. {title}", style="bold cyan")
        started = time.monotonic()
        yield
        self.seconds.append((title, time.monotonic() - started))

    def print_seconds(self) -> None:
        """Print how long each part took."""
        total = sum(seconds for _, seconds in self.seconds)
        rows = [(title, f"{seconds:7.1f}") for title, seconds in [*self.seconds, ("total", total)]]
        print_table(["part", "seconds"], rows)


def start_cloud() -> None:
    """Start the local cloud, and make this process use it. AWS settings of the shell have no effect."""
    with ProgressBoard() as progress:
        progress.update("local cloud")
        local_cloud = cloud.up(ROOT)
        progress.update("local cloud", TaskState.DONE, note=local_cloud.endpoint)
    os.environ.update(local_cloud.environment())


def partner_server(feed: Feed) -> PartnerServer:
    """Return the partner's server, not yet started. Raises `PartnerError` if another process uses its port."""
    try:
        return PartnerServer(feed.flights, port=PARTNER_PORT)
    except OSError as error:
        raise PartnerError(f"the partner's server cannot use port {PARTNER_PORT}: {error.strerror}") from error


def run_days(client: Client, pipeline: str, dates: Sequence[str]) -> None:
    """Run days in parallel; the Spark application queues jobs that exceed its capacity.

    Raises `RunFailed` when all runs have ended, if one of them failed.
    """
    failures = []
    with ProgressBoard() as progress:
        for run, view in client.follow([client.run(pipeline, date) for date in dates]):
            date = run.date
            if not view.over:
                progress.update(date, note=view.current.name if view.current else "starting")
                continue
            try:
                result = run.result
            except RunFailed as error:
                failures.append(f"{date}: {error} (its log: {shell_command(f'logs {pipeline} --date {date}')})")
                progress.update(date, TaskState.FAILED, seconds=view.seconds)
                continue
            note = f"{result.outcome}{format_breakdown(result.seconds)}"
            progress.update(date, TaskState.DONE, note=note, seconds=view.seconds)
    if failures:
        raise RunFailed("\n  ".join(["some days failed:", *failures]))


def query_day(client: Client) -> None:
    """Print the published rows of one day."""
    columns = "* EXCLUDE (date)"
    result = client.query(f"SELECT {columns} FROM {PIPELINE} WHERE date = '{LATE_DAY}' ORDER BY origin, carrier")  # noqa: S608
    print_table(result.columns, result.rows, title=f"{PIPELINE}, {LATE_DAY} (a day of 23 hours)")


def monitor_days(client: Client) -> None:
    """Find the late day, run it and then its week again, and print what changed. Raises `RunFailed`."""
    for pipeline in (PIPELINE, WEEKLY):
        result = monitor_pipeline(client, pipeline, TWO_DAYS_LATER, show_report=print_decisions)
        print_day_outcomes(result)
        if result.failure:
            raise RunFailed(result.failure)
        if not result.days:
            command = shell_command(f"diff {pipeline} --date {LATE_DAY}")
            print_text(f"No late days. To see what the late data changed: {command}")


def print_next_commands() -> None:
    """Print commands to try after the demo."""
    print_text("\nCommands to try next", style="bold cyan")
    for line in (
        shell_command(f"diff {PIPELINE} --date {LATE_DAY}"),
        shell_command(f"runs {PIPELINE}"),
        shell_command(f'query "SELECT date, sum(flights) AS flights FROM {PIPELINE} GROUP BY date ORDER BY date"'),  # noqa: S608
        shell_command("query 'SELECT date, hour, count(*) AS events FROM raw.weather GROUP BY ALL ORDER BY ALL'"),
        shell_command(f"logs {PIPELINE} --date {LATE_DAY}"),
        shell_command("local status"),
        "make down   (stops the local cloud; it keeps its data)",
    ):
        print_text(f"  {line}")


def shell_command(arguments: str) -> str:
    """Return a command of the command line, to be typed in the repository's folder."""
    script = Path(sys.executable).with_name("slackwater")
    return f"{script.relative_to(ROOT) if script.is_relative_to(ROOT) else 'slackwater'} {arguments}"


def demo() -> None:
    """Run every part. Raises `SlackwaterError` at the first failure."""
    parts = Parts()
    with parts.part("Start the local cloud"):
        start_cloud()
    with parts.part("Deploy the stacks"):
        # The demo starts everything itself.
        print_deployment(deploy(WORKSPACE, {"schedule": "none", "collect_minutes": "0"}), WORKSPACE.load_project())
    # After the start of the cloud, because boto3 reads the endpoint from the environment.
    with Client.open(WORKSPACE) as client:
        with parts.part("Prepare the partners' data"):
            feed = make_feed(WORKSPACE.state / "demo", DATES)
            feed.hold_back(LATE_FILES, weather=LATE_WEATHER)
            print_text(f"flights of {len(DATES)} days as CSV, their weather as NDJSON: {feed.folder.relative_to(ROOT)}")
            print_text(f"arrives late: {' and '.join(LATE_FILES)}, and the weather of one hour of that day")
        with parts.part("Pull the flights from the partner's server"), partner_server(feed):
            print_pull_totals(pull_source(client, "flights", as_of=DATES[-1]), client.project)
        with parts.part("Push the weather"):
            print_push_totals(client.push("weather", read_events(str(feed.weather))))
        with parts.part(f"Run {len(DATES)} days of {PIPELINE}"):
            run_days(client, PIPELINE, DATES)
        with parts.part(f"Run {WEEKLY} for the week that ends with {LATE_DAY}"):
            run_days(client, WEEKLY, [LATE_DAY])
        with parts.part("Query a published day"):
            query_day(client)
        with parts.part("Two days later, the late data arrives"), partner_server(feed):
            feed.release()
            print_pull_totals(pull_source(client, "flights", as_of=TWO_DAYS_LATER), client.project)
            print_push_totals(client.push("weather", read_events(str(feed.late_weather))))
        with parts.part(f"Monitor both pipelines as of {TWO_DAYS_LATER}"):
            monitor_days(client)
    print_text("")
    parts.print_seconds()
    print_next_commands()


def main() -> int:
    """Run the demo; return its exit code."""
    try:
        demo()
    except SlackwaterError as error:
        print_note(f"error: {error}", style="red")
        return error.exit_code
    except KeyboardInterrupt:
        print_note("interrupted; the local cloud still runs (to stop it: make down)", style="yellow")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
