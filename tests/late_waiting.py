"""Scheduled runs of a model, which wait for their inputs: each goes on once, as an independent evaluation says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from datetime import date as day
from typing import NamedTuple
from zoneinfo import ZoneInfo

from slackwater.errors import SlackwaterError
from slackwater.model import duration_of
from slackwater.pipeline.when import When
from slackwater.runs.waits.days import ProjectDays
from slackwater.runs.waits.evaluation import InputEvaluator
from slackwater.state.conditions import Evaluation
from slackwater.state.waits import DayKey, WaitingRun, Waits
from tests.fakes_notification import Crashed
from tests.fakes_waits import MemoryWaits, Tasks
from tests.late_processes import Process
from tests.late_world import LateWorld


class Lacks(NamedTuple):
    """What the inputs of a day lack."""

    unknown: bool
    """Whether the source has not reported all hours."""
    incomplete: bool
    """Whether events, or published days, are missing."""


def expected_outcome(lacks: Lacks, when: When, *, end: datetime, now: datetime, is_published: bool) -> str:
    """Return what a run of the day that ends at `end` does at `now`."""
    pairs = (lacks.unknown, when.unknown), (lacks.incomplete, when.incomplete)
    limits = [(end + duration_of(limit.after), limit.then) for is_lacking, limit in pairs if is_lacking]
    failing = [at for at, then in limits if then == "fail"]
    if not limits:
        return "ready"
    if now < (min(failing) if failing else max(at for at, _ in limits)):
        return "wait"
    return "fail" if failing and not is_published else "run"


class ScheduledRuns:
    """The executions that a schedule has started. Each waits, and then runs its day."""

    def __init__(self, world: LateWorld, lacks: Callable[[str], Lacks]) -> None:
        """`lacks` returns what the inputs of a day lack now; it shares nothing with the library."""
        self.world, self.lacks = world, lacks
        self.table, self.tasks = MemoryWaits(), Tasks()
        self.dates: dict[str, str] = {}
        """The day of each execution."""
        self.ran: set[str] = set()

    @property
    def waiting(self) -> set[str]:
        """The executions that wait."""
        return {execution for execution in self.dates if execution in self.tasks.tokens}

    def schedule(self, date: str, process: Process) -> None:
        """Start an execution."""
        execution = f"{date} {len(self.dates)}"
        self.dates[execution] = date
        self._enter(execution, process)

    def time_out(self) -> None:
        """Let each waiting execution wait again, with a new token, as Step Functions does after 15 minutes."""
        for execution in sorted(self.waiting):
            self._enter(execution, Process())

    def wake_source(self, source: str, hours: Iterable[datetime], process: Process | None = None) -> None:
        """Let executions go on after something about a source was stored. An error is only logged."""
        with suppress(SlackwaterError, Crashed):
            self._waits(process or Process()).wake_source(source, list(hours))

    def wake_day(self, pipeline: str, date: str) -> None:
        """Let executions go on after a day was recorded as published."""
        self._waits(Process()).wake_day(pipeline, date)

    def run_days(self) -> None:
        """Run the days of the executions that have gone on since the last time."""
        for execution in sorted(self.tasks.succeeded.keys() - self.ran):
            self.ran.add(execution)
            with suppress(SlackwaterError):
                self.world.run_day(self.dates[execution])

    def no_wake_up_is_lost(self) -> None:
        """No execution waits whose inputs are there."""
        assert not [execution for execution in self.waiting if not any(self.lacks(self.dates[execution]))]

    def each_goes_on_once(self) -> None:
        """All have gone on or failed, each once."""
        assert not self.waiting
        assert max(self.tasks.succeeded.values(), default=1) == 1
        assert len(self.tasks.succeeded) + len(self.tasks.failures) == len(self.dates)

    def _enter(self, execution: str, process: Process) -> None:
        key, token = DayKey(self.world.pipeline, self.dates[execution]), self.tasks.start(execution)
        run = WaitingRun(*key, execution=execution, token=token, since=self.world.time)
        with suppress(SlackwaterError, Crashed):
            self._waits(process).wait(run)

    def _waits(self, process: Process) -> Waits:
        days = ProjectDays(project=self.world.project, now=self.world.now)
        table, tasks = process.using(self.table), process.using(self.tasks)
        return Waits(table=table, tasks=tasks, days=days, evaluate=self._evaluate)

    def _evaluate(self, key: DayKey) -> Evaluation:
        world, read = self.world, list[datetime]()

        def now() -> datetime:
            read.append(world.now())
            return read[-1]

        evaluation = InputEvaluator(
            project=world.project, inputs=world.inputs, counts=world.counts, table=world.table, verdicts=world.verdicts,
            now=now,
        ).evaluate(key)  # fmt: skip
        definition = world.project.pipelines[key.pipeline]
        expected = expected_outcome(
            self.lacks(key.date), definition.when, end=end_of(key.date, definition.timezone), now=read[-1],
            is_published=world.table.day(key.pipeline, key.date).published is not None,
        )  # fmt: skip
        assert evaluation.outcome == expected, (key, evaluation)
        return evaluation


def hours_of(date: str, timezone: str) -> list[datetime]:
    """Return the UTC hours of a local day."""
    first, end = (
        datetime.combine(day.fromisoformat(date) + timedelta(days=days), time(), ZoneInfo(timezone)) for days in (0, 1)
    )
    hours = (end.astimezone(UTC) - first.astimezone(UTC)) / timedelta(hours=1)
    return [first.astimezone(UTC) + timedelta(hours=number) for number in range(round(hours))]


def end_of(date: str, timezone: str) -> datetime:
    """Return the end of a local day."""
    return hours_of(date, timezone)[-1] + timedelta(hours=1)
