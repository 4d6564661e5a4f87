"""The timeline of a run: for each stage and step when it waited, started and worked, and how many rows it had."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from slackwater.arrow.reference import ArrowReference, StepRecord
from slackwater.aws.executions.job_logs import Job, JobLogs
from slackwater.aws.executions.state_machines import StateMachines, StateView
from slackwater.client.days.attempts import Attempt, Span
from slackwater.client.days.run_log import noted
from slackwater.client.days.runs import RunSeconds, run_seconds
from slackwater.runs.finished_stages import stage_names
from slackwater.runs.outputs import run_steps, stages_of
from slackwater.runs.record import Publication, RunRecord, RunState
from slackwater.storage import ObjectStore

_FINAL = frozenset({"SUCCESS", "FAILED", "CANCELLED"})


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """One step of a stage, or what follows the last one."""

    name: str
    step: str
    """The step's own name, such as `join`, or `publish`: the audit and the commit of the day."""
    rows_in: int | None
    """Rows of all inputs; None if Spark did not have to count them."""
    rows_out: int | None
    seconds: float | None = None
    """None for steps that Spark has computed in one pass, and of a stage that was kept."""


@dataclass(frozen=True, kw_only=True)
class StageTime:
    """One stage of a run. What is not known (yet) is None."""

    stage: str
    state: str
    """`done`, `kept`, `running`, `failed`, `not started`, or `not run` if the run has ended before."""
    kept_from: int | None = None
    """The attempt that has computed the stage, for one that this attempt has kept."""
    start: float | None = None
    """Seconds from the start of the run to the request for the stage's job."""
    waiting: float | None = None
    """Seconds in the queue of EMR Serverless, until the driver starts."""
    starting: float | None = None
    """Seconds for the start and the stop of Spark."""
    working: float | None = None
    """Seconds in which the job read, computed, wrote and published."""
    seconds: float | None = None
    """From the request for the job to its end, or until now."""
    rows_in: int | None = None
    """Rows that the stage has read, from sources and from other stages."""
    rows_out: int | None = None
    steps: tuple[StepTime, ...] = ()


class SlowestStep(NamedTuple):
    """What took the longest."""

    name: str
    seconds: float
    together: int
    """How many steps these seconds are for: a stage's steps are computed together."""


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The timeline of one attempt of a run."""

    record: RunRecord
    begin: datetime
    seconds: RunSeconds
    stages: tuple[StageTime, ...]
    """In the order of the pipeline."""
    slowest: SlowestStep | None
    missing: tuple[str, ...]
    """One sentence for each part that could not be read."""


def read_timeline(attempt: Attempt, *, state_machines: StateMachines, jobs: JobLogs, store: ObjectStore) -> Timeline:
    """Return the timeline of an attempt, also of one that runs or has failed: what is known until now."""
    record, missing, now = attempt.record, list[str](), datetime.now(UTC)
    span, states, timed = Span(record.started_at, record.ended_at), tuple[StateView, ...](), dict[str, Job]()
    with noted(missing):
        view = state_machines.view(record.execution)
        part, span = attempt.part([(state.name, state.entered) for state in view.states])
        # The first state is entered a moment after the execution has started.
        span = Span(span.begin if part.start else view.started, span.end or view.ended)
        states = view.states[part]
    end = span.end or now
    with noted(missing):
        timed = {job.stage: jobs.timed(job) for job in attempt.jobs(jobs)}
    finished = {item.stage: item.reference for item in stages_of(record, store=store)}
    steps = run_steps(record, store=store)
    missing += [f"{uri} does not exist any more: its steps are unknown" for uri in steps.missing]
    names = tuple(dict.fromkeys((*stage_names(record.run, store=store), *finished, *timed)))
    stages = tuple(
        _stage_time(
            name,
            record,
            finished.get(name),
            timed.get(name),
            [step for stage, step in steps.steps if stage == name],
            loads=[step for stage, step in steps.steps if stage is None and name == names[-1]],
            publication=record.publication if name == names[-1] else None,
            begin=span.begin,
            now=now,
        )
        for name in names
    )
    work = [stage.working for stage in stages if stage.working is not None]
    is_work_known = record.state is RunState.PUBLISHED
    total = (end - span.begin).total_seconds()
    seconds = run_seconds(total, states, work=sum(work) if is_work_known else None)
    return Timeline(
        record=record,
        begin=span.begin,
        seconds=seconds if states else RunSeconds(total=seconds.total),
        stages=stages,
        slowest=slowest_step(stages),
        missing=tuple(missing),
    )


def _stage_time(
    name: str,
    record: RunRecord,
    reference: ArrowReference | None,
    job: Job | None,
    steps: Sequence[StepRecord],
    *,
    loads: Sequence[StepRecord],
    publication: Publication | None,
    begin: datetime,
    now: datetime,
) -> StageTime:
    """Return the times of a stage of a run that began at `begin`.

    `loads` and `publication` are what its job has done after the stage, if it is the last one.
    """
    # The attempt whose manifest the reference of this attempt names, if it is another one.
    kept_from = None
    if reference and not reference.manifest.startswith(record.run.prefix):
        kept_from = int(reference.manifest.split("/")[-3])
    if kept_from is not None:
        steps = [step.model_copy(update={"seconds": None}) for step in steps]
    times_of_steps, after = [_step_time(step) for step in steps], list[StepTime]()
    rows_out = reference.rows if reference else None
    if publication:
        seconds = publication.seconds
        after.append(
            StepTime(name="publish", step="publish", rows_in=rows_out, rows_out=publication.rows, seconds=seconds)
        )
    after += [_step_time(step) for step in loads]
    own = [step.seconds for step in after if step.seconds is not None]
    if reference and kept_from is None:
        own.append(reference.seconds)
    working = round(sum(own), 1) if own else None
    times: dict[str, Any] = {}
    if job:
        end = job.ended or now
        started = job.started or end
        times = {
            "start": _seconds(begin, job.created),
            "waiting": _seconds(job.created, started),
            "seconds": _seconds(job.created, end),
        }
        if job.state == "SUCCESS" and working is not None:
            times["starting"] = max(round(_seconds(started, end) - working, 1), 0.0)
    return StageTime(
        stage=name,
        state=_state(record, reference, job, kept_from),
        kept_from=kept_from,
        working=working,
        rows_in=rows_read(steps),
        rows_out=rows_out,
        steps=(*times_of_steps, *after),
        **times,
    )


def _state(record: RunRecord, reference: ArrowReference | None, job: Job | None, kept_from: int | None) -> str:
    if job and job.failed:
        return "failed"
    if job and job.state not in _FINAL:
        return "running"
    if reference:
        return "done" if kept_from is None else "kept"
    return "not started" if record.state is RunState.RUNNING else "not run"


def _step_time(step: StepRecord) -> StepTime:
    rows_in = _total(step.rows_in.values())
    return StepTime(name=step.name, step=step.step, rows_in=rows_in, rows_out=step.rows_out, seconds=step.seconds)


def rows_read(steps: Sequence[StepRecord]) -> int | None:
    """Return how many rows the steps of a stage have read from elsewhere, or None if that was not counted."""
    own = {step.name for step in steps}
    inputs = {name: rows for step in steps for name, rows in step.rows_in.items() if name not in own}
    # An extract step has no input: it reads the rows that it returns.
    inputs |= {step.name: step.rows_out for step in steps if not step.rows_in}
    return _total(inputs.values())


def slowest_step(stages: Iterable[StageTime]) -> SlowestStep | None:
    """Return what took the longest: the steps of one stage that Spark has computed in one pass, or one other step."""
    candidates: list[SlowestStep] = []
    for stage in stages:
        own = [step for step in stage.steps if step.seconds is not None]
        candidates += [SlowestStep(step.name, step.seconds or 0.0, 1) for step in own]
        together = len(stage.steps) - len(own)
        # Of a stage whose steps are all measured, the rest is reading and writing.
        if stage.working is not None and stage.kept_from is None and (together or not own):
            rest = round(stage.working - sum(step.seconds or 0.0 for step in own), 1)
            candidates.append(SlowestStep(stage.stage, rest, together))
    return max(candidates, key=lambda item: item.seconds, default=None)


def _total(counts: Iterable[int | None]) -> int | None:
    """Return the sum, or None without any count or if one is unknown."""
    known = list(counts)
    return sum(count or 0 for count in known) if known and None not in known else None


def _seconds(start: datetime, end: datetime) -> float:
    # Services measure with different clocks: a difference can be slightly negative.
    return round(max((end - start).total_seconds(), 0.0), 1)
