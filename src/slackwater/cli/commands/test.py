"""`slackwater test`: run the tests of pipelines."""

from __future__ import annotations

import dataclasses
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slackwater.cli.command import INTERRUPTED, Result, Session, command
from slackwater.cli.commands.pipeline import relative_problems
from slackwater.cli.options import argument, option
from slackwater.cli.output import print_note, print_table, print_text
from slackwater.errors import InputError
from slackwater.formatting import counted

if TYPE_CHECKING:
    from slackwater.dev.samples import Samples
    from slackwater.dev.testing.read_tests import ReadTests
    from slackwater.dev.testing.runner import PipelineTestResult

_INVALID = 2


@command(
    "slackwater test",
    "slackwater test daily_sales late_orders",
    "slackwater test --junit test-results.xml",
    "slackwater test --json",
    name="test",
)
def run_tests(
    names: Annotated[
        list[str] | None, argument("NAME", "A test: NAME of tests/NAME.yaml. Default: all tests of the project.")
    ] = None,
    *,
    junit: Annotated[
        Path | None, option("--junit", metavar="FILE", text="Also write the results to this file, as JUnit XML.")
    ] = None,
    session: Session,
) -> Result:
    """Run pipelines on the rows of the project's tests, and compare the results of their steps with the expected rows.

    No cloud is used, and load steps do not run. The exit code is 0 if all tests pass, 1 if one fails, and 2 if the file
    of a test has problems: then no test runs.
    """
    from slackwater.dev.testing.read_tests import read_tests
    from slackwater.dev.testing.report import junit_xml, summary

    folder = session.workspace.project
    read = read_tests(folder, names or [])
    if read.problems:
        return _invalid(read)
    try:
        results = _run(read, folder, quiet=session.as_json)
    except KeyboardInterrupt as error:
        raise typer.Exit(INTERRUPTED) from error
    if junit:
        try:
            junit.write_bytes(junit_xml(results, now=datetime.now(UTC)))
        except OSError as error:
            raise InputError(f"--junit: {junit}: {error.strerror}") from error
    failed = sum(not result.passed for result in results)
    document = {
        "passed": len(results) - failed,
        "failed": failed,
        "problems": [],
        "tests": list(map(_document, results)),
    }
    style = "red" if failed else "green"
    return Result(document, partial(print_text, summary(results), style=style), exit_code=1 if failed else 0)


def _invalid(read: ReadTests) -> Result:
    """Return the problems of files, with which no test runs."""
    problems = relative_problems(read.problems)
    document = {"passed": 0, "failed": 0, "problems": list(map(dataclasses.asdict, problems)), "tests": []}
    lines = "\n".join(f"{problem.position}  {problem.description}" for problem in problems)
    return Result(document, lines, exit_code=_INVALID)


def _run(read: ReadTests, folder: Path, *, quiet: bool) -> list[PipelineTestResult]:
    """Run the tests one after the other in one Spark session. With `quiet`, nothing is printed."""
    from slackwater.dev.context import interruptible_spark, loop_context
    from slackwater.dev.testing.runner import run_test

    # Python takes compiled code for current that it has written in the same second, whatever has changed since.
    sys.dont_write_bytecode = True
    results = []
    with ExitStack() as stack:
        print_note(f"{counted(len(read.tests), 'test')}: starting Spark, which takes some seconds ...")
        spark, check = stack.enter_context(interruptible_spark())

        def context(samples: Samples) -> Any:
            return loop_context(spark, samples, folder)

        for test in read.tests:
            check()
            pipeline = read.checked.pipelines.get(test.definition.pipeline)
            result = run_test(test, folder, pipeline, context, check=check)
            check()
            results.append(_relative(result))
            if not quiet:
                _print_result(results[-1])
    return results


def _relative(result: PipelineTestResult) -> PipelineTestResult:
    """Return the result with paths that are relative to the current folder, if the files are in it."""
    file = result.file.relative_to(Path.cwd()) if result.file.is_relative_to(Path.cwd()) else result.file
    return dataclasses.replace(result, file=file, problems=tuple(relative_problems(result.problems)))


def _print_result(result: PipelineTestResult) -> None:
    from slackwater.dev.testing.report import headline, lines_of, more_rows, rows_of

    verb, style = ("passed", "green") if result.passed else ("failed", "red")
    print_text(f"{result.name}: {verb}, {result.seconds:.1f} s", style=style)
    if not result.passed:
        for difference in result.differences:
            print_text(headline(difference))
            print_table(*rows_of(difference))
            if more := more_rows(difference):
                print_text(more)
        for line in lines_of(result):
            print_text(line)
    sys.stdout.flush()


def _document(result: PipelineTestResult) -> dict[str, Any]:
    return {**dataclasses.asdict(result), "passed": result.passed, "seconds": round(result.seconds, 3)}
