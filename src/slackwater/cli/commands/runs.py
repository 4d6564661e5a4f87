"""`slackwater runs`: list runs and their outcomes, what each step of a day's run did, and the timeline of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.options import AsJson, AttemptNumber, ProjectFolder, examples, read_date
from slackwater.cli.output import format_usd, print_json, print_table, print_text, value_lines
from slackwater.cli.timeline import show_timeline, timeline_document
from slackwater.client.workspace import find_workspace
from slackwater.errors import InputError

if TYPE_CHECKING:
    from slackwater.runs.outputs import RunSteps
    from slackwater.runs.record import RunRecord

_COLUMNS = ("pipeline", "date", "attempt", "state", "rows in", "rows out", "seconds", "USD", "started (UTC)", "run id")
_STEP_COLUMNS = ("stage", "name", "step", "rows in", "rows out", "seconds")


def register(app: typer.Typer) -> None:
    """Add `runs`."""
    app.command(
        epilog=examples(
            "slackwater runs",
            "slackwater runs daily_delays --date 2013-03-08 --json",
            "slackwater runs daily_delays --date 2013-03-08 --timeline",
            "slackwater runs 0f3b5f0c2d1e",
        )
    )(runs)


def runs(  # noqa: PLR0917 - the command line's own options
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="A pipeline of the project, or a run id: its 32 digits, or the first 12 as this command shows them. "
            "Default: all pipelines.",
            show_default=False,
        ),
    ] = None,
    date: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="One day, with what each step of its last run did.", show_default=False),
    ] = None,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Print the timeline of the day's last run, as for a run id.")
    ] = False,
    attempt: AttemptNumber = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """List runs in the order of date and attempt, or print the timeline of one.

    A timeline shows when each stage waited, started and worked, its rows, the slowest step, and the share of
    orchestration.

    With --date, also list the steps of the day's last run (with --json, of all its runs): rows in and out, parameters,
    and effect. Spark computes the steps of a stage together, so they have the same seconds.
    """
    day = read_date(date, option="--date") if date else None
    workspace = find_workspace(project)
    definitions = workspace.load_definitions()
    from slackwater.client.client import Client
    from slackwater.client.days.attempts import check_run_name, is_run_id
    from slackwater.runs.inputs.untaken_files import describe_untaken

    if run and (timeline or is_run_id(run, definitions.pipelines)):
        check_run_name(run, definitions.pipelines, date=day)
        with Client.open(workspace, definitions) as client:
            shown = client.timeline(client.attempt(run, date=day, attempt=attempt))
        if as_json:
            print_json(run_record_document(shown.record) | {"timeline": timeline_document(shown)})
        else:
            show_timeline(shown)
        return
    if timeline or attempt:
        raise InputError("--timeline and --attempt: they are for one run: add RUN, a run id or a pipeline with --date")
    names = [definitions.pipeline(run).pipeline] if run else sorted(definitions.pipelines)
    with Client.open(workspace, definitions) as client:
        records = client.runs(run, day)
        last_runs = list({record.run.pipeline: record for record in records}.values()) if day else []
        detailed = records if as_json and day else last_runs
        steps = [client.steps(record) for record in detailed]
    if as_json:
        more = [steps_document(of_run) for of_run in steps] if day else [{} for _ in records]
        documents = [run_record_document(record) | of_run for record, of_run in zip(records, more, strict=True)]
        print_json({"runs": documents})
        return
    if not records:
        of_day = f" for {day}" if day else ""
        print_text(f"no runs{of_day} yet (slackwater run {names[0] if names else 'PIPELINE'} --date {day or 'DATE'})")
        return
    rows = [
        (
            record.run.pipeline,
            record.run.date,
            record.run.attempt,
            record.state.value,
            record.run.rows,
            record.publication.rows if record.publication else None,
            _seconds(record),
            format_usd(record.cost.usd if record.cost else None),
            record.started_at.strftime("%Y-%m-%d %H:%M:%S"),
            record.run.run_id[:12],
        )
        for record in records
    ]
    print_table(_COLUMNS, rows)
    for record in records:
        title = f"{record.run.date}, attempt {record.run.attempt}"
        if record.error:
            print_text(f"{title}: {record.error}", style="red")
        for note in describe_untaken(record.files_not_taken):
            print_text(f"{title}: {note}", style="yellow")
    for last, of_run in zip(last_runs, steps, strict=True):
        print_text("")
        show_steps(last, of_run)


def show_steps(record: RunRecord, run: RunSteps) -> None:
    """Print a table of the run's steps, then the parameters and the effect of each."""
    title = f"{record.run.pipeline} {record.run.date}, attempt {record.run.attempt}"
    if not (run.steps or run.missing):
        print_text(f"{title}: no stage has finished")
        return
    rows = [
        (
            outcome.stage or "load",
            step.name,
            step.step,
            ", ".join(f"{name} {'not counted' if rows is None else rows}" for name, rows in step.rows_in.items()),
            step.rows_out,
            step.seconds,
        )
        for outcome in run.steps
        for step in [outcome.record]
    ]
    print_table(_STEP_COLUMNS, rows, title=title)
    for _, step in run.steps:
        for label, values in (("with", step.parameters), ("effect", step.effect)):
            lines = value_lines(values)
            if lines:
                print_text("\n".join((f"{step.name}, {label}:", *lines)))
    for uri in run.missing:
        print_text(f"{uri} does not exist any more: what the steps of this stage did is unknown", style="yellow")


def steps_document(run: RunSteps) -> dict[str, Any]:
    """Return the steps of a run as JSON values; `stage` is null for a load step."""
    steps = [{"stage": outcome.stage, **outcome.record.model_dump(mode="json")} for outcome in run.steps]
    return {"steps": steps, "missing": list(run.missing)}


def run_record_document(record: RunRecord) -> dict[str, Any]:
    """Return the record as its JSON document: the keys of `run`'s document, with the state and the stages."""
    run = record.run
    return {
        "pipeline": run.pipeline,
        "date": run.date,
        "run_id": run.run_id,
        "attempt": run.attempt,
        "correlation_id": run.correlation_id,
        "input": {"files": run.files, "rows": run.rows, "bytes": run.bytes, "manifest": run.manifest},
        "seconds": _seconds(record),
        **record.model_dump(mode="json", exclude={"run", "cost_version"}),
    }


def _seconds(record: RunRecord) -> float | None:
    return round((record.ended_at - record.started_at).total_seconds(), 1) if record.ended_at else None
