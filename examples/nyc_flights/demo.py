"""The main job, end to end, on real data and the local cloud: `make demo`.

It can be run again: what is there already is recognised, part by part.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from examples.nyc_flights.feed import Feed, make_feed
from examples.nyc_flights.partner import Partner
from slackwater.cli.commands import deploy as deploying
from slackwater.cli.commands import monitor, pull, push, run
from slackwater.cli.context import Place
from slackwater.cli.deploy import deploy
from slackwater.cli.events import read_events
from slackwater.cli.output import remark, say, table
from slackwater.cli.progress import PartState, ProgressBoard
from slackwater.cli.session import Session
from slackwater.errors import PartnerError, RunFailed, SlackwaterError
from slackwater.local import cloud

ROOT = Path(__file__).resolve().parents[2]
PLACE = Place(root=ROOT, project=Path(__file__).resolve().parent)
PIPELINE = "daily_delays"
DATES = ("2013-03-08", "2013-03-09", "2013-03-10", "2013-03-11", "2013-03-12")
LATE = "2013-03-10"
"""The day of 23 hours: clocks went forward. Some of its data arrives two days afterwards."""
LATE_FILES = (f"flights-{LATE}-04.csv", f"flights-{LATE}-20.csv")
LATE_HOUR = (datetime(2013, 3, 10, 20, tzinfo=UTC), datetime(2013, 3, 10, 21, tzinfo=UTC))
"""The hour whose weather comes late."""
TWO_DAYS_LATER = "2013-03-12"
PARTNER_PORT = 8713
"""Where `sources/flights.yaml` looks for the partner."""


@dataclass
class Parts:
    """The demo's parts: announced, timed, and listed at the end."""

    seconds: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def part(self, title: str) -> Iterator[None]:
        """Announce a part and keep how long it took."""
        say(f"\n{len(self.seconds) + 1}. {title}", style="bold cyan")
        began = time.monotonic()
        yield
        self.seconds.append((title, time.monotonic() - began))

    def show(self) -> None:
        """Print how long each part took."""
        total = sum(seconds for _, seconds in self.seconds)
        table(["part", "seconds"], [(title, f"{took:7.1f}") for title, took in [*self.seconds, ("together", total)]])


def start_cloud() -> None:
    """Start the local cloud, and send everything that follows to it, whatever this shell's AWS settings are."""
    with ProgressBoard() as board:
        board.update("local cloud")
        found = cloud.up(ROOT)
        board.update("local cloud", PartState.DONE, note=found.endpoint)
    os.environ.update(found.environment())


def partner_of(feed: Feed) -> Partner:
    """Return the partner's server. Raises `PartnerError` when something else listens where the project expects it."""
    try:
        return Partner(feed.flights, port=PARTNER_PORT)
    except OSError as error:
        raise PartnerError(f"the partner's server cannot listen on port {PARTNER_PORT}: {error.strerror}") from error


def run_days(session: Session) -> None:
    """Run all days at once, as far as the Spark application has room. Raises `RunFailed` when one of them failed."""
    runner = session.runner
    days = {runner.start(PIPELINE, date): date for date in DATES}
    failures = []
    with ProgressBoard() as board:
        for view in session.machines.follow(list(days)):
            date = days[view.arn]
            if not view.over:
                board.update(date, note=view.current.name if view.current else "starting")
                continue
            try:
                outcome = runner.outcome(view)
            except RunFailed as error:
                failures.append(f"{date}: {error} (its log: {command(f'logs {PIPELINE} --date {date}')})")
                board.update(date, PartState.FAILED, seconds=view.seconds)
                continue
            board.update(
                date, PartState.DONE, note=f"{outcome.outcome}{run.split(outcome.seconds)}", seconds=view.seconds
            )
    if failures:
        raise RunFailed("\n  ".join(["some days failed:", *failures]))


def show_day(session: Session) -> None:
    """Print the published table of one day."""
    answer = session.query(f"SELECT * EXCLUDE (date) FROM {PIPELINE} WHERE date = '{LATE}' ORDER BY origin, carrier")  # noqa: S608
    table(answer.columns, answer.rows, title=f"{PIPELINE}, {LATE} (a day of 23 hours)")


def monitor_days(session: Session) -> None:
    """Find the late day, have it run again, and print what that changed. Raises `RunFailed`."""
    monitored = session.monitor(PIPELINE, TWO_DAYS_LATER, found=monitor.show_decisions)
    monitor.show(monitored)
    if monitored.failure:
        raise RunFailed(monitored.failure)
    if not monitored.days:
        say(f"Nothing is late any more. What the late data changed: {command(f'diff {PIPELINE} --date {LATE}')}")


def show_next() -> None:
    """Print where to go from here."""
    say("\nWhere to look next", style="bold cyan")
    for line in (
        command(f"diff {PIPELINE} --date {LATE}"),
        command(f"runs {PIPELINE}"),
        command(f'query "SELECT date, sum(flights) AS flights FROM {PIPELINE} GROUP BY date ORDER BY date"'),  # noqa: S608
        command("query 'SELECT date, hour, count(*) AS events FROM raw.weather GROUP BY ALL ORDER BY ALL'"),
        command(f"logs {PIPELINE} --date {LATE}"),
        command("local status"),
        "make down   (stops the local cloud; what it holds stays)",
    ):
        say(f"  {line}")


def command(words: str) -> str:
    """Return a command of the command line as it can be typed in this folder."""
    script = Path(sys.executable).with_name("slackwater")
    return f"{script.relative_to(ROOT) if script.is_relative_to(ROOT) else 'slackwater'} {words}"


def demo() -> None:
    """Run every part. Raises `SlackwaterError` at the first that fails."""
    parts = Parts()
    with parts.part("The local cloud"):
        start_cloud()
    with parts.part("Deploy the stacks, as to AWS"):
        deploying.show(deploy(PLACE.root, project=PLACE.project))
    session = Session.open(PLACE)
    with parts.part("The partner's files"):
        feed = make_feed(PLACE.state / "demo", DATES)
        feed.hold_back(LATE_FILES, weather=LATE_HOUR)
        say(f"flights of {len(DATES)} days as CSV, their weather as NDJSON: {feed.folder.relative_to(ROOT)}")
        say(f"held back: {' and '.join(LATE_FILES)}, and the weather of one hour of that day")
    with parts.part("Pull the flights from the partner's server"), partner_of(feed):
        pull.show(session.pull("flights", as_of=DATES[-1]))
    with parts.part("Push the weather"):
        push.show(session.push("weather", read_events(str(feed.weather))))
    with parts.part(f"Run {len(DATES)} days of {PIPELINE}"):
        run_days(session)
    with parts.part("Ask for a published day"):
        show_day(session)
    with parts.part("Two days later, what was held back arrives"), partner_of(feed):
        feed.release()
        pull.show(session.pull("flights", as_of=TWO_DAYS_LATER))
        push.show(session.push("weather", read_events(str(feed.late_weather))))
    with parts.part(f"Monitor {PIPELINE} as of {TWO_DAYS_LATER}"):
        monitor_days(session)
    say("")
    parts.show()
    show_next()


def main() -> int:
    """Run the demo; return its exit code."""
    try:
        demo()
    except SlackwaterError as error:
        remark(f"error: {error}", style="red")
        return error.exit_code
    except KeyboardInterrupt:
        remark("interrupted; the local cloud stays up until `make down`", style="yellow")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
