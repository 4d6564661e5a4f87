"""Start runs of open periods when further windows of their sources are complete (`live: {windows: 10m}`).

An execution has the name of the windows that are complete: whatever is delivered again or at the same time starts it
once. The scheduled runs of the pipeline make up for each start that is lost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.project.schedule import live_task
from slackwater.project.scheduled_starts import scheduled_date, task_name
from slackwater.runs.period import period_of, start_of
from slackwater.runs.table import RunTable
from slackwater.state.full_windows import full_spans, full_times
from slackwater.state.periods import PeriodTable

_DIGEST_LENGTH = 16


class StartsMachine(Protocol):
    """Starts executions."""

    def __call__(self, machine: str, *, name: str, payload: Mapping[str, Any]) -> bool:
        """Start the machine with this ARN unless it has had an execution of this name; return whether it was started.

        Raises `CloudError`.
        """


@dataclass(frozen=True, kw_only=True)
class LiveWindows:
    """Starts runs of the open periods of a project."""

    project: Project
    table: RunTable
    states: PeriodTable
    start: StartsMachine
    machines: str
    """The beginning of the ARN of every state machine of the deployment."""
    now: Callable[[], datetime]

    def source_counted(self, source: str, hours: Collection[datetime]) -> list[str]:
        """Start runs of the pipelines whose open period has any of these UTC hours of the source; return their names.

        Call it after the states of the hours are stored. Raises `CloudError`.
        """
        return [name for pipeline in self.project.live_readers(source) if (name := self._start(pipeline, hours=hours))]

    def run_ended(self, pipeline: str, date: str) -> str | None:
        """Start the next run of an open period, if windows have become complete during one; return its name.

        Raises `CloudError`.
        """
        found = self.project.pipelines.get(pipeline)
        return self._start(found, date=date) if found else None

    def _start(
        self, pipeline: Pipeline, *, hours: Collection[datetime] | None = None, date: str | None = None
    ) -> str | None:
        """Start a run if the open period is of this date or touches one of the hours, and has full windows."""
        if pipeline.live is None or pipeline.live.windows is None:
            return None
        now, task = self.now(), live_task(pipeline, pipeline.live)
        open_date = scheduled_date(task, now)
        period = period_of(open_date, task.timezone)
        touched = [start_of(partition) for partition in period.partitions()]
        if date not in {None, open_date} or (hours is not None and not set(hours).intersection(touched)):
            return None
        record = self.table.day(pipeline.pipeline, open_date)
        # The end of the active run has the period looked at again.
        if record.published or record.active:
            return None
        full = [self._full_times(source, touched) for source in pipeline.sources]
        ends = full_spans(full, start=touched[0], end=period.end, length=pipeline.live.interval)
        # A day may begin within an hour: windows before it are not of the day.
        spans = [end for end in ends if end > period.start]
        if not spans:
            return None
        windows = json.dumps([open_date, *(end.isoformat() for end in spans)])
        name = f"{task_name(task)}-{hashlib.sha256(windows.encode()).hexdigest()[:_DIGEST_LENGTH]}"
        payload = {**task.input, task.date_key: open_date, "correlation_id": name}
        return name if self.start(self.machines + task.state_machine, name=name, payload=payload) else None

    def _full_times(self, source: str, hours: Collection[datetime]) -> frozenset[datetime]:
        definition = self.project.source(source)
        states = self.states.states(source, hours)
        return frozenset[datetime]().union(*(full_times(definition, state) for state in states))
