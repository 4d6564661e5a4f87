"""`slackwater stop`: stop a run and its Spark jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from slackwater.cli.command import Result, Session, command
from slackwater.cli.names import shown
from slackwater.cli.options import RunName, date_option
from slackwater.cli.output import print_note, print_text
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.client.results import StoppedRun


@command(
    "slackwater stop 0f3b5f0c2d1e",
    "slackwater stop daily_delays --date 2013-03-08",
    writes=True,
)
def stop(
    run: RunName,
    date: Annotated[str | None, date_option(text="The day of the run of a PIPELINE.")] = None,
    *,
    session: Session,
) -> Result:
    """Stop a run that has not ended, and its Spark jobs. The day can run again at once.

    The run is recorded as failed. Published versions stay. A run that publishes before it is stopped stays published;
    the exit code is then 1.
    """
    from slackwater.client.days.attempts import check_run_name

    check_run_name(run, session.project.known_names, date=date)
    stopped = session.client.stop(run, date=date)
    document = {
        **{name: getattr(stopped.run, name) for name in ("pipeline", "date", "attempt", "run_id")},
        "state": stopped.state.value,
        "error": stopped.error,
        "cancelled_jobs": [{"id": job.id, "name": job.name} for job in stopped.cancelled],
        "published_attempt": stopped.published_attempt or None,
        "may_have_published": stopped.may_have_published,
    }
    return Result(document, lambda: _print(stopped), exit_code=0 if stopped.error else 1)


def _print(stopped: StoppedRun) -> None:
    run = stopped.run
    name = f"{shown(run.pipeline)} {run.date}, attempt {run.attempt}"
    if not stopped.error:
        print_note(f"{name}: it was published before it was stopped", style="yellow")
        return
    print_text(f"{name}: stopped, {counted(len(stopped.cancelled), 'Spark job')} cancelled", style="green")
    kept = stopped.published_attempt
    stays = f"version {kept} of the day stays published" if kept else "the day has no published version"
    unless = ", unless the stopped job has already written the day's rows: the next run replaces them"
    print_text(f"  {stays}{unless if stopped.may_have_published else ''}")
    print_text(f"  to run the day again: slackwater run {shown(run.pipeline)} --date {run.date}")
