"""`slackwater runs`: list runs and their outcomes, what each step of a day's run did, and the timeline of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from slackwater.cli.command import Result, Session, command
from slackwater.cli.names import shown, shown_in
from slackwater.cli.options import AttemptNumber, argument, days_option, option, period_option, split_days
from slackwater.cli.output import COUNT_STYLES, format_usd, print_table, print_text, value_lines
from slackwater.cli.timeline import show_timeline, timeline_document
from slackwater.errors import InputError
from slackwater.formatting import provisional

if TYPE_CHECKING:
    from slackwater.client.client import Client
    from slackwater.client.results import RunRecord, RunSteps, Verdict

_COLUMNS = ("pipeline", "date", "attempt", "state", "rows in", "rows out", "seconds", "USD", "started (UTC)", "run id")
_STEP_COLUMNS = ("stage", "name", "step", "rows in", "rows out", "seconds", "bytes in", "bytes out")


@command(
    "slackwater runs",
    "slackwater runs daily_delays --date 2013-03-08 --json",
    "slackwater runs daily_delays --date 2013-03-08 --timeline",
    "slackwater runs daily_delays --from 2013-03-08 --state failed --limit 10",
    "slackwater runs 0f3b5f0c2d1e",
)
def runs(
    run: Annotated[
        str | None,
        argument(
            "RUN",
            "A pipeline of the project, or a run id: its 32 digits, or the first 12 as this command shows them. "
            "Default: all pipelines.",
        ),
    ] = None,
    *,
    date: Annotated[
        str | None,
        days_option(text="One day, or `yesterday`, with what each step of its last run did. A range lists its runs."),
    ] = None,
    first: Annotated[str | None, period_option("--from", text="Runs of this day and later ones.")] = None,
    last: Annotated[str | None, period_option("--to", text="Runs of this day and earlier ones.")] = None,
    state: Annotated[
        Literal["running", "published", "failed"] | None, option("--state", text="Runs in this state.")
    ] = None,
    limit: Annotated[int | None, option("--limit", metavar="N", min=1, text="The last N of these runs.")] = None,
    timeline: Annotated[
        bool, option("--timeline", text="Print the timeline of the day's last run, as for a run id.")
    ] = False,
    attempt: AttemptNumber = None,
    session: Session,
) -> Result:
    """List runs in the order of date and attempt, or print the timeline of one.

    A timeline shows when each stage waited, started and worked, its rows, the slowest step, and the share of
    orchestration.

    With --date, also say by which verdicts the data of the published version has failed, and list the steps of the
    day's last run (with --json, of all its runs): rows in and out, parameters, effect, seconds and bytes. Spark
    computes the steps of a stage in one pass, so they have no seconds of their own: `slackwater run --profile` measures
    them.
    """
    from slackwater.client.days.attempts import check_run_name, is_run_id

    date, first, last = split_days(date, first, last)
    filters = [
        name for name, given in (("--from", first), ("--to", last), ("--state", state), ("--limit", limit)) if given
    ]
    if run and (timeline or is_run_id(run, session.project.known_names)):
        if filters:
            raise InputError(f"{filters[0]}: it is for a list of runs, and this shows one")
        check_run_name(run, session.project.known_names, date=date)
        timed = session.client.timeline(session.client.attempt(run, date=date, attempt=attempt))
        document = run_record_document(timed.record) | {"timeline": timeline_document(timed)}
        return Result(document, partial(show_timeline, timed))
    if timeline or attempt:
        raise InputError("--timeline and --attempt: they are for one run: add RUN, a run id or a pipeline with --date")
    names = [session.project.pipeline(run).pipeline] if run else sorted(session.project.pipelines)
    from slackwater.cli.changes import note_changes

    client = session.client
    if date and (first or last):
        raise InputError("--date and --from, --to exclude each other: list one day, or a range of days")
    note_changes(session, names)
    records = [each for each in client.runs(run, date, first=first, last=last) if state in {None, each.state}]
    records = records[-limit:] if limit else records
    steps = [(record, client.steps(record)) for record in records] if date else []
    documents = [run_record_document(record) for record in records]
    failed = _failed_versions(client, records, date) if date and records else {}
    for document, (record, of_run) in zip(documents, steps, strict=False):
        document.update(steps_document(of_run), failed=[each.document for each in failed.get(_version(record), ())])
    of_day = f" for {date}" if date else ""
    is_hourly = bool(names) and session.project.pipeline(names[0]).period == "hour"
    period = _hours(date) if is_hourly else f"--date {date or 'DATE'}"
    missing = f"no runs{of_day} yet (slackwater run {shown(names[0]) if names else 'PIPELINE'} {period})"
    last_runs = {record.run.pipeline: (record, of_run) for record, of_run in steps}
    missing = f"no run matches {', '.join(filters)}" if filters else missing
    view = partial(_show_runs, records, last_runs.values(), failed)
    return Result({"runs": documents}, view if records else missing)


def _hours(date: str | None) -> str:
    """Return the options with which an hourly pipeline runs: of a day, all of its hours."""
    if date is None:
        return "--date HOUR"
    return f"--date {date}" if "T" in date else f"--from {date}T00 --to {date}T23"


def _version(record: RunRecord) -> tuple[str, str, int | None]:
    return record.run.pipeline, record.run.date, record.run.attempt


def _failed_versions(
    client: Client, records: Sequence[RunRecord], date: str
) -> dict[tuple[str, str, int | None], tuple[Verdict, ...]]:
    """Return by which verdicts the published versions of a day have failed, by pipeline, period and attempt."""
    from slackwater.client.results import Subject

    if not client.settings.state_table:
        return {}
    pipelines = sorted({record.run.pipeline for record in records})
    found = client.verdicts.failed([Subject("pipeline", name) for name in pipelines], date, date)
    return {(period.name, period.period, period.version): period.verdicts for period in found}


def _show_runs(
    records: Sequence[RunRecord],
    steps: Iterable[tuple[RunRecord, RunSteps]],
    failed: Mapping[tuple[str, str, int | None], tuple[Verdict, ...]],
) -> None:
    """Print a line for each run, what was notable about it, and the steps."""
    from slackwater.client.results import describe_unstored, describe_verdicts

    rows = [
        (
            shown(record.run.pipeline),
            record.run.date,
            record.run.attempt,
            "provisional" if record.run.through and record.publication else record.state.value,
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
    latest = {(record.run.pipeline, record.run.date): record for record in records if record.publication}
    for record in records:
        title = f"{record.run.date}, attempt {record.run.attempt}"
        if record.run.through and record is latest.get((record.run.pipeline, record.run.date)):
            print_text(f"{title}: {provisional(record.run.through)}", style="yellow")
        if record.error:
            print_text(f"{title}: {record.error}", style="red")
        for item in record.counts:
            print_text(f"{title}: {item.source}: {item.line}", style=COUNT_STYLES[item.state])
        for line in record.missing:
            print_text(f"{title}: it ran without what it had waited for: {line}", style="yellow")
        for note in describe_unstored(record.files_not_taken):
            print_text(f"{title}: {note}", style="yellow")
        for line in describe_verdicts(failed.get(_version(record), ())):
            print_text(f"{title}: failed data: {shown_in(line)}", style="red")
    for last, of_run in steps:
        print_text("")
        show_steps(last, of_run)


def show_steps(record: RunRecord, run: RunSteps) -> None:
    """Print a table of the run's steps, then the parameters and the effect of each."""
    title = f"{shown(record.run.pipeline)} {record.run.date}, attempt {record.run.attempt}"
    title += ", profiled" if record.run.profiled else ""
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
            _known_total(step.bytes_in.values()),
            step.bytes_out,
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


def _known_total(sizes: Iterable[int | None]) -> int | None:
    """Return the sum, or None without any size or if one is unknown."""
    known = list(sizes)
    return sum(size or 0 for size in known) if known and None not in known else None


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
        "profiled": run.profiled,
        "provisional": run.through is not None,
        **run.model_dump(mode="json", include={"through"}),
        **record.model_dump(mode="json", exclude={"run", "cost_version"}),
    }


def _seconds(record: RunRecord) -> float | None:
    return round((record.ended_at - record.started_at).total_seconds(), 1) if record.ended_at else None
