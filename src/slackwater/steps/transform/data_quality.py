"""`data_quality`: check rules, and report what they found as data.

| Rule | A row fails if | Not checked |
|---|---|---|
| `not_null` | the value is null or NaN | |
| `unique` | another row has the same values in `columns` | rows with a null in `columns` |
| `range` | the value is less than `min` or more than `max`, or NaN | null |
| `regex` | the whole string does not match `pattern`, in Java's syntax | null |
| `allowed` | the value is none of `values` | null |
| `referential` | no row of the second input has the values of `columns` | rows with a null in `columns` |

Two rules check the frame as a whole: `row_count` fails if the number of rows is less than `min` or more than `max`;
`freshness` fails if the newest value of a timestamp column is more than `hours` before the end of the day, or if there
is no value.

What happens if a rule fails is its `severity`: `fail` (the default) fails the run before anything is published,
`reject` leaves the failed rows out of the result, and `warn` only reports them. `invalidate` fails the run, and gives
the step's first input, a source or a table of another pipeline, a verdict (docs/verdicts.md), so that no other pipeline
uses it; the next run of the day that publishes clears it. Each rule sees all rows of the input,
also those that another rule rejects. `reject` with `unique` leaves out all rows of a repeated key: a `deduplicate` step
keeps one of them. Without rows, the rules of rows have nothing to check, and do not fail.

`unique` shuffles the rows by its columns, and `referential` joins the second input.

A run stores the rejected rows with the first rule that each of them fails, and why
(`slackwater sideline PIPELINE --date DATE`); they have the key and the retention of the source that they come from. A
run reads its inputs anew, so after a change of the rules, the next run of the day takes in the rows that pass.

Effect: `rows_rejected`, the URIs of the manifests of these rows (`rejected_rows`), and `results`: for each rule `rule`,
`columns`, `severity`, the number of rows `checked` and `failed`, and up to three `examples`: values of `columns` and
`key` of failed rows. A rule of the whole frame counts itself as 1 in `failed`; its example is the number of rows or the
newest value.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from slackwater.errors import DataError, DefinitionError, InputInvalid
from slackwater.steps.columns import (
    Scalar,
    all_quoted,
    example,
    find_examples,
    require_distinct,
)
from slackwater.steps.input_columns import Columns, InputColumns, each
from slackwater.steps.quality_rules import (
    Allowed,
    Freshness,
    NotNull,
    Range,
    Referential,
    Regex,
    RowCount,
    Rule,
    Unique,
    columns_of,
    reason_of,
)
from slackwater.steps.step import (
    REJECTED_REASON,
    REJECTED_RULE,
    ROWS_OUT,
    ROWS_REJECTED,
    Effect,
    Parameters,
    StepContext,
    Transform,
    first_input,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class DataQuality(
    Parameters,
    json_schema_extra={
        "examples": [
            {
                "rules": [
                    {"rule": "not_null", "column": "carrier"},
                    {"rule": "range", "column": "distance", "min": 1, "max": 6000, "severity": "reject"},
                    {"rule": "row_count", "min": 100, "severity": "warn"},
                ],
                "key": ["carrier", "flight"],
            }
        ]
    },
):
    """Parameters of `data_quality`."""

    rules: Annotated[tuple[Annotated[Rule, Field(discriminator="rule")], ...], Field(min_length=1)]
    """The rules; the name of each is in `rule`."""
    key: tuple[str, ...] = ()
    """Columns that identify a row. Examples of failed rows include them."""


def check(inputs: Sequence[str], parameters: DataQuality) -> None:
    """Raise `DefinitionError` for a rule without limits, and for a second input that is missing or not needed."""
    for index, rule in enumerate(parameters.rules):
        field = f"rules.{index}"
        if isinstance(rule, Range | RowCount) and rule.min is None and rule.max is None:
            raise DefinitionError(f"{field}.min: {rule.rule} needs min, max or both")
        if isinstance(rule, Range | RowCount) and _is_less(rule.max, rule.min):
            raise DefinitionError(f"{field}.max: {rule.max} is less than min, {rule.min}")
        if isinstance(rule, Unique | Referential):
            require_distinct(rule.columns, field=f"{field}.columns")
        if isinstance(rule, Referential):
            if len(inputs) == 1:
                raise DefinitionError(f"{field}.rule: referential needs a second input in `depends_on`, the reference")
            if len(rule.reference_columns or rule.columns) != len(rule.columns):
                raise DefinitionError(
                    f"{field}.reference_columns: {len(rule.columns)} columns are needed, one for each of `columns`"
                )
    if len(inputs) > 1 and not any(isinstance(rule, Referential) for rule in parameters.rules):
        raise DefinitionError(f"rules: the second input {inputs[1]} is not needed, because no rule is referential")


def _is_less(one: Scalar | None, other: Scalar | None) -> bool:
    """Whether both are numbers, and the first one is less."""
    return isinstance(one, int | float) and isinstance(other, int | float) and one < other


def result_columns(inputs: InputColumns, parameters: DataQuality) -> Columns | None:
    """Return the columns of the first input."""
    inputs.require(0, each(parameters.key, "key"))
    for index, rule in enumerate(parameters.rules):
        if isinstance(rule, Unique | Referential):
            inputs.require(0, each(rule.columns, "rules", index, "columns"))
        elif not isinstance(rule, RowCount):
            inputs.require(0, {("rules", index, "column"): rule.column})
        if isinstance(rule, Referential):
            field = "columns" if rule.reference_columns is None else "reference_columns"
            inputs.require(1, each(rule.reference_columns or rule.columns, "rules", index, field))
    return inputs[0]


def is_row_by_row(parameters: DataQuality) -> bool:
    """Return whether each rule checks a row by itself."""
    return all(isinstance(rule, NotNull | Range | Regex | Allowed) for rule in parameters.rules)


def keeps_rows(parameters: DataQuality) -> bool:
    """Return whether no rule rejects rows."""
    return all(rule.severity != "reject" for rule in parameters.rules)


def apply(frames: Mapping[str, DataFrame], parameters: DataQuality, context: StepContext) -> DataFrame:
    """Return the rows that no rule rejects.

    Raises `DefinitionError` for a column of a wrong type, a pattern that Java does not accept, and a freshness rule
    outside of a run.
    """
    from pyspark.sql import functions as sf

    from slackwater.steps.quality_conditions import failed_column, freshness_counts, with_failed

    frame = next(iter(frames.values()))
    counts: dict[str, Column] = {}
    checked, rejected = frame, []
    for index, rule in enumerate(parameters.rules):
        field = f"rules.{index}"
        if isinstance(rule, RowCount):
            counts[f"{index}.checked"] = sf.count(sf.lit(1))
        elif isinstance(rule, Freshness):
            counts |= freshness_counts(frame, rule, field, context)
        else:
            checked, applies = with_failed(checked, index, rule, frames)
            counts[f"{index}.checked"] = sf.count(sf.when(applies, 1))
            counts[f"{index}.failed"] = sf.count_if(failed_column(index))
            if rule.severity == "reject":
                rejected.append(sf.col(failed_column(index)))
    is_rejected = reduce(or_, rejected) if rejected else sf.lit(False)
    counts |= {"rejected": sf.count_if(is_rejected), ROWS_OUT: sf.count_if(~is_rejected)}
    checked = context.observe(checked, counts)
    return (checked.where(~is_rejected) if rejected else checked).select(*all_quoted(frame.columns))


def add_examples(frames: Mapping[str, DataFrame], parameters: DataQuality, effect: Effect) -> Effect:
    """Return the effect with values of `columns` and `key` of rows that have failed a rule."""
    from pyspark.sql import functions as sf

    from slackwater.steps.quality_conditions import failed_column, with_failed

    frame = checked = next(iter(frames.values()))
    examples = {}
    for index, (rule, result) in enumerate(zip(parameters.rules, effect["results"], strict=True)):
        if result["failed"] and not isinstance(rule, RowCount | Freshness):
            checked, _ = with_failed(checked, index, rule, frames)
            shown = example(frame, [*parameters.key, *(n for n in columns_of(rule) if n not in parameters.key)])
            examples[str(index)] = sf.when(sf.col(failed_column(index)), shown)
    if not examples:
        return effect
    found = find_examples(checked, examples)
    results = [
        {**result, "examples": found.get(str(index), result["examples"])}
        for index, result in enumerate(effect["results"])
    ]
    return {**effect, "results": results}


def rejected_rows(frames: Mapping[str, DataFrame], parameters: DataQuality) -> DataFrame:
    """Return the rows that rules reject, with the first of these rules and why."""
    from pyspark.sql import functions as sf

    from slackwater.steps.quality_conditions import failed_column, with_failed

    frame = checked = next(iter(frames.values()))
    rules, reasons = [], []
    for index, rule in enumerate(parameters.rules):
        if rule.severity == "reject":
            checked, _ = with_failed(checked, index, rule, frames)
            rules.append(sf.when(sf.col(failed_column(index)), sf.lit(rule.rule)))
            reasons.append(sf.when(sf.col(failed_column(index)), sf.lit(reason_of(rule))))
    found = checked.withColumn(REJECTED_RULE, sf.coalesce(*rules)).withColumn(REJECTED_REASON, sf.coalesce(*reasons))
    names = [REJECTED_RULE, REJECTED_REASON, *frame.columns]
    return found.where(sf.col(REJECTED_RULE).isNotNull()).select(*all_quoted(names))


def report(parameters: DataQuality, observed: Mapping[str, Any]) -> Effect:
    """Return the results of the rules, in order; those of rows have no examples yet."""
    results = []
    for index, rule in enumerate(parameters.rules):
        checked = observed[f"{index}.checked"]
        examples: list[dict[str, Any]]
        match rule:
            case RowCount():
                failed = int(checked < (rule.min or 0) or (rule.max is not None and checked > rule.max))
                examples = [{"rows": checked}] if failed else []
            case Freshness():
                failed = observed[f"{index}.failed"]
                examples = [{rule.column: observed[f"{index}.newest"]}] if failed else []
            case _:
                failed, examples = observed[f"{index}.failed"], []
        results.append(
            {
                "rule": rule.rule,
                "columns": list(columns_of(rule)),
                "severity": rule.severity,
                "checked": checked,
                "failed": failed,
                "examples": examples,
            }
        )
    return {"results": results, ROWS_REJECTED: observed["rejected"]}


def verify(_parameters: DataQuality, effect: Effect) -> None:
    """Raise `DataError` with counts and examples if a rule of severity `fail` has failed.

    Raises `InputInvalid`, which is one, if a rule of severity `invalidate` has.
    """
    faults, severities = [], set()
    for result in effect["results"]:
        if result["severity"] in ("fail", "invalidate") and result["failed"]:
            severities.add(result["severity"])
            columns = f" of {', '.join(result['columns'])}" if result["columns"] else ""
            shown = ", ".join(json.dumps(example, ensure_ascii=False) for example in result["examples"])
            whole = result["rule"] in ("row_count", "freshness")
            counts = "" if whole else f" in {result['failed']} of {result['checked']} checked rows"
            faults.append(f"{result['rule']}{columns} failed{counts}{': ' if whole else ', such as '}{shown}")
    if faults:
        message = f"{'; '.join(faults)}. Correct the source's data, or set the severity of the rule to warn or reject"
        raise (InputInvalid if "invalidate" in severities else DataError)(message)


STEP = Transform(
    name="data_quality",
    parameters=DataQuality,
    apply=apply,
    optional_inputs=("reference",),
    check=check,
    report=report,
    add_examples=add_examples,
    rejected_rows=rejected_rows,
    verify=verify,
    reads_all_rows=first_input,
    keeps_rows=keeps_rows,
    is_row_by_row=is_row_by_row,
    columns=result_columns,
)
