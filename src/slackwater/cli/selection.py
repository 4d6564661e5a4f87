"""`slackwater run --select`: one day of several pipelines, each after those whose tables it reads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from slackwater.cli.changes import apply_changes, note_changes
from slackwater.cli.command import Result, Session
from slackwater.cli.names import shown
from slackwater.cli.output import print_note
from slackwater.cli.running import shown_states
from slackwater.client.arguments import check_runs
from slackwater.client.days.runs import RunResult
from slackwater.errors import RunFailed, SlackwaterError


def run_selection(session: Session, selection: str, date: str, *, force: bool, no_deploy: bool) -> Result:
    """Run a day of each selected pipeline, one after the other, until one fails. The view shows the outcomes.

    Raises `UnknownName` for the selection, `InputError` for a day that has not begun, and the errors of `Client.open`.
    """
    project = session.project
    names = [shown(name) for name in project.selected(selection)]
    for name in names:
        check_runs(date, project.pipeline(name), name="--date")
    note_changes(session, names) if no_deploy else apply_changes(session, names)
    done, failure = list[RunResult](), ""
    for number, name in enumerate(names, 1):
        print_note(f"{number} of {len(names)}: {name} for {date}", style="bold")
        try:
            done.append(_run(session, name, date, force=force, left=names[number:]))
        except SlackwaterError as error:
            failure = str(error)
            break
    return Result(_document(names, done, failure), partial(_print, session, names, done, failure), int(bool(failure)))


def _run(session: Session, name: str, date: str, *, force: bool, left: Sequence[str]) -> RunResult:
    continues = f"The run of {name} continues in the cloud. To see its state: slackwater runs {name}"
    with shown_states(
        f"{name} for {date}",
        file=session.workspace.project / "pipelines" / f"{name}.yaml",
        remedy=f"its log: slackwater logs {name} --date {date}",
        interrupted=f"{continues}\n{_not_run(left)}" if left else continues,
    ) as on_progress:
        return session.client.run(name, date, force=force).wait(on_progress=on_progress)


def _not_run(names: Sequence[str]) -> str:
    return f"not run: {', '.join(names)}"


def _document(names: Sequence[str], done: Sequence[RunResult], failure: str) -> dict[str, Any]:
    from slackwater.cli.commands.run import run_document

    failed, not_run = (names[len(done)], names[len(done) + 1 :]) if failure else (None, ())
    return {
        "pipelines": list(names),
        "runs": [run_document(result) for result in done],
        "failed": failed,
        "failure": failure or None,
        "not_run": list(not_run),
    }


def _print(session: Session, names: Sequence[str], done: Sequence[RunResult], failure: str) -> None:
    """Print what each run has published. Raises `RunFailed` if one has failed, with what was not run."""
    from slackwater.cli.commands.run import print_run

    for result in done:
        print_run(result, session.project)
    if failure:
        left = names[len(done) + 1 :]
        raise RunFailed(f"{failure}\n  {_not_run(left)}" if left else failure)
