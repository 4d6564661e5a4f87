"""What a step is: its name, its parameters, and a function from DataFrames to a DataFrame.

A step's module can be imported without pyspark, since the command line and Lambdas check pipelines with it: pyspark
is imported inside `apply`, or for type checking only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Parameters(BaseModel):
    """Base of all steps' parameters: what stands under `with` in a pipeline; a wrong key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _anything(inputs: Sequence[str], parameters: Any) -> None:
    """Check nothing beyond the parameters' own model."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One transform. A module of `slackwater.steps` that holds `STEP = Step(...)` is a step: nothing else to edit."""

    name: str
    """The module's name."""
    parameters: type[Parameters]
    apply: Callable[[Mapping[str, DataFrame], Any], DataFrame]
    """Takes the frames it depends on, by name and in that order, and an instance of `parameters`.

    It plans and does not run: no action, no I/O. Raises `DefinitionError` for parameters that do not fit the frames."""
    inputs: range = range(1, 2)
    """How many inputs it takes."""
    check: Callable[[Sequence[str], Any], None] = _anything
    """Called with the inputs' names and the parameters before anything runs. Raises `DefinitionError`."""
