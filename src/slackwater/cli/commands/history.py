"""`slackwater refs`, `history` and `rollback`: the versions of a day, and publishing an earlier one again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from slackwater.cli.command import Result, Session, command
from slackwater.cli.commands.run import run_document
from slackwater.cli.options import PipelineName, option, period_option
from slackwater.cli.output import format_usd, print_note, print_table, print_text
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.client.days.history import DayVersion
    from slackwater.client.days.verified import VerifiedVersion
    from slackwater.client.results import Version

_REFS = ("attempt", "version", "rows", "bytes", "files", "made from", "created (UTC)", "state")
_COLUMNS = ("version", "status", "published (UTC)", "rows", "files in", "rows in", "reasons", "definition", "USD")


@command("slackwater refs daily_delays --date 2013-03-08", "slackwater refs daily_delays --date 2013-03-08 --verify")
def refs(
    pipeline: PipelineName,
    date: Annotated[str, period_option(text="The day of the runs.")],
    *,
    verify: Annotated[
        bool, option("--verify", text="Read each version, and compare rows, schema and checksums.")
    ] = False,
    session: Session,
) -> Result:
    """List the versions of a day's data: inputs, Arrow files of each stage, published table.

    With `versions: all`, a pipeline stores the rows of every step that changes rows, and all of them are listed.

    The last column shows whether the Arrow files still exist. Retention removes them after the run; their manifests,
    the inputs and the published versions stay.

    --verify reads the objects of the input, the Arrow files, and the rows of the published versions. If one of them
    differs from its records, the exit code is 1. It reads no version that retention has removed.
    """
    session.project.pipeline(pipeline)
    verified = session.client.verified_refs(pipeline, date) if verify else []
    listed = [item.version for item in verified] if verify else session.client.refs(pipeline, date)
    failed = any(item.problems for item in verified)

    def view() -> None:
        uris = {version.uri: version.name for version in listed}
        rows = [_refs_row(version, uris) for version in listed]
        if verify:
            rows = [(*row, _verdict(item)) for row, item in zip(rows, verified, strict=True)]
        print_table((*_REFS, "verified") if verify else _REFS, rows)
        for version in listed:
            print_text(f"attempt {version.attempt}, {version.name}: {version.uri}")
        for version, problems in verified:
            for problem in problems or ():
                print_text(f"attempt {version.attempt}, {version.name}: {problem}", style="red")

    documents = [version.model_dump(mode="json", exclude_none=True) for version in listed]
    for document, (_, problems) in zip(documents, verified, strict=False):
        # Null for a version that retention has removed.
        document.update(verified=None if problems is None else not problems, problems=list(problems or ()))
    missing = f"no runs of {pipeline} for {date} yet (slackwater run {pipeline} --date {date})"
    document = {"pipeline": pipeline, "date": date, "versions": documents}
    return Result(document, view if listed else missing, exit_code=1 if failed else 0)


def _verdict(verified: VerifiedVersion) -> str | None:
    return None if verified.problems is None else "differs" if verified.problems else "ok"


def _refs_row(version: Version, names: dict[str, str]) -> tuple[object, ...]:
    return (
        version.attempt,
        version.name,
        version.rows,
        version.bytes,
        version.files,
        ", ".join(names.get(uri, uri) for uri in version.parents),
        version.created.strftime("%Y-%m-%d %H:%M:%S") if version.created else None,
        version.state.value if version.state else None,
    )


@command(
    "slackwater history daily_delays --date 2013-03-10",
    'slackwater query "FROM daily_delays" --date 2013-03-10 --version 1',
)
def history(
    pipeline: PipelineName,
    date: Annotated[str, period_option(text="The day.")],
    *,
    session: Session,
) -> Result:
    """List the published versions of a day: rows, inputs, why each was published, and whether it can be read.

    A version has the number of the attempt that published it; attempts that failed have none.
    """
    session.project.pipeline(pipeline)
    record, versions = session.client.day(pipeline, date), session.client.history(pipeline, date)
    documents = [version.model_dump(mode="json") for version in versions]
    decided = record.model_dump(mode="json", include={"hold", "resolution", "earlier_resolutions"})
    missing = f"{pipeline} has published nothing for {date} yet (slackwater run {pipeline} --date {date})"

    def view() -> None:
        from slackwater.client.holds import describe_decision

        print_table(_COLUMNS, [_row(version) for version in versions])
        for version in versions:
            title = f"version {version.version}: tag {version.tag}, run {version.run_id}"
            if version.rollback:
                title += f", version {version.rollback.to} published again: {version.rollback.reason}"
            print_text(title)
        # How earlier holds of the day ended, the oldest first, and why it is on hold now.
        for resolution in (*record.earlier_resolutions, *([record.resolution] if record.resolution else [])):
            print_text(describe_decision(resolution))
        if record.hold:
            print_text(f"on hold by the rule {record.hold.rule}: {record.hold.reason}", style="yellow")

    document = {"pipeline": pipeline, "date": date, "versions": documents, **decided}
    return Result(document, view if versions else missing)


def _row(version: DayVersion) -> tuple[object, ...]:
    return (
        version.version,
        version.status.value,
        version.published_at.strftime("%Y-%m-%d %H:%M:%S"),
        version.rows,
        version.input_files,
        version.input_rows,
        ", ".join(reason.value.replace("_", " ") for reason in version.reasons),
        version.definition[:12],
        format_usd(version.cost.usd if version.cost else None),
    )


@command('slackwater rollback daily_delays --date 2013-03-10 --to 1 --reason "wrong weather file"', writes=True)
def rollback(
    pipeline: PipelineName,
    *,
    date: Annotated[str, period_option(text="The day.")],
    to: Annotated[int, option(metavar="N", text="The version, as `slackwater history` shows it.")],
    reason: Annotated[str, option(metavar="TEXT", text="Why. It is stored.")],
    session: Session,
) -> Result:
    """Publish an earlier version of a day again, as a new version.

    The day is then on hold: late data does not run it again until `slackwater late release` releases it. Load steps do
    not run, so what they have written outside of the warehouse stays as it is.
    """
    loads = session.project.pipeline(pipeline).load
    from slackwater.cli.running import shown_states

    started = session.client.rollback(pipeline, date, to=to, reason=reason)
    with shown_states(
        f"rollback of {pipeline} for {date}",
        remedy=f"its log: slackwater logs {pipeline} --date {date}",
        interrupted=f"The rollback continues. To see its state: slackwater runs {pipeline}",
    ) as on_progress:
        result = started.wait(on_progress=on_progress)

    def view() -> None:
        print_text(
            f"{pipeline} {date}: version {to} is published again as version {result.run.attempt}, "
            f"{counted(result.publication.rows, 'row')}",
            style="green",
        )
        release = f"slackwater late release {pipeline} --date {date} --reason TEXT"
        print_text(f"  the day is on hold; to run it again with its present inputs: {release}")
        if loads:
            print_note(f"the load steps did not run: {', '.join(loads)}", style="yellow")

    return Result(run_document(result) | {"rollback": {"to": to, "reason": reason}}, view)
