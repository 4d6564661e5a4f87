"""One attempt of a run: how people name it, and which part of its execution belongs to it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from slackwater.aws.dynamodb.run_table import DynamoRunTable
from slackwater.aws.executions.job_logs import Job, JobLogs
from slackwater.errors import CloudError, InputError, UnknownName
from slackwater.runs.record import RunRecord

# Iceberg tags and `slackwater runs` show the first 12 digits of a run id.
_RUN_ID = re.compile("[0-9a-f]{12,32}")


class Span(NamedTuple):
    """The part of an execution that belongs to one attempt."""

    begin: datetime
    end: datetime | None
    """None for the end of the execution, which may still run."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt, with the attempts of the same execution next to it: a run that has lost its job starts once more."""

    record: RunRecord
    earlier: RunRecord | None = None
    later: RunRecord | None = None

    def part(self, history: Sequence[tuple[str, datetime]]) -> tuple[slice, Span]:
        """Return which items of the execution's history belong to the attempt, and their time.

        Each item is the name of a state that was entered, or empty, and its time. Raises `CloudError` for no items.
        """
        # An attempt begins with the first state of the machine, which freezes the inputs. Positions and not times: two
        # states may be entered in the same millisecond.
        first = next((name for name, _ in history if name), "")
        begins = [index for index, (name, _) in enumerate(history) if name == first]

        def begin_after(record: RunRecord | None, *, default: int) -> int:
            if record is None or record.ended_at is None:
                return default
            return next((index for index in begins if history[index][1] >= record.ended_at), default)

        if not history:
            raise CloudError(f"Step Functions does not know the history of {self.record.execution} yet: try again")
        start = begin_after(self.earlier, default=0)
        stop = begin_after(self.record if self.later else None, default=len(history))
        end = history[stop][1] if stop < len(history) else None
        return slice(start, stop), Span(history[start][1], end)

    def jobs(self, logs: JobLogs) -> list[Job]:
        """Return the Spark jobs that the attempt has started, oldest first. Raises `CloudError`."""
        run, until = self.record.run, self.record.ended_at or datetime.now(UTC)
        return logs.jobs(run.pipeline, run.date, since=self.record.started_at, until=until)


def is_run_id(name: str, pipelines: Collection[str]) -> bool:
    """Return whether `name` is a run id, or at least its first 12 digits, and no pipeline."""
    return name not in pipelines and _RUN_ID.fullmatch(name) is not None


def check_run_name(run: str, pipelines: Collection[str], *, date: str | None) -> None:
    """Check that `run` is a pipeline, with the `date` of its day, or a run id without a date.

    Raises `UnknownName` for a name that is neither, and `InputError` for a date too few or too many.
    """
    if is_run_id(run, pipelines):
        if date:
            raise InputError(f"date: the run {run} has a date of its own: leave the date out")
    elif run not in pipelines:
        known = ", ".join(sorted(pipelines))
        raise UnknownName(
            f"there is no pipeline {run!r} (known: {known}), and a run id has 12 to 32 hexadecimal digits"
        )
    elif not date:
        raise InputError(f"date: missing: name a day of {run}, or a run id (its runs: slackwater runs {run})")


def find_attempt(
    table: DynamoRunTable, pipelines: Collection[str], run: str, *, date: str | None, attempt: int | None
) -> Attempt:
    """Return an attempt of a run, by default the last one.

    `run` is a pipeline, with the `date` of its day, or a run id. All attempts of a day have different numbers. Raises
    what `check_run_name` raises, and `InputError` for a day, a run or an attempt that does not exist.
    """
    check_run_name(run, pipelines, date=date)
    pipeline, day = (run, date) if date else _day_of_run(table, pipelines, run)
    # Read once: a run may end meanwhile.
    of_day = table.runs(pipeline, day)
    records = of_day if date else [record for record in of_day if record.run.run_id.startswith(run)]
    if not records:
        raise InputError(f"{run} has no run for {day} (its runs: slackwater runs {pipeline})")
    chosen = [record for record in records if attempt in {None, record.run.attempt}]
    if not chosen:
        numbers = ", ".join(str(record.run.attempt) for record in records)
        raise InputError(f"attempt: {attempt} is none of the attempts of {run}: {numbers}")
    record = chosen[-1]
    of_execution = [item for item in of_day if item.execution == record.execution]
    index = of_execution.index(record)
    return Attempt(
        record=record,
        earlier=of_execution[index - 1] if index else None,
        later=of_execution[index + 1] if index + 1 < len(of_execution) else None,
    )


def _day_of_run(table: DynamoRunTable, pipelines: Collection[str], run_id: str) -> tuple[str, str]:
    """Return the pipeline and the date of a run id. Raises `InputError` if no pipeline has it."""
    for pipeline in sorted(pipelines):
        date = table.date_of_run(pipeline, run_id)
        if date:
            return pipeline, date
    raise InputError(f"there is no run {run_id} of a pipeline of this project (its runs: slackwater runs)")
