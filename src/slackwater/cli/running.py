"""Shows the progress of executions, and says how to go on after their failure or an interruption."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from slackwater.cli.command import INTERRUPTED
from slackwater.cli.output import print_note
from slackwater.errors import RunFailed
from slackwater.progress import ProgressBoard, TaskState

if TYPE_CHECKING:
    from slackwater.client.results import ExecutionView, OnProgress

# The other types (Choice, Pass, Succeed, Fail) take no time, so they are not shown.
_SHOWN_TYPES = frozenset({"Task", "Map", "Parallel", "Wait"})


@contextmanager
def shown_states(
    what: str = "", *, file: Path | None = None, remedy: str = "", interrupted: str = ""
) -> Iterator[OnProgress]:
    """Yield a function that shows the states of an execution, on a board that is open until the end of the block.

    The message of a `RunFailed` then begins with `what`, and ends with a line that has the `remedy`. If a step in the
    pipeline's `file` has failed, it has the position there. After Ctrl-C, the text `interrupted` is printed, and the
    command ends; without it, `KeyboardInterrupt` is raised.
    """
    try:
        with ProgressBoard() as progress:
            yield partial(show_states, progress)
    except RunFailed as error:
        if not (what or remedy or file):
            raise  # a subclass keeps what it carries
        reason = _located(str(error), file) if file else str(error)
        message = f"{what}: {reason}" if what else reason
        raise RunFailed(f"{message}\n  {remedy}" if remedy else message) from error
    except KeyboardInterrupt as error:
        if not interrupted:
            raise
        print_note(interrupted, style="yellow")
        raise typer.Exit(INTERRUPTED) from error


def _located(reason: str, file: Path) -> str:
    from slackwater.cli.commands.pipeline import relative_problems
    from slackwater.validation.failures import failure_in_file

    problem = failure_in_file(file, reason)
    if problem is None:
        return reason
    (shown,) = relative_problems([problem])
    return f"{shown.position}  {shown.description}"


def show_states(progress: ProgressBoard, view: ExecutionView) -> None:
    """Show each state of an execution as a task, except states that take no time.

    A state that is entered again is another task, such as `Fetch a file (2)`.
    """
    times: Counter[str] = Counter()
    for state in view.states:
        if state.type not in _SHOWN_TYPES:
            continue
        times[state.name] += 1
        name = f"{state.name} ({times[state.name]})" if times[state.name] > 1 else state.name
        ended = TaskState.FAILED if state.failed else TaskState.DONE
        progress.update(name, TaskState.RUNNING if state.exited is None else ended, seconds=state.seconds)


def backfill_command(pipeline: str, first: str, last: str, *, parallel: int, stale: bool, project: Path | None) -> str:
    """Return the command that runs what is missing of a range of days; `project` is its option `--project`."""
    words = ["slackwater", "run", pipeline, "--from", first, "--to", last]
    words += ["--parallel", str(parallel)] if parallel > 1 else []
    words += ["--stale"] if stale else []
    words += ["--project", str(project)] if project else []
    return shlex.join(words)
