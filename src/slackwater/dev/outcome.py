"""What one loop did, and what it did with each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from slackwater.arrow.reference import StepRecord
from slackwater.dev.sample import Sample
from slackwater.validation.yaml_file import FileProblem


class StepState(StrEnum):
    """What a loop did with a step."""

    DONE = "done"
    UNCHANGED = "unchanged"
    """Its definition, code and inputs are those of its last result, which was kept."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """A step that it reads has no result."""


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """The result of one step in one loop."""

    name: str
    """The name of the step in the pipeline."""
    step: str
    state: StepState
    error: str = ""
    """Why there is no result."""
    problem: FileProblem | None = None
    """The same with its position in the pipeline's file, if it has one."""
    record: StepRecord | None = None
    """What it did, and in how many seconds; None without a result."""
    columns: tuple[tuple[str, str], ...] = ()
    """Names and types of Spark."""
    rows: tuple[tuple[Any, ...], ...] = ()
    """The first rows: booleans, numbers and strings."""


@dataclass(frozen=True, kw_only=True)
class LoopResult:
    """What one loop did. There are no steps if the pipeline is not valid or an input has no rows."""

    seconds: float
    problems: tuple[FileProblem, ...] = ()
    """Of the pipeline and its sources."""
    error: str = ""
    """Why no step could run."""
    samples: Mapping[str, Sample] = field(default_factory=dict)
    """By the name of the input."""
    steps: tuple[StepOutcome, ...] = ()
    loads: Mapping[str, str] = field(default_factory=dict)
    """The load steps of the pipeline by name, which are not executed."""

    @property
    def succeeded(self) -> bool:
        """Whether every step has a result."""
        return bool(self.steps) and all(step.record is not None for step in self.steps)

    @property
    def executed(self) -> int:
        """The number of steps that have run, with or without a result."""
        return sum(step.state in (StepState.DONE, StepState.FAILED) for step in self.steps)
