"""`slackwater stop`: stop a run and its Spark jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from slackwater.cli.command import Result, Session, command
from slackwater.cli.names import shown
from slackwater.cli.options import RunName, period_option
from slackwater.cli.output import print_note, print_text
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.client.results import StoppedRun, StoppedWait


@command(
    "slackwater stop 0f3b5f0c2d1e",
    "slackwater stop daily_delays --date 2013-03-08",
    writes=True,
)
def stop(
    run: RunName,
    date: Annotated[str | None, period_option(text="The day of the run of a PIPELINE.")] = None,
    *,
    session: Session,
) -> Result:
    """Stop a run that has not ended, and its Spark jobs. The day can run again at once.

    If no attempt of the day of a PIPELINE runs, a run that waits for its inputs is stopped. An attempt is recorded as
    failed. Published versions stay. A run that publishes before it is stopped stays published;
    the exit code is then 1.
    """
    from slackwater.client.days.attempts import check_run_name
    from slackwater.client.results import StoppedWait

    check_run_name(run, session.project.known_names, date=date)
    stopped = session.client.stop(run, date=date)
    if isinstance(stopped, StoppedWait):
        return _of_wait(stopped)
    document = {
        **{name: getattr(stopped.run, name) for name in ("pipeline", "date", "attempt", "run_id")},
        "state": stopped.state.value,
        "error": stopped.error,
        "cancelled_jobs": [{"id": job.id, "name": job.name} for job in stopped.cancelled],
        "published_attempt": stopped.published_attempt or None,
        "may_have_published": stopped.may_have_published,
    }
    return Result(document, lambda: _print(stopped), exit_code=0 if stopped.error else 1)


def _of_wait(stopped: StoppedWait) -> Result:
    """Return the result about runs that have waited: they have no attempt."""
    document: dict[str, Any] = {
        "pipeline": stopped.pipeline,
        "date": stopped.date,
        "attempt": None,
        "run_id": None,
        "state": "stopped",
        "error": stopped.error,
        "cancelled_jobs": [],
        "published_attempt": stopped.published_attempt or None,
        "may_have_published": False,
    }
    return Result(document, lambda: _print_wait(stopped), exit_code=0)


def _print_wait(stopped: StoppedWait) -> None:
    number = len(stopped.executions)
    what = "the run that waited for its inputs is" if number == 1 else f"{number} runs that waited for inputs are"
    print_text(f"{shown(stopped.pipeline)} {stopped.date}: {what} stopped", style="green")
    _print_day(stopped.pipeline, stopped.date, stopped.published_attempt, unless="")


def _print(stopped: StoppedRun) -> None:
    run = stopped.run
    name = f"{shown(run.pipeline)} {run.date}, attempt {run.attempt}"
    if not stopped.error:
        print_note(f"{name}: it was published before it was stopped", style="yellow")
        return
    print_text(f"{name}: stopped, {counted(len(stopped.cancelled), 'Spark job')} cancelled", style="green")
    unless = ", unless the stopped job has already written the day's rows: the next run replaces them"
    _print_day(run.pipeline, run.date, stopped.published_attempt, unless=unless if stopped.may_have_published else "")


def _print_day(pipeline: str, date: str, kept: int, *, unless: str) -> None:
    stays = f"version {kept} of the day stays published" if kept else "the day has no published version"
    print_text(f"  {stays}{unless}")
    print_text(f"  to run the day again: slackwater run {shown(pipeline)} --date {date}")
