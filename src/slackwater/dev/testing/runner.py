"""Run one test of a pipeline with the loop of `slackwater dev`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from slackwater.dev.loop import DevLoop, InvalidDefinitions
from slackwater.dev.outcome import StepOutcome, StepState
from slackwater.dev.sample import Sample
from slackwater.dev.samples import Samples
from slackwater.dev.testing.differences import StepDifference, compare_rows
from slackwater.dev.testing.input_files import input_files, periods_that_are_not_read
from slackwater.dev.testing.read_tests import WrittenTest
from slackwater.errors import SlackwaterError
from slackwater.formatting import counted
from slackwater.pipeline.definition import Pipeline
from slackwater.problems import Path as Keys
from slackwater.problems import Problem, Problems
from slackwater.project.project import Project
from slackwater.steps.step import StepContext
from slackwater.validation.yaml_file import FileProblem

# Of an input and of a step that reads its rows itself: no limit, as far as Spark has none.
_ROWS = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class PipelineTestResult:
    """What one test has found. It has passed if nothing is wrong."""

    name: str
    file: Path
    seconds: float
    problems: tuple[FileProblem, ...] = ()
    """Of its rows, and of the definitions and the steps that it runs."""
    errors: tuple[str, ...] = ()
    """What is wrong and has no position in a file."""
    differences: tuple[StepDifference, ...] = ()
    notes: tuple[str, ...] = ()
    """Which rows of the inputs the pipeline does not read."""

    @property
    def passed(self) -> bool:
        """Whether the pipeline ran, and made the expected rows."""
        return not (self.problems or self.errors or self.differences)


def run_test(
    test: WrittenTest,
    folder: Path,
    pipeline: Pipeline | None,
    context: Callable[[Samples], StepContext],
    *,
    check: Callable[[], None] = lambda: None,
) -> PipelineTestResult:
    """Run a test of the project in `folder`. `pipeline` is its pipeline, None if the definition has problems.

    `context` returns what steps may use, and is called only if all rows can be read. `check` is called after each step,
    and ends the test with an exception. What goes wrong in the pipeline is part of the result.
    """
    began = time.monotonic()
    found = _Found(test)
    with TemporaryDirectory(prefix="slackwater-test-") as scratch:
        try:
            found.run(folder, pipeline, context, check, Path(scratch))
        except InvalidDefinitions as invalid:
            found.problems += invalid.problems
            found.errors += [invalid.error] if invalid.error else []
        except Problems as problems:
            found.report(problems)
        except SlackwaterError as error:
            # The loop reads the rows as those of an option of `slackwater dev`.
            found.errors.append(str(error).removeprefix("--input: "))
    return PipelineTestResult(
        name=test.name,
        file=test.file.path,
        seconds=time.monotonic() - began,
        problems=tuple(found.problems),
        errors=tuple(found.errors),
        differences=tuple(found.differences),
        notes=tuple(found.notes),
    )


class _Found:
    """Runs a test, and keeps what is wrong."""

    def __init__(self, test: WrittenTest) -> None:
        self._test = test
        self.problems: list[FileProblem] = []
        self.errors: list[str] = []
        self.differences: list[StepDifference] = []
        self.notes: list[str] = []

    def report(self, problems: Problems, *, below: Keys = ()) -> None:
        """Add problems of the test's own file."""
        for problem in problems.problems:
            self._test.file.report(problem, below=below)
            self.problems.append(self._test.file.problems[-1])

    def run(
        self,
        folder: Path,
        pipeline: Pipeline | None,
        context: Callable[[Samples], StepContext],
        check: Callable[[], None],
        scratch: Path,
    ) -> None:
        """Read the rows, run the pipeline, and compare its results."""
        test = self._test.definition
        beside = self._test.file.path.parent
        files = input_files(test, pipeline, folder=beside, scratch=scratch) if pipeline else {}
        samples = Samples(files, rows=_ROWS, connect=_no_cloud, may_be_empty=True)
        loop = DevLoop(folder, test.pipeline, test.date, samples=samples, rows=_ROWS, show=0)
        taken = loop.take_samples()
        self._check_inputs(taken, loop.read_periods() if pipeline and pipeline.published_tables else {})
        if self.problems:
            return
        check()

        def report(_: StepOutcome) -> None:
            check()

        result = loop.run(lambda: context(samples), report=report)
        self.problems += result.problems
        self.errors += [result.error] if result.error else []
        for step in result.steps:
            if step.state is StepState.FAILED and step.problem:
                self.problems.append(step.problem)
            elif step.state is StepState.FAILED:
                self.errors.append(step.error)
        for name, rows in test.expect.items():
            actual = loop.rows(name)
            check()
            try:
                lines = [self._test.file.line(("expect", name, index)) for index in range(len(rows))]
                if actual is not None and (difference := compare_rows(name, rows, actual, lines)):
                    self.differences.append(difference)
            except Problems as problems:
                self.report(problems, below=("expect", name))

    def _check_inputs(self, samples: Mapping[str, Sample], read: Mapping[str, Sequence[str]]) -> None:
        test = self._test.definition
        for name, sample in samples.items():
            allowed = test.rejected.get(name, 0)
            if sample.rejected != allowed:
                self.report(Problems(*self._rejections(name, sample, allowed)))
            parts = [(sample.rejected, "rejected"), (sample.of_other_days, "of another day")]
            parts += [(sample.duplicates, "with the id of another one")]
            if left_out := [f"{count:,} {what}" for count, what in parts if count]:
                rows = counted(sample.table.num_rows, "row")
                self.notes.append(f"{name}: the pipeline reads {rows}; left out: {', '.join(left_out)}")
        tables = {name: sample.table for name, sample in samples.items()}
        if problems := list(periods_that_are_not_read(test, read, tables)):
            self.report(Problems(*problems))

    def _rejections(self, name: str, sample: Sample, allowed: int) -> Iterator[Problem]:
        if allowed:
            message = f"{counted(sample.rejected, 'row')} rejected, not {allowed:,}"
            yield Problem(path=("rejected", name), message=message)
        is_file = isinstance(self._test.definition.inputs[name], str)
        for row in sample.first_rejected:
            if is_file:
                yield Problem(path=("inputs", name), message=f"rejected: {row}")
            else:  # each line of the file is a row
                path = ("inputs", name, row.position)
                yield Problem(path=path, message=f"the source rejects row {row.position + 1}: {row.reason}")


def _no_cloud(_: Project) -> NoReturn:
    raise AssertionError("every input of a test has its own rows")
