"""Check the columns that steps need against those that their inputs can have, as far as these are known.

The types of columns are those of sources, and what steps keep of them. Only what is certain counts: the type of any
other column is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import sqlglot
from sqlglot import exp

from slackwater.pipeline.definition import Pipeline
from slackwater.problems import Path, Problem, unknown_name
from slackwater.steps.input_columns import Columns, InputColumns
from slackwater.steps.transform.aggregate import Aggregate
from slackwater.steps.transform.clean_nan import CleanNan
from slackwater.steps.transform.data_quality import DataQuality
from slackwater.steps.transform.deduplicate import Deduplicate
from slackwater.steps.transform.delete_columns import DeleteColumns
from slackwater.steps.transform.filter import Filter
from slackwater.steps.transform.join import Join
from slackwater.steps.transform.outliers import Outliers
from slackwater.steps.transform.select import Select
from slackwater.steps.transform.sql import Sql
from slackwater.validation.column_types import Types, has_hours, is_number, type_problems
from slackwater.validation.steps import CheckedStep
from slackwater.validation.yaml_file import YamlFile

# Functions whose result has the type of their column.
_SAME_TYPE = (exp.Min, exp.Max, exp.First, exp.Last, exp.AnyValue)


def check_columns(
    file: YamlFile,
    pipeline: Pipeline,
    checked: Mapping[str, CheckedStep],
    sources: Mapping[str, Columns | None],
    types: Mapping[str, Types],
) -> None:
    """Check the columns of every valid step and of `publish`, and report the problems to the pipeline's file.

    `sources` are the columns of the project's sources by name, None where they could not be read, and `types` their
    types.
    """
    frozen = {name: sources.get(name) for name in pipeline.sources}
    # A published table may also have columns of earlier definitions.
    known: dict[str, Columns | None] = {**dict.fromkeys(pipeline.tables), **frozen}

    def columns_of(name: str) -> Columns | None:
        if name not in known:
            known[name] = None  # while its inputs are looked up, which may be in a cycle
            if name in checked:
                use, step = pipeline.steps[name], checked[name]
                inputs = InputColumns({read: columns_of(read) for read in use.depends_on}, sources=frozen)
                known[name] = step.step.columns(inputs, step.parameters)
                for problem in inputs.problems:
                    file.report(problem, below=("steps", name, "with"))
        return known[name]

    for name in pipeline.steps:
        columns_of(name)
    published = pipeline.publish.step
    rows = columns_of(published) if published in pipeline.steps else None
    if rows is not None:
        _check_published(file, pipeline, rows)
    known_types = _types_of_steps(file, pipeline, checked, types)
    if pipeline.publish.metrics or pipeline.publish.hour:
        _check_values(file, pipeline, rows, known_types.get(published, {}))


def _check_published(file: YamlFile, pipeline: Pipeline, rows: Columns) -> None:
    """Report columns of the key that the rows lack, and those that publishing adds."""
    step = pipeline.publish.step
    for index, name in enumerate(pipeline.publish.key):
        if name not in (*pipeline.partition_columns, *rows):
            file.report(unknown_name(f"no column {name!r} in {step}", name, rows, path=("publish", "key", index)))
    for name in rows:
        if name.lower() in pipeline.partition_columns:
            message = f"{step} has a column {name!r}, and publishing adds `{name.lower()}` itself: rename the column"
            file.report(Problem(path=("publish", "step"), message=message))


def _check_values(file: YamlFile, pipeline: Pipeline, rows: Columns | None, types: Types) -> None:
    """Report metrics, and a column of hours, that the rows lack, if these are known, or that have another type.

    These are totals of what is known to be no number, and a column of hours whose known type has none.
    """
    publish = pipeline.publish
    # Spark matches names without regard to case.
    known = None if rows is None else [name.lower() for name in rows]
    by_name = {name.lower(): data_type for name, data_type in types.items()}
    read: list[tuple[Path, str, bool]] = [(("publish", "hour"), publish.hour, False)] if publish.hour else []
    read += [(("publish", "metrics", name), name, True) for name in publish.metrics if name not in publish.key]
    for path, name, at_key in read:
        data_type, aggregation = by_name.get(name), publish.metrics[name] if at_key else ""
        if known is not None and name.lower() not in known:
            message = f"no column {name!r} in {publish.step}"
            file.report(unknown_name(message, name, rows or (), path=path, at_key=at_key))
        elif data_type and aggregation in ("sum", "mean", "min", "max") and not is_number(data_type):
            message = f"{name} is of type {data_type}, and {aggregation} needs a number: cast it, or write none"
            file.report(Problem(path=path, message=message))
        elif data_type and not at_key and not has_hours(data_type):
            message = f"{name} is of type {data_type}: use a timestamp, or an integer with the local hour from 0 to 23"
            file.report(Problem(path=path, message=message))


def _types_of_steps(
    file: YamlFile, pipeline: Pipeline, checked: Mapping[str, CheckedStep], sources: Mapping[str, Types]
) -> dict[str, Types]:
    """Return the known types of the columns of each step, and report parameters that do not fit those of its inputs.

    `checked` are the valid steps; `sources` are the types of the columns of the project's sources by name.
    """
    known: dict[str, Types] = {name: sources.get(name, {}) for name in pipeline.sources}

    def types_of(name: str) -> Types:
        if name not in known:
            known[name] = {}  # while its inputs are looked up, which may be in a cycle
            if name in checked:
                inputs = {read: types_of(read) for read in pipeline.steps[name].depends_on}
                for problem in type_problems(checked[name].parameters, next(iter(inputs.values()), {})):
                    file.report(problem, below=("steps", name, "with"))
                known[name] = _result(checked[name], inputs)
        return known[name]

    for name in pipeline.steps:
        types_of(name)
    return known


def _result(checked: CheckedStep, inputs: Mapping[str, Types]) -> Types:
    first = next(iter(inputs.values()), {})
    match checked.parameters:
        case Filter() | Deduplicate() | DataQuality() | DeleteColumns() | CleanNan() | Outliers():
            return first
        case Select() as select:
            types = {**first, **select.cast}
            return {select.rename.get(name, name): types[name] for name in select.columns or types if name in types}
        case Join() as join:
            left, right = inputs.values()
            return {**_added(join, right), **left}
        case Aggregate() as aggregate:
            read = {name: name for name in aggregate.group_by} | {
                name: measure.column
                for name, measure in aggregate.measures.items()
                if measure.column is not None and measure.function in ("min", "max", "first", "last")
            }
            return {name: first[column] for name, column in read.items() if column in first}
        case Sql() as sql:
            return dict(_query_types(sql.query, inputs))
    return {}


def _added(join: Join, right: Types) -> Types:
    """Return the types of the columns that a join adds to those of its left input."""
    # Only these: a column of unknown type of the left input may have the name of another right one.
    if join.how in ("semi", "anti"):
        return {}
    keys = {key if isinstance(key, str) else key.right for key in join.keys}
    added = right.keys() - keys if join.take is None else right.keys() & set(join.take)
    return {name: right[name] for name in added}


def _query_types(query: str, inputs: Mapping[str, Types]) -> Iterator[tuple[str, str]]:
    """Yield columns of a query with their types: casts, and columns of its only table, if no query is inside of it."""
    select = sqlglot.parse_one(query, dialect="spark")
    if not isinstance(select, exp.Select):
        return
    tables = list(select.find_all(exp.Table))
    is_plain = len(tables) == 1 and not select.find(exp.CTE, exp.Subquery, exp.Lateral, exp.Pivot, exp.TableAlias)
    table = tables[0].name.lower() if is_plain else ""
    types = next((types for name, types in inputs.items() if name.lower() == table), {})
    by_name = {name.lower(): data_type for name, data_type in types.items()}
    for projection in select.expressions:
        value = projection.this if isinstance(projection, exp.Alias) else projection
        if isinstance(value, _SAME_TYPE):
            value = value.this
        if isinstance(value, exp.Cast):
            yield projection.alias_or_name, value.to.sql("spark").lower()
        # `name.field` may be a field of the column `name`.
        elif isinstance(value, exp.Column) and value.table.lower() in ("", table) and value.name.lower() in by_name:
            yield projection.alias_or_name, by_name[value.name.lower()]
