"""What a step is: a name, a model of its parameters, and a function that describes its result as a DataFrame.

An `Extract` reads rows from outside, a `Transform` turns frames into a frame, a `Load` writes a frame to the outside.
No step knows another one. The command line checks pipelines without Spark, so a step's module imports pyspark only
inside of functions, or for type checking.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from slackwater.errors import InputError
from slackwater.outbound.credentials import Secrets
from slackwater.problems import Problems
from slackwater.runs.period import Period
from slackwater.runs.record import Run
from slackwater.steps.files import ProjectFiles
from slackwater.steps.input_columns import Columns, InputColumns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from slackwater.outbound.guard import Outbound

Effect = dict[str, Any]
"""What a step did to the rows, as JSON values by name, such as `{"filled.age": 3}`."""

Merge = Literal["key", "sum", "min", "max"]
"""What a column of grouped rows is: a key, or a value of which two groups with the same keys give one in this way."""

ROWS_OUT = "rows_out"
"""The name of the aggregate that is the number of rows of a step's result."""
ROWS_REJECTED, REJECTED_ROWS = "rows_rejected", "rejected_rows"
"""Names in an effect: the number of rows that a step has rejected, and the URIs of the manifests that name them."""
REJECTED_RULE, REJECTED_REASON = "__rule", "__reason"
"""Columns of rejected rows."""


class Parameters(BaseModel):
    """Base of the parameters of all steps. A pipeline states them under `with`; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def no_source(name: str) -> DataFrame:
    """Raise `InputError`: the step does not run in a pipeline."""
    raise InputError(f"source {name} can be read in a run of a pipeline only: the run reads the events that it froze")


class LazyFrames(Mapping[str, "DataFrame"]):
    """Frames by name, each of which is read when it is looked up."""

    def __init__(self, names: Collection[str], read: Callable[[str], DataFrame]) -> None:
        self._names, self._read = names, read

    def __getitem__(self, name: str) -> DataFrame:
        """Return the frame. Raises `KeyError` for an unknown name."""
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass(frozen=True, kw_only=True)
class StepContext:
    """What a step may use besides its inputs and parameters. Outside of a run, only `spark` is always there."""

    spark: SparkSession
    observe: Callable[[DataFrame, Mapping[str, Column]], DataFrame] = lambda frame, _counts: frame
    """Return the frame such that Spark computes the aggregates, given by name, in the pass that computes the frame.

    Their values are the step's observed values. An aggregate may not be distinct, nested in another one, or a window.
    One with the name `rows_out` is the number of rows of the step's result, which Spark then does not count again.
    """
    store_rejected: Callable[[str, DataFrame], str] | None = None
    """Store the rows that the step of this name has rejected; return the URI of their manifest."""
    run: Run | None = None
    """The run. Load steps use its attempt: they never replace what a later attempt has loaded."""
    day: Period | None = None
    """The day of the run."""
    files: ProjectFiles | None = None
    """The project's own files."""
    read_source: Callable[[str], DataFrame] = no_source
    """Return the events of a source that the run has frozen, by its name."""
    earlier_versions: Mapping[str, DataFrame] = field(default_factory=dict)
    """Earlier versions of the run's data, by name. A version is read when it is looked up.

    They are the results of the stages that the step's own is computed from, by the stage's name. In a pipeline with
    `versions: all`, they are all inputs of the run, and the results of all steps before: of the earlier steps of the
    stage, and of all stages that have ended before it starts, those of parallel branches included.
    """
    secrets: Secrets | None = None
    """Credentials of other systems, by reference, as sources name them."""
    outbound: Outbound | None = None
    """The guard of connections to other systems. Without it, only public addresses are allowed."""


def always(_parameters: Any) -> bool:
    """Return True."""
    return True


def any_input(_parameters: Any, _position: int) -> bool:
    """Return True."""
    return True


def first_input(_parameters: Any, position: int) -> bool:
    """Return whether it is the position of the first input."""
    return position == 0


def verify_nothing(parameters: Any, effect: Effect) -> None:
    """Accept every effect."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Base of all steps. The registry finds a step in the variable `STEP` of a module."""

    name: str
    """The name of the module."""
    parameters: type[Parameters]
    inputs: tuple[str, ...] = ("rows",)
    """What each input is, in the order of `depends_on`."""
    optional_inputs: tuple[str, ...] = ()
    """Inputs that may follow `inputs`."""
    many_inputs: bool = False
    """Whether the step accepts any number of inputs, at least one."""
    check: Callable[[Sequence[str], Any], None] = lambda _inputs, _parameters: None
    """Called with the names of the inputs and the parameters before anything runs. Raises `DefinitionError`."""
    columns: Callable[[InputColumns, Any], Columns | None] = lambda _inputs, _parameters: None
    """Called with the columns of the inputs, as far as they are known, and the parameters, when a project is checked.

    It reports columns that an input lacks to its first argument, and returns the columns of the result, or None if they
    are not known. A run calls it again with all columns of the inputs, and fails with what it reports.
    """


@dataclass(frozen=True, kw_only=True)
class Extract(Step):
    """A step without inputs, which reads rows from outside of the pipeline."""

    read: Callable[[Any, StepContext], DataFrame]
    """Called with an instance of `parameters`. Raises `InputError` naming the field, the problem and the remedy."""
    inputs: tuple[str, ...] = field(default=(), init=False)


@dataclass(frozen=True, kw_only=True)
class Transform(Step):
    """A step that turns one or more frames into one."""

    apply: Callable[[Mapping[str, DataFrame], Any, StepContext], DataFrame]
    """Called with the input frames by name, in the order of `depends_on`, and an instance of `parameters`.

    It only describes the result: it triggers no Spark action and does no I/O. Raises `DefinitionError` if the
    parameters do not fit the frames.
    """
    report: Callable[[Any, Mapping[str, Any]], Effect] = lambda _parameters, observed: dict(observed)
    """Called with the parameters and the observed values, after Spark has computed the rows. Returns the effect."""
    add_examples: Callable[[Mapping[str, DataFrame], Any, Effect], Effect] = lambda _frames, _parameters, effect: effect
    """Called with the input frames by name, the parameters and the effect. Returns the effect with examples of rows.

    It may run a query for them, when the effect says that there are such rows.
    """
    rejected_rows: Callable[[Mapping[str, DataFrame], Any], DataFrame] | None = None
    """Called with the input frames by name and the parameters, if the effect says that the step has rejected rows.

    Returns these rows, with the columns `REJECTED_RULE` and `REJECTED_REASON`.
    """
    verify: Callable[[Any, Effect], None] = verify_nothing
    """Called with the parameters and the effect, before any row is published. Raises `DataError` to fail the run."""
    reads_rows_once: Callable[[Any], bool] = always
    """Called with the parameters. Returns whether Spark reads each row of the inputs exactly once to compute the rows.

    If not, the inputs are computed before the step, so that their rows are counted once.
    """
    reads_all_rows: Callable[[Any, int], bool] = lambda _parameters, _position: False
    """Called with the parameters and the position of an input. Returns whether Spark reads all rows of this input to
    compute the rows, whatever the other inputs contain.

    If not, an input whose rows were checked is computed before the step: a row that nobody needs must fail a check too.
    """
    keeps_rows: Callable[[Any], bool] = lambda _parameters: False
    """Called with the parameters. Returns whether the result always has the rows and the columns of the first input: a
    run that stores the rows of all steps does not store them a second time.
    """
    is_row_by_row: Callable[[Any], bool] = lambda _parameters: False
    """Called with the parameters. Returns whether each row of the result depends on one row of the only input, and on
    nothing else. The numbers in the effects of two parts of the rows then add up to those of all rows.
    """
    merges: Callable[[Any], Sequence[Merge] | None] = lambda _parameters: None
    """Called with the parameters of a step that groups the rows of its only input. Returns for each column of the
    result, in order, how the results of two parts of the rows are merged; None if that is not possible.
    """

    def result(self, frames: Mapping[str, DataFrame], parameters: Parameters, context: StepContext) -> DataFrame:
        """Return what `apply` returns. Raises what it raises, and `DefinitionError` for what `columns` reports."""
        inputs = InputColumns({name: tuple(frame.columns) for name, frame in frames.items()})
        self.columns(inputs, parameters)
        if inputs.problems:
            raise Problems(*inputs.problems)
        return self.apply(frames, parameters, context)


@dataclass(frozen=True, kw_only=True)
class Load(Step):
    """A step that writes rows to the outside, after the day is published. No other step reads it."""

    write: Callable[[DataFrame, Any, StepContext], Effect]
    """Called with the rows and an instance of `parameters`, once for each input. Returns what was written.

    A repeated call replaces what the first one has written. Raises `InputError` or `CloudError`.
    """
    check_period: Callable[[Any, Literal["day", "hour"]], None] = lambda _parameters, _period: None
    """Called with the parameters and the `period` of the pipeline when a project is checked. Raises `DefinitionError`
    if the rows of two periods would replace each other."""
    of_input: Callable[[Any, str], Any] = lambda parameters, _name: parameters
    """Called with the parameters and the name of an input. Returns the parameters with which its rows are written."""
