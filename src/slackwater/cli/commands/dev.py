"""`slackwater dev`: try a pipeline on a sample, and again after each change."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.command import INTERRUPTED, Result, Session, command
from slackwater.cli.options import PipelineName, option, period_option
from slackwater.cli.output import print_note, print_table, print_text, value_lines
from slackwater.errors import InputError, UnknownName
from slackwater.formatting import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from slackwater.dev.deployed import Deployed
    from slackwater.dev.loop import DevLoop
    from slackwater.dev.outcome import LoopResult, StepOutcome
    from slackwater.dev.sample import Sample
    from slackwater.project.project import Project
    from slackwater.validation.yaml_file import FileProblem

_INPUT = re.compile(r"([a-z][a-z0-9_]*)=(.+)", re.DOTALL)
_MOST_ROWS = 100_000


@command(
    "slackwater dev daily_delays --date 2013-03-08",
    "slackwater dev daily_delays --date 2013-03-08 --input flights=flights.csv --input weather=weather.ndjson",
    "slackwater dev daily_delays --date 2013-03-08 --once --json",
)
def dev(
    pipeline: PipelineName,
    *,
    date: Annotated[str, period_option(text="The day, in the pipeline's timezone.")],
    inputs: Annotated[
        list[str] | None,
        option(
            "--input",
            metavar="INPUT=FILE",
            text="A file with rows of a source or table; repeat it for several files. Default: the deployed system.",
        ),
    ] = None,
    rows: Annotated[
        int, option("--rows", metavar="N", min=1, max=_MOST_ROWS, show_default=True, text="The most rows of an input.")
    ] = 1_000,
    show: Annotated[
        int,
        option(
            "--show", metavar="N", min=0, max=_MOST_ROWS, show_default=True, text="How many rows of a step are printed."
        ),
    ] = 5,
    once: Annotated[bool, option("--once", text="Run once, and exit with 1 if a step has no result.")] = False,
    session: Session,
) -> Result:
    """Try a pipeline on a sample of its inputs, and again after each change of its file, a source or a step's code.

    Only the steps that a change reaches run again, in one local Spark session. Nothing is deployed, published or
    written.
    """
    if session.as_json and not once:
        raise InputError("--json: it prints one document: add --once")
    files, workspace = _files_by_input(inputs or []), session.workspace
    _require_pipeline(workspace.project, pipeline)
    print_note(f"{pipeline} for {date}: reading the definitions and a sample of at most {counted(rows, 'row')} ...")
    from slackwater.dev.context import interruptible_spark, loop_context
    from slackwater.dev.loop import DevLoop, InvalidDefinitions
    from slackwater.dev.samples import Samples

    # Python takes compiled code for current that it has written in the same second, whatever has changed since.
    sys.dont_write_bytecode = True
    try:
        with ExitStack() as stack:

            def connect(project: Project) -> Deployed:
                """Open the deployed system until the stack is closed."""
                from slackwater.client.client import Client
                from slackwater.dev.deployed import Deployed

                return Deployed(stack.enter_context(Client.open(workspace, project)), rows=rows)

            samples = Samples(files, rows=rows, connect=connect)
            loop = DevLoop(workspace.project, pipeline, date, samples=samples, rows=rows, show=show)
            try:
                # Before Spark starts: nothing runs without rows. The loop itself reports what is invalid.
                _print_samples(loop.take_samples())
                is_valid = True
            except InvalidDefinitions:
                is_valid = False
            if once and not is_valid:
                result = loop.run(partial(loop_context, None, samples))
                _print_end(result, quiet=session.as_json)
            else:
                print_note("starting Spark, which takes some seconds ...")
                spark, check = stack.enter_context(interruptible_spark())
                context = partial(loop_context, spark, samples)
                result = _run(loop, context, check, once=once, quiet=session.as_json)
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error
    # The view is empty: each loop has printed what it did.
    document = {"pipeline": pipeline, "date": date, **_document(result)}
    return Result(document, lambda: None, exit_code=0 if result.succeeded else 1)


def _run(
    loop: DevLoop, context: Callable[[], Any], check: Callable[[], None], *, once: bool, quiet: bool
) -> LoopResult:
    """Run the loop once, or until `check` raises `KeyboardInterrupt`. With `quiet`, nothing is printed."""

    def report(outcome: StepOutcome) -> None:
        check()
        if not quiet:
            _print_outcome(outcome)

    for number in count(1):
        # Before the definitions are read: a change from then on starts the next loop.
        seen = loop.snapshot()
        check()
        result = loop.run(context, report=report)
        _print_end(result, number, quiet=quiet)
        if once:
            break
        print_note("waiting for a change; Ctrl-C ends ...")
        changed = loop.wait_for_change(seen, check=check)
        print_text(f"\nchanged: {', '.join(path.name for path in changed)}")
    return result


def _files_by_input(values: Sequence[str]) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for value in values:
        match = _INPUT.fullmatch(value)
        if not match:
            raise InputError(f"--input: {value!r} is not of the form INPUT=FILE, such as flights=flights.csv")
        files.setdefault(match[1], []).append(Path(match[2]))
    return files


def _require_pipeline(folder: Path, name: str) -> None:
    """Raise `UnknownName` if the project has no file of the pipeline, which may have problems."""
    known = sorted(path.stem for path in (folder / "pipelines").glob("*.yaml"))
    if name not in known:
        raise UnknownName(f"no pipeline {name!r} in this project (pipelines: {', '.join(known)})")


def _print_samples(samples: Mapping[str, Sample]) -> None:
    for name, sample in samples.items():
        print_note(f"{name}: {counted(sample.table.num_rows, 'row')} from {sample.origin}")
        if sample.note:
            print_note(f"{name}: {sample.note}", style="yellow")


def _print_outcome(outcome: StepOutcome) -> None:
    from slackwater.dev.outcome import StepState

    title, record = f"{outcome.name} ({outcome.step})", outcome.record
    if record is None:
        verb, style = ("failed", "red") if outcome.state is StepState.FAILED else ("not run", "yellow")
        if outcome.problem:
            print_text(f"{title}: {verb}", style=style)
            _print_problem(outcome.problem)
        else:
            print_text(f"{title}: {verb}: {outcome.error.removeprefix(f'{outcome.name}: ')}", style=style)
    elif outcome.state is StepState.UNCHANGED:
        print_text(f"{title}: unchanged, {counted(record.rows_out or 0, 'row')}")
    else:
        read = ", ".join(f"{name} {rows:,}" for name, rows in record.rows_in.items())
        rows = f"{read} -> {counted(record.rows_out or 0, 'row')}".removeprefix(" -> ")
        print_text(f"\n{title}: {rows}, {record.seconds or 0:.2f} s", style="green")
        for line in value_lines(record.effect):
            print_text(line)
        print_text(f"  columns: {', '.join(f'{name} {data_type}' for name, data_type in outcome.columns)}")
        if outcome.rows:
            print_table([name for name, _ in outcome.columns], outcome.rows)
    sys.stdout.flush()


def _print_end(result: LoopResult, number: int = 1, *, quiet: bool) -> None:
    if quiet:
        return
    for problem in result.problems:
        _print_problem(problem)
    if result.error:
        print_text(result.error, style="red")
    for name, step in result.loads.items():
        print_text(f"{name} ({step}): not run: load steps write nothing here")
    steps = f"{result.executed} of {counted(len(result.steps), 'step')} run" if result.steps else "no step run"
    print_text(f"loop {number}: {result.seconds:.2f} s, {steps}", style="bold")
    sys.stdout.flush()


def _print_problem(problem: FileProblem) -> None:
    from slackwater.cli.commands.pipeline import relative_problems

    (shown,) = relative_problems([problem])
    print_text(f"{shown.position}  {shown.description}", style="red")


def _document(result: LoopResult) -> dict[str, Any]:
    """Return the result of a loop as JSON values."""
    from dataclasses import asdict

    return {
        "problems": [asdict(problem) for problem in result.problems],
        "error": result.error,
        "inputs": [
            {"name": name, "rows": sample.table.num_rows, "from": sample.origin, "note": sample.note}
            for name, sample in result.samples.items()
        ],
        "steps": [
            {
                "name": outcome.name,
                "step": outcome.step,
                "state": outcome.state,
                "error": outcome.error,
                "problem": asdict(outcome.problem) if outcome.problem else None,
                "rows_in": outcome.record.rows_in if outcome.record else {},
                "rows_out": outcome.record.rows_out if outcome.record else None,
                "seconds": outcome.record.seconds if outcome.record else None,
                "effect": outcome.record.effect if outcome.record else {},
                "columns": [{"name": name, "type": data_type} for name, data_type in outcome.columns],
                "rows": outcome.rows,
            }
            for outcome in result.steps
        ],
        "loads": [{"name": name, "step": step} for name, step in result.loads.items()],
        "seconds": round(result.seconds, 3),
    }
