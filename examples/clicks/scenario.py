"""A scenario of hours and the running day, with generated clicks, in a local cloud of its own. `make scenario` runs it.

With `--json FILE`, it also writes what each part did as a document. The events that it pushes are files in the folder
`events` of its cloud.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from examples.clicks.events import clicks, clicks_at
from examples.late_orders.scenario import (
    Documents,
    copy_project,
    deploy_project,
    empty,
    play_command,
    show_command,
    show_monitoring,
)
from examples.nyc_flights.demo import Parts, run_days
from slackwater import Client
from slackwater.cli.commands.push import print_push_totals
from slackwater.cli.output import print_table, print_text
from slackwater.client.workspace import Workspace
from slackwater.local import cloud

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".slackwater" / "clicks"
SOURCE, HOURLY, DAILY, TODAY = "clicks", "hourly_clicks", "daily_clicks", "clicks_today"
ZONE = ZoneInfo("Europe/Berlin")
DATE, DAY_AFTER = "2024-03-31", "2024-04-01"
"""A day of 23 hours in Berlin, from 23:00 UTC of the day before until 22:00 UTC."""
HOURS = ("2024-03-30T23", "2024-03-31T00", "2024-03-31T21", "2024-03-31T22")
"""Hours with clicks: the first two and the last one of the day, and the first one of the next day."""
LATE_HOUR, LATE = "2024-03-31T00", 15
"""The hour of which clicks come late, and how many."""
_HOURS_SQL = f"SELECT date, hour, page, clicks, seconds FROM {HOURLY} ORDER BY date, hour, page"  # noqa: S608
_DAYS_SQL = f"SELECT date, page, clicks, seconds, hours FROM {DAILY} ORDER BY date, page"  # noqa: S608


@dataclass
class Scenario:
    """The parts of the scenario. Each returns a document of what it did."""

    workspace: Workspace
    client: Client
    parts: Parts
    events: Path
    documents: Documents = field(default_factory=dict)

    def part(self, name: str, title: str, play: Callable[[], dict[str, Any]]) -> None:
        """Run a part, and keep its document."""
        with self.parts.part(title):
            self.documents[name] = play()

    def publish(self) -> dict[str, Any]:
        """Publish the hours, and the day that reads them."""
        for hour in HOURS:
            self._push(f"of-{hour}", clicks(_start_of(hour)))
        run_days(self.client, HOURLY, HOURS)
        run_days(self.client, DAILY, [DATE])
        return self._published()

    def arrive_late(self) -> dict[str, Any]:
        """More clicks of an hour arrive: this hour runs again, and then the day. Some of them were sent before."""
        hour = _start_of(LATE_HOUR)
        self._push("late", clicks(hour, first=50, count=10 + LATE))
        print_text(f"{LATE} late clicks of {LATE_HOUR} UTC, and 10 that were sent before")
        hourly = show_monitoring(self.client, HOURLY, DAY_AFTER)
        daily = show_monitoring(self.client, DAILY, DAY_AFTER)
        return {"hourly": hourly, "daily": daily, **self._published()}

    def run_today(self) -> dict[str, Any]:
        """Publish the day that has not ended, as its schedule does each five minutes: again if there are new clicks."""
        now = _begun_day()
        today = now.astimezone(ZONE).date().isoformat()
        outcomes, versions = [], []
        for number, count in enumerate((40, 25, 0)):
            if count:
                self._push(f"today-{number}", clicks_at(now, first=100 * number, count=count))
            run = self.client.run(TODAY, today)
            outcomes.append(run.wait().outcome)
            print_text(f"{TODAY} {today}: {outcomes[-1]}")
            versions.append(self.client.query(f"SELECT page, clicks, seconds FROM {TODAY} ORDER BY page").rows)  # noqa: S608
        show_command(self.workspace, "query", f"SELECT * FROM {TODAY} WHERE date = '{today}' ORDER BY page")  # noqa: S608
        show_command(self.workspace, "why", TODAY, "--date", today)
        provisional = [day.document for day in self.client.provisional_days([TODAY])]
        return {"date": today, "outcomes": outcomes, "versions": versions, "provisional": provisional}

    def _push(self, name: str, events: Iterable[dict[str, object]]) -> None:
        """Push events, and keep them as a file."""
        lines = [json.dumps(event).encode() for event in events]
        self.events.mkdir(exist_ok=True)
        (self.events / f"{name}.ndjson").write_bytes(b"\n".join(lines) + b"\n")
        print_push_totals(self.client.push(SOURCE, lines))

    def _published(self) -> dict[str, Any]:
        """Print the rows of the day, and return all rows."""
        days = self.client.query(_DAYS_SQL)
        print_table(days.columns, days.rows, title=f"{DAILY}, a day of 23 hours")
        return {"hours": self.client.query(_HOURS_SQL).rows, "days": days.rows}


def _start_of(hour: str) -> datetime:
    return datetime.fromisoformat(f"{hour}:00").replace(tzinfo=UTC)


def _begun_day() -> datetime:
    """Return the present time; shortly before midnight, after it: the day is still open when the part ends."""
    while (datetime.now(ZONE) + timedelta(minutes=3)).date() != datetime.now(ZONE).date():
        time.sleep(1)
    return datetime.now(UTC)


def scenario(folder: Path) -> Documents:
    """Run every part in an empty folder; return their documents. Raises `SlackwaterError` at the first failure."""
    parts = Parts()
    empty(folder)
    with parts.part("Start a local cloud, and deploy the pipelines"):
        workspace = copy_project(folder, Path(__file__).parent)
        os.environ.update(cloud.up(folder).environment())
        deploy_project(workspace)
    # After the start of the cloud, because boto3 reads the endpoint from the environment.
    with Client.open(workspace) as client:
        played = Scenario(workspace, client, parts, folder / "events")
        played.part("published", f"Publish hours of {DATE}, and the day", played.publish)
        played.part("late", f"Clicks of {LATE_HOUR} arrive late", played.arrive_late)
        played.part("today", f"Publish {TODAY} while the day has not ended", played.run_today)
    print_text("")
    parts.print_seconds()
    return played.documents


def main() -> int:
    """Run the scenario; return its exit code."""
    return play_command(scenario, FOLDER, __doc__)


if __name__ == "__main__":
    sys.exit(main())
