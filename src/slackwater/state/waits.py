"""Runs that wait for their inputs: each has a task token, with which Step Functions lets it go on.

A run stores its token, and then evaluates its conditions. Who changes what a condition depends on stores that, and then
looks for tokens. So one of both sees the other: no wake-up is lost. Each step may be repeated. Step Functions accepts a
token once, and until the state has timed out: so a run goes on once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from slackwater.errors import SlackwaterError
from slackwater.state.conditions import Evaluation, Outcome, Unmet, describe_unmet
from slackwater.state.verdicts import Subject

INPUTS_MISSING = "InputsMissing"
"""The error of an execution that has waited for its inputs for as long as it may."""
_MAX_CAUSE = 2_000


class DayKey(NamedTuple):
    """A day of a pipeline."""

    pipeline: str
    date: str


class WaitingRun(NamedTuple):
    """An execution that waits for its inputs."""

    pipeline: str
    date: str
    execution: str
    """ARN of the Step Functions execution."""
    token: str
    """Of the state that waits now. A state that has timed out leaves a token that is refused."""
    since: datetime
    """When the execution started, UTC."""
    unmet: tuple[Unmet, ...] = ()
    """The conditions that did not hold at the latest evaluation."""


class WaitTable(Protocol):
    """Stores waiting runs by day and execution. All methods raise `CloudError`; a repeated call changes nothing."""

    def put_wait(self, run: WaitingRun) -> None:
        """Store a waiting run in the place of the one of the same execution."""

    def waits(self, key: DayKey) -> list[WaitingRun]:
        """Return the waiting runs of a day, and those that have gone on since. The read is consistent."""

    def save_unmet(self, run: WaitingRun, unmet: tuple[Unmet, ...]) -> None:
        """Store the conditions that do not hold, if the stored run has the same token."""

    def remove_wait(self, run: WaitingRun) -> None:
        """Remove the run, if the stored one has the same token."""


class WaitingTasks(Protocol):
    """The states that wait. Both methods return False if the token is refused: its state has ended before."""

    def succeed(self, token: str, output: Mapping[str, str]) -> bool:
        """Let the execution go on with this output of its state. Raises `CloudError`."""

    def fail(self, token: str, *, error: str, cause: str) -> bool:
        """Let the state fail. Raises `CloudError`."""


class DaysThatWait(Protocol):
    """The days whose runs may wait for an input, by the definitions."""

    def of_source(self, source: str, hours: Iterable[datetime] | None) -> Iterable[DayKey]:
        """Return the days that read any of these UTC hours of the source; with None, of any hour."""

    def of_day(self, pipeline: str, date: str) -> Iterable[DayKey]:
        """Return the days of other pipelines that wait for this one, or for the quality of what has read it."""

    def of_verdict(self, subject: Subject, periods: Iterable[str]) -> Iterable[DayKey]:
        """Return the days that wait for the quality of these periods, or of what has read them."""


@dataclass(frozen=True, kw_only=True)
class Waits:
    """Lets runs wait, and lets them go on when what they wait for is there. All methods raise `SlackwaterError`."""

    table: WaitTable
    tasks: WaitingTasks
    days: DaysThatWait
    evaluate: Callable[[DayKey], Evaluation]
    """Reads the inputs of a day, and returns whether its run may start."""

    def wait(self, run: WaitingRun) -> Evaluation:
        """Store the run, and let it go on at once if it need not wait. Return what it waits for."""
        self.table.put_wait(run)
        evaluation = self.evaluate(DayKey(run.pipeline, run.date))
        self._settle(run, evaluation)
        return evaluation

    def wake_source(self, source: str, hours: Iterable[datetime] | None = None) -> None:
        """Let runs go on that read these UTC hours of the source, or any hour, and whose conditions hold now.

        Call it when events, or facts about them, are stored.
        """
        self._wake(self.days.of_source(source, hours))

    def wake_day(self, pipeline: str, date: str) -> None:
        """Let runs go on that read this day of a pipeline, or what has read it, and whose conditions hold now.

        Call it when the day is recorded as published.
        """
        self._wake(self.days.of_day(pipeline, date))

    def wake_verdict(self, subject: Subject, periods: Iterable[str]) -> None:
        """Let runs go on that wait for the quality of these periods, or of what has read them.

        Call it when verdicts about them are stored.
        """
        self._wake(self.days.of_verdict(subject, periods))

    def _wake(self, days: Iterable[DayKey]) -> None:
        errors = list[SlackwaterError]()
        for key in sorted(set(days)):
            try:
                # First the tokens: most days have none, and then nothing of the inputs is read.
                if runs := self.table.waits(key):
                    evaluation = self.evaluate(key)
                    for run in runs:
                        self._settle(run, evaluation)
            except SlackwaterError as error:  # one day stops no other
                errors.append(error)
        if errors:
            raise errors[0]

    def _settle(self, run: WaitingRun, evaluation: Evaluation) -> None:
        """Let the run go on or fail, or store what it waits for."""
        missing = describe_unmet(evaluation.unmet)
        match evaluation.outcome:
            case Outcome.WAIT:
                if evaluation.unmet != run.unmet:
                    self.table.save_unmet(run, evaluation.unmet)
                return
            case Outcome.READY | Outcome.RUN:
                # A string with lines: JSONata may replace an array of one string with the string.
                self.tasks.succeed(run.token, {"missing": "\n".join(missing)})
            case Outcome.FAIL:
                cause = f"{run.date} has waited for its inputs for as long as it may: {'; '.join(missing)}"
                self.tasks.fail(run.token, error=INPUTS_MISSING, cause=cause[:_MAX_CAUSE])
        # Afterwards: what ends in between leaves a token that Step Functions refuses.
        self.table.remove_wait(run)
