"""What the runs of a day wait for, what happens when, and which of their data has failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from slackwater.formatting import timestamp
from slackwater.late.check.checker import Checker
from slackwater.model import Record
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.period import Period
from slackwater.runs.table import is_alive
from slackwater.runs.waits.evaluation import InputEvaluator
from slackwater.runs.waits.verdicts import VerdictReader
from slackwater.state.conditions import Then, Unmet, end_of_wait
from slackwater.state.verdicts import Verdict, VerdictTable, describe_verdicts
from slackwater.state.waits import DayKey, WaitingRun

ReadsWaits = Callable[[DayKey], Sequence[WaitingRun]]
"""Returns the waiting runs of a day, and those that have gone on since."""


class FailedData(Record):
    """Data of which a verdict says that it has failed."""

    name: str
    """The input, or `this version`: the published one, and what it has read."""
    verdicts: tuple[Verdict, ...]
    """By source, pipeline and period."""

    @property
    def lines(self) -> list[str]:
        """For people: `this version: clicks 2026-01-01 15:00 UTC: fail, by arn:... since 2026-01-02 ...`."""
        return [f"{self.name}: {line}" for line in describe_verdicts(self.verdicts)]


class WaitingExecution(Record):
    """An execution that waits."""

    execution: str
    """ARN of the Step Functions execution."""
    since: datetime
    """When it started, UTC."""


class InputWait(Record):
    """What the scheduled run of a day waits for, evaluated now."""

    runs: tuple[WaitingExecution, ...]
    """Those that wait; none before the schedule has started one."""
    unmet: tuple[Unmet, ...]
    """The conditions that do not hold."""
    until: datetime | None
    """When a run stops waiting for them, UTC; None if all conditions hold."""
    then: Then | None
    """What it does then."""

    @property
    def end(self) -> str:
        """For people: when a run stops waiting, and what it does then; empty if all conditions hold."""
        if self.until is None:
            return ""
        return f"at {timestamp(self.until)}, {'it fails' if self.then == 'fail' else 'it runs without what is missing'}"


def input_wait(checker: Checker, key: DayKey, waits: ReadsWaits, verdicts: VerdictTable) -> InputWait:
    """Return what the run of a day waits for, with the definitions of `checker`.

    Raises `ObjectInvalid`, `DayChanged`, `CloudError`.
    """
    evaluator = InputEvaluator(
        project=checker.project,
        inputs=checker.inputs,
        counts=checker.counts,
        table=checker.table,
        verdicts=verdicts,
        now=checker.now,
    )
    unmet, now = evaluator.evaluate(key).unmet, checker.now()
    limit = end_of_wait(unmet) if unmet else None
    return InputWait(
        runs=tuple(
            WaitingExecution(execution=run.execution, since=run.since)
            for run in sorted(waits(key), key=lambda run: run.since)
            # An execution that was stopped leaves its token.
            if is_alive(checker.executions, run.execution, since=run.since, now=now)
        ),
        unmet=unmet,
        until=limit.at if limit else None,
        then=limit.then if limit else None,
    )


def failed_data(checker: Checker, pipeline: Pipeline, day: Period, verdicts: VerdictTable) -> Iterator[FailedData]:
    """Yield what has failed: of the published version of a day, and of what a run would read besides.

    Raises `CloudError`, `ObjectInvalid`.
    """
    reader = VerdictReader(table=checker.table, store=checker.store, verdicts=verdicts)
    own = reader.of_published(pipeline.pipeline, day.name)
    pipelines = checker.project.pipelines
    of_inputs = {item: reader.of_input(pipeline, item, day, pipelines=pipelines) for item in pipeline.inputs}
    found = {"this version": own} | of_inputs
    for name, failed in found.items():
        new = failed if failed is own else tuple(item for item in failed if item not in own)
        if new:
            yield FailedData(name=name, verdicts=new)
