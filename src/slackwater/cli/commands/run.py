"""`slackwater run`: run one day of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from slackwater.cli.command import Result, Session, command
from slackwater.cli.names import shown
from slackwater.cli.options import argument, days_option, option, period_option, split_days
from slackwater.cli.output import COUNT_STYLES, print_note, print_text
from slackwater.client.arguments import check_runs
from slackwater.client.workspace import project_of
from slackwater.errors import InputError
from slackwater.formatting import counted, provisional

if TYPE_CHECKING:
    from slackwater.client.days.runs import RunResult, RunSeconds
    from slackwater.project.project import Project


@command(
    "slackwater run daily_delays --date 2013-03-08",
    "slackwater run daily_delays --date 2013-03-08 --force",
    "slackwater run daily_delays --from 2013-03-01 --to 2013-03-31 --parallel 4",
    "slackwater run hourly_delays --date 2013-03-08T15",
    "slackwater run pipelines/new.yaml --date 2013-03-08",
    "slackwater run --select 'daily_delays+' --date 2013-03-08",
    "slackwater run daily_delays --date 2013-03-08 --profile",
    writes=True,
)
def run(
    pipeline: Annotated[str | None, argument("PIPELINE", "A pipeline of the project, or the YAML file of one.")] = None,
    *,
    select: Annotated[
        str | None,
        option(
            metavar="SELECTION",
            text="Run several pipelines: NAME+ and all that read its table, +NAME and all whose tables it reads, or "
            "+NAME+.",
        ),
    ] = None,
    date: Annotated[
        str | None,
        days_option(
            text="The day, in the pipeline's timezone, or `yesterday`. Of an hourly pipeline, the UTC hour: "
            "2013-03-08T15. A range is --from and --to."
        ),
    ] = None,
    first: Annotated[str | None, period_option("--from", text="Run the missing and failed days from this one.")] = None,
    last: Annotated[str | None, period_option("--to", text="The last day of the range.")] = None,
    parallel: Annotated[
        int | None,
        option("--parallel", metavar="N", min=1, max=40, text="Days of the range at the same time. Default: 1."),
    ] = None,
    stale: Annotated[
        bool, option("--stale", text="Also run days published from an older definition or older code.")
    ] = False,
    force: Annotated[bool, option("--force", text="Run even if inputs and definition are unchanged.")] = False,
    profile: Annotated[
        bool,
        option("--profile", text="Compute the steps one after the other, and print the seconds and bytes of each."),
    ] = False,
    wait: Annotated[
        bool, option("--wait", text="Wait for the inputs first, as a scheduled run does: `when` of the pipeline.")
    ] = False,
    no_deploy: Annotated[
        bool,
        option("--no-deploy", text="Keep what is deployed, also on a local cloud, where changes are deployed first."),
    ] = False,
    session: Session,
) -> Result:
    """Run one day of a pipeline and publish it, or the missing and failed days of a range.

    On a local cloud, changed definitions are deployed first. Elsewhere, a line names them.

    A range of an hourly pipeline also runs published hours whose inputs have changed.

    The new version replaces the one that was published for this day before. A pipeline that is given by its file need
    not be deployed: its state machine exists for this run only, which Ctrl-C stops. Otherwise, Ctrl-C leaves the run of
    one day to the cloud, and stops the runs of a range; the same command then runs what is still missing.

    With --profile, the day runs even if nothing has changed. It takes longer than a run in which Spark computes steps
    together, and publishes the same rows.

    With --select, the day of each pipeline runs after those of the pipelines whose tables it reads. The first failure
    ends the command.
    """
    if (pipeline is None) == (select is None):
        raise InputError("PIPELINE: name one pipeline, or several with --select 'PIPELINE+'")
    date, first, last = split_days(date, first, last)
    if pipeline is None and (first or last):
        raise InputError("--select: it runs one day of each pipeline: give it with --date")
    if pipeline and (first is not None or last is not None):
        dates = _range(first, last, misplaced={"--date": date, "--force": force, "--profile": profile, "--wait": wait})
        from slackwater.cli.backfill import run_backfill

        return run_backfill(session, pipeline, dates, parallel=parallel or 1, stale=stale, no_deploy=no_deploy)
    if date is None:
        raise InputError("--date is missing: give one day with --date, or a range of days with --from and --to")
    if parallel or stale:
        raise InputError(f"{'--parallel' if parallel else '--stale'} needs a range of days: --from and --to")
    if pipeline is None:
        if profile or wait:
            of_one = "--profile" if profile else "--wait"
            raise InputError(f"--select and {of_one} exclude each other: run one pipeline")
        from slackwater.cli.selection import run_selection

        return run_selection(session, select or "", date, force=force, no_deploy=no_deploy)
    is_file = pipeline.endswith((".yaml", ".yml"))
    if is_file and wait:
        raise InputError("--wait needs the name of a deployed pipeline: the run of a file does not wait")
    if is_file:
        session.folder = project_of(Path(pipeline), session.folder)
    else:
        check_runs(date, session.project.pipeline(pipeline), name="--date")
    from slackwater.cli.changes import apply_changes, note_changes
    from slackwater.cli.running import shown_states

    if not is_file:
        note_changes(session, [pipeline]) if no_deploy else apply_changes(session, [pipeline])
    client, name = session.client, Path(pipeline).stem if is_file else pipeline
    continues = f"The run continues in the cloud. To see its state: slackwater runs {pipeline}"
    with (
        shown_states(
            f"{name} for {date}",
            file=Path(pipeline) if is_file else session.workspace.project / "pipelines" / f"{shown(name)}.yaml",
            remedy=f"its log{_move_hint(name, session.project)}: slackwater logs {name} --date {date}",
            interrupted="The run was stopped." if is_file else continues,
        ) as on_progress,
        client.run_file(pipeline, date, force=force, profile=profile)
        if is_file
        else nullcontext(client.run(pipeline, date, force=force, profile=profile, wait_for_inputs=wait)) as started,
    ):
        result = started.wait(on_progress=on_progress)
    if profile:
        return _profiled(session, result)
    return Result(run_document(result), partial(print_run, result, session.project))


def _profiled(session: Session, result: RunResult) -> Result:
    """Return the result of a run with what each of its steps took."""
    from slackwater.cli.commands.runs import show_steps, steps_document

    run_ = result.run
    (record,) = [each for each in session.client.run_table.runs(run_.pipeline, run_.date) if each.run == run_]
    steps = session.client.steps(record)

    def view() -> None:
        print_run(result, session.project)
        print_text("")
        show_steps(record, steps)

    return Result(run_document(result) | steps_document(steps), view)


def print_run(result: RunResult, definitions: Project) -> None:
    """Print what a run has published, what else a person has to know about the day, and how to query it."""
    from slackwater.client.results import describe_unstored, row_condition

    run_, publication = result.run, result.publication
    verb = "published" if result.outcome == "published" else "unchanged, published before:"
    name = shown(run_.pipeline)
    mark = f" ({provisional(run_.through)})" if run_.through else ""
    print_text(
        f"{name} {run_.date}: {verb} {counted(publication.rows, 'row')} from {counted(run_.rows, 'event')} "
        f"in {counted(run_.files, 'file')}{mark}",
        style="green",
    )
    print_text(f"  {result.seconds.total} s{format_breakdown(result.seconds)}")
    for item in result.counts:
        print_text(f"  {item.source}: {item.line}", style=COUNT_STYLES[item.state])
    for line in result.missing:
        print_note(f"it ran without what it had waited for: {line}", style="yellow")
    for note in describe_unstored(result.files_not_taken):
        print_note(f"when its inputs were listed, {note}", style="yellow")
    for note in result.notes:
        print_note(note, style="yellow")
    query = f"SELECT * FROM {name} WHERE {row_condition(run_.date)}"  # noqa: S608
    print_text(f'  to query it{_move_hint(run_.pipeline, definitions)}: slackwater query "{query}"')


def _move_hint(pipeline: str, definitions: Project) -> str:
    """Return what other commands need to know a pipeline that was run from its file; empty if they know it."""
    return "" if pipeline in definitions.known_names else ", once the file is in pipelines/ of the project"


def _range(first: str | None, last: str | None, *, misplaced: Mapping[str, object]) -> tuple[str, str]:
    """Return the ends of a range. Raises `InputError` if one is missing, or if options of one day are given."""
    for name, value in misplaced.items():
        if value:
            raise InputError(f"{name} and --from, --to exclude each other: run one day, or a range of days")
    if first is None or last is None:
        raise InputError(f"{'--from' if first is None else '--to'} is missing: a range of days has both ends")
    return first, last


def format_breakdown(seconds: RunSeconds) -> str:
    """Return how a run's time is divided: `: waiting for Spark 2 s, Spark work 9 s, ...`; empty if it is unknown."""
    if seconds.spark_work is None:
        return ""
    return (
        f": waiting for Spark {seconds.spark_start} s, Spark work {seconds.spark_work} s, "
        f"orchestration {seconds.orchestration} s"
    )


def run_document(result: RunResult) -> dict[str, Any]:
    """Return a run's result as its JSON document."""
    return {
        "pipeline": result.run.pipeline,
        "date": result.run.date,
        "outcome": result.outcome,
        "run_id": result.run.run_id,
        "attempt": result.run.attempt,
        "correlation_id": result.run.correlation_id,
        "execution": result.execution,
        "input": {"files": result.run.files, "rows": result.run.rows, "bytes": result.run.bytes},
        "publication": result.publication.model_dump(mode="json"),
        "provisional": result.run.through is not None,
        **result.run.model_dump(mode="json", include={"through"}),
        "files_not_taken": dict(result.files_not_taken),
        "counts": [item.model_dump(mode="json") for item in result.counts],
        "missing": list(result.missing),
        "notes": list(result.notes),
        "seconds": asdict(result.seconds),
    }
