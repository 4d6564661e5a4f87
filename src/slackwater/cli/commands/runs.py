"""`slackwater runs`: what was run, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.context import find_place, load
from slackwater.cli.options import AsJson, ProjectFolder, examples
from slackwater.cli.output import document, say, table

if TYPE_CHECKING:
    from slackwater.runs.record import RunRecord

_COLUMNS = ("pipeline", "date", "attempt", "state", "rows in", "rows out", "seconds", "started (UTC)")


def register(app: typer.Typer) -> None:
    """Add `runs`."""
    app.command(epilog=examples("slackwater runs", "slackwater runs daily_delays --json"))(runs)


def runs(
    pipeline: Annotated[
        str | None, typer.Argument(metavar="PIPELINE", help="All of the project's otherwise.", show_default=False)
    ] = None,
    project: ProjectFolder = None,
    as_json: AsJson = False,
) -> None:
    """List runs, in order of date and attempt."""
    place = find_place(project)
    definitions = load(place)
    names = [definitions.pipeline(pipeline).pipeline] if pipeline else sorted(definitions.pipelines)
    from slackwater.cli.session import Session

    session = Session.open(place, definitions)
    records = [record for name in names for record in session.table.runs(name)]
    if as_json:
        document({"runs": [_described(record) for record in records]})
    elif not records:
        say(f"no runs yet (slackwater run {names[0] if names else 'PIPELINE'} --date DATE)")
    else:
        table(_COLUMNS, [_row(record) for record in records])
        for record in records:
            if record.error:
                say(f"{record.run.date}, attempt {record.run.attempt}: {record.error}", style="red")


def _seconds(record: RunRecord) -> float | None:
    return round((record.ended_at - record.started_at).total_seconds(), 1) if record.ended_at else None


def _row(record: RunRecord) -> list[Any]:
    return [
        record.run.pipeline,
        record.run.date,
        record.run.attempt,
        record.state.value,
        record.run.rows,
        record.publication.rows if record.publication else None,
        _seconds(record),
        record.started_at.strftime("%Y-%m-%d %H:%M:%S"),
    ]


def _described(record: RunRecord) -> dict[str, Any]:
    """Return the record as its JSON document: like that of `run`, with the state and the stages beside it."""
    run, whole = record.run, record.model_dump(mode="json", exclude={"run"})
    return {
        "pipeline": run.pipeline,
        "date": run.date,
        "run_id": run.run_id,
        "attempt": run.attempt,
        "correlation_id": run.correlation_id,
        "input": {"files": run.files, "rows": run.rows, "bytes": run.bytes, "manifest": run.manifest},
        "seconds": _seconds(record),
        **whole,
    }
