"""The loop of `slackwater dev`: load the definitions, take samples, run the steps that have changed."""

from __future__ import annotations

import dataclasses
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from slackwater.dev.kept_steps import KeptSteps
from slackwater.dev.outcome import LoopResult, StepOutcome, StepState
from slackwater.dev.sample import Sample
from slackwater.dev.samples import Samples
from slackwater.dev.step_code import StepCode
from slackwater.errors import DefinitionError, SlackwaterError
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.inputs.table_inputs import read_periods
from slackwater.runs.period import check_kind, period_of
from slackwater.steps.step import StepContext
from slackwater.validation.check_project import check_project
from slackwater.validation.failures import failure_in_file
from slackwater.validation.yaml_file import FileProblem

# Seconds between two looks at the files, and between two that find the same files after a change: an editor may still
# be writing.
_INTERVAL, _SETTLED = 0.3, 0.05

Snapshot = dict[Path, tuple[int, int]]
"""When each file was changed last, in nanoseconds, and its size in bytes."""


class InvalidDefinitions(DefinitionError):
    """The pipeline or its sources have problems, or the module of a step cannot be imported."""

    def __init__(self, problems: tuple[FileProblem, ...] = (), error: str = "") -> None:
        super().__init__("\n".join([*map(str, problems), error]).strip())
        self.problems, self.error = problems, error


class DevLoop:
    """Tries one pipeline for one date, once for each call of `run`."""

    def __init__(self, folder: Path, pipeline: str, date: str, *, samples: Samples, rows: int, show: int) -> None:
        """Try a pipeline of the project in `folder` for a date, YYYY-MM-DD.

        `rows` is the largest number of rows that an extract step reads, and `show` how many first rows of a step an
        outcome has.
        """
        self._folder, self._pipeline, self._date = folder, pipeline, date
        self._samples, self._code = samples, StepCode()
        self._steps = KeptSteps(show=show, max_extracted=rows, describe=self._describe)

    def snapshot(self) -> Snapshot:
        """Return the state of the files that decide the result: the pipeline, the sources, and the code of steps."""
        found: Snapshot = {}
        for path in (self._file(), *sorted((self._folder / "sources").glob("*.yaml")), *self._code.files()):
            try:
                status = path.stat()
            except FileNotFoundError:  # an editor is replacing it, or the file is no longer there
                continue
            found[path] = status.st_mtime_ns, status.st_size
        return found

    def wait_for_change(self, before: Snapshot, *, check: Callable[[], None]) -> list[Path]:
        """Return when the files are no longer those of an earlier snapshot, with the files that have changed.

        `check` is called again and again meanwhile, and ends the wait with an exception.
        """
        while (now := self.snapshot()) == before:
            check()
            time.sleep(_INTERVAL)
        while True:
            time.sleep(_SETTLED)
            later = self.snapshot()
            if later == now:
                return sorted(path for path in {*before, *now} if before.get(path) != now.get(path))
            now = later

    def take_samples(self) -> dict[str, Sample]:
        """Return the samples of all inputs by name, which are taken now unless they were before.

        Raises `InvalidDefinitions`, and `InputError` for files of an unknown input, and for an input without rows.
        """
        project, pipeline = self._load()
        self._samples.require_known_files(pipeline)
        return self._samples_of(project, pipeline)

    def read_periods(self) -> dict[str, list[str]]:
        """Return the days or hours of each published table that a run reads, in order. Raises `InvalidDefinitions`."""
        project, pipeline = self._load()
        day = period_of(self._date, pipeline.timezone)
        tables = pipeline.published_tables.items()
        return {name: read_periods(item, day, pipeline, pipelines=project.pipelines) for name, item in tables}

    def run(
        self, context: Callable[[], StepContext], *, report: Callable[[StepOutcome], None] = lambda _: None
    ) -> LoopResult:
        """Run the steps that have changed since the last call, and those that read them.

        `context` returns what steps may use besides their inputs; it is called when all samples are there. `report`
        gets the outcome of each step when it is known. Problems and failures are part of the result.
        """
        began = time.monotonic()
        problems: tuple[FileProblem, ...] = ()
        error, samples, steps, loads = "", dict[str, Sample](), list[StepOutcome](), dict[str, str]()
        try:
            self._code.reload()
            project, pipeline = self._load()
            check_kind(self._date, pipeline, argument="--date")
            samples = self._samples_of(project, pipeline)
            day = period_of(self._date, pipeline.timezone)
            code = {use.step: self._code.digest_of(use.step) for use in pipeline.steps.values()}
            for outcome in self._steps.run(pipeline, samples, dataclasses.replace(context(), day=day), code):
                if outcome.state is StepState.FAILED:
                    problem = failure_in_file(self._file(), f"steps.{outcome.error}")
                    outcome = dataclasses.replace(outcome, problem=problem)  # noqa: PLW2901
                report(outcome)
                steps.append(outcome)
            loads = {name: use.step for name, use in pipeline.load.items()}
        except InvalidDefinitions as invalid:
            problems, error = invalid.problems, invalid.error
        except SlackwaterError as failure:
            error = str(failure)
        seconds = time.monotonic() - began
        return LoopResult(
            seconds=seconds, problems=problems, error=error, samples=samples, steps=tuple(steps), loads=loads
        )

    def rows(self, step: str) -> pa.Table | None:
        """Return all rows of a step after the last call of `run`; None if it has no result.

        Raises `DataError` for types that Arrow lacks.
        """
        return self._steps.rows(step)

    def _file(self) -> Path:
        return self._folder / "pipelines" / f"{self._pipeline}.yaml"

    def _load(self) -> tuple[Project, Pipeline]:
        """Return the project's valid definitions. Raises `InvalidDefinitions`, and `UnknownName` without the file."""
        try:
            checked = check_project(self._folder)
        except SlackwaterError:
            raise
        except Exception as error:
            # The check imports the modules of steps, which may raise anything.
            raise InvalidDefinitions(error=self._describe(error)) from error
        pipeline = checked.pipelines.get(self._pipeline)
        sources = pipeline.sources if pipeline else [path.stem for path in (self._folder / "sources").glob("*.yaml")]
        # Problems of other pipelines do not matter here.
        files = {self._file(), *(self._folder / "sources" / f"{name}.yaml" for name in sources)}
        problems = tuple(problem for problem in checked.problems if problem.file in files)
        if problems:
            raise InvalidDefinitions(problems)
        project = Project.of(checked.sources, checked.pipelines)
        return project, project.pipeline(self._pipeline)

    def _samples_of(self, project: Project, pipeline: Pipeline) -> dict[str, Sample]:
        day = period_of(self._date, pipeline.timezone)
        return {name: self._samples.of(name, project, pipeline, day) for name in pipeline.inputs}

    def _describe(self, error: Exception) -> str:
        """Return the message of an error; of an unexpected one also its type and where the code of a step raised it."""
        if isinstance(error, SlackwaterError):
            return str(error)
        if isinstance(error, SyntaxError):
            return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
        frames = traceback.extract_tb(error.__traceback__)
        own = {str(path) for path in self._code.files()}
        raised = next((frame for frame in reversed(frames) if frame.filename in own), frames[-1])
        return f"{type(error).__name__}: {error} ({raised.filename}:{raised.lineno})"
