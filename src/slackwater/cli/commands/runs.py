"""`slackwater runs`: list runs and their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.options import AsJson, ProjectFolder, examples
from slackwater.cli.output import print_json, print_table, print_text
from slackwater.cli.workspace import find_workspace

if TYPE_CHECKING:
    from slackwater.runs.record import RunRecord

_COLUMNS = ("pipeline", "date", "attempt", "state", "rows in", "rows out", "seconds", "started (UTC)")


def register(app: typer.Typer) -> None:
    """Add `runs`."""
    app.command(epilog=examples("slackwater runs", "slackwater runs daily_delays --json"))(runs)


def runs(
    pipeline: Annotated[
        str | None,
        typer.Argument(metavar="PIPELINE", help="A pipeline of the project. Default: all.", show_default=False),
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """List runs in the order of date and attempt."""
    workspace = find_workspace(project)
    definitions = workspace.load_project()
    names = [definitions.pipeline(pipeline).pipeline] if pipeline else sorted(definitions.pipelines)
    from slackwater.cli.session import Session
    from slackwater.runs.untaken_files import describe_untaken

    session = Session.open(workspace, definitions)
    records = [record for name in names for record in session.table.runs(name)]
    if as_json:
        print_json({"runs": [run_record_document(record) for record in records]})
        return
    if not records:
        print_text(f"no runs yet (slackwater run {names[0] if names else 'PIPELINE'} --date DATE)")
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
            record.started_at.strftime("%Y-%m-%d %H:%M:%S"),
        )
        for record in records
    ]
    print_table(_COLUMNS, rows)
    for record in records:
        attempt = f"{record.run.date}, attempt {record.run.attempt}"
        if record.error:
            print_text(f"{attempt}: {record.error}", style="red")
        for note in describe_untaken(record.files_not_taken):
            print_text(f"{attempt}: {note}", style="yellow")


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
        **record.model_dump(mode="json", exclude={"run"}),
    }


def _seconds(record: RunRecord) -> float | None:
    return round((record.ended_at - record.started_at).total_seconds(), 1) if record.ended_at else None
