"""A step: its name, its parameters, and a function from DataFrames to a DataFrame.

The command line checks pipelines without Spark. So a step's module imports pyspark only inside of functions, or for
type checking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Parameters(BaseModel):
    """Base of the parameters of all steps. A pipeline states them under `with`; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def check_nothing(inputs: Sequence[str], parameters: Any) -> None:
    """Accept all inputs and parameters: the model of the parameters has checked them."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One transform. The registry finds it in the variable `STEP` of a module of `slackwater.steps`."""

    name: str
    """The name of the module."""
    parameters: type[Parameters]
    apply: Callable[[Mapping[str, DataFrame], Any], DataFrame]
    """Called with the input frames by name, in the order of `depends_on`, and an instance of `parameters`.

    It only describes the result: it triggers no Spark action and does no I/O. Raises `DefinitionError` if the
    parameters do not fit the frames.
    """
    inputs: range = range(1, 2)
    """The numbers of inputs that the step accepts."""
    check: Callable[[Sequence[str], Any], None] = check_nothing
    """Called with the names of the inputs and the parameters before anything runs. Raises `DefinitionError`."""
