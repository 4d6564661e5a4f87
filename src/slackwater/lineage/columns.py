"""From which columns of its inputs each column of a pipeline's rows is computed, as far as the definition says it.

What only Spark, or the code of a step, knows is left out: a column without an entry may come from anything. Conditions,
keys of joins and groups, which decide about rows, are not the origin of a value.
"""

from __future__ import annotations

from collections.abc import Mapping

from slackwater.errors import SlackwaterError
from slackwater.lineage.sql_origins import Computed, KnownColumns, Origins, query_origins
from slackwater.pipeline.definition import Pipeline, StepUse
from slackwater.project.project import Project
from slackwater.steps.registry import parameters_of
from slackwater.steps.transform.aggregate import Aggregate
from slackwater.steps.transform.clean_nan import CleanNan
from slackwater.steps.transform.data_quality import DataQuality
from slackwater.steps.transform.deduplicate import Deduplicate
from slackwater.steps.transform.delete_columns import DeleteColumns
from slackwater.steps.transform.filter import Filter
from slackwater.steps.transform.join import Join
from slackwater.steps.transform.lookup import Lookup
from slackwater.steps.transform.select import Select
from slackwater.steps.transform.sql import Sql
from slackwater.validation.published_columns import published_columns


def column_origins(project: Project, pipeline: Pipeline) -> KnownColumns:
    """Return the origins of the columns of the rows that a pipeline publishes, as far as they are known."""
    known: dict[str, KnownColumns] = {
        name: {column: {(name, column): Computed.IDENTITY} for column in project.sources[name].columns}
        for name in pipeline.sources
        if name in project.sources
    }

    for name, item in pipeline.published_tables.items():
        published = published_columns(project, item.table) if item.table in project.pipelines else None
        if published:
            columns = (*published, *project.pipelines[item.table].partition_columns)
            known[name] = {column: {(name, column): Computed.IDENTITY} for column in columns}

    def of_frame(name: str) -> KnownColumns:
        if name not in known:
            use = pipeline.steps.get(name)
            # Which columns a table of another system has is not known.
            known[name] = _of_step(name, use, {read: of_frame(read) for read in use.depends_on}) if use else {}
        return known[name]

    return of_frame(pipeline.publish.step)


def _of_step(  # noqa: PLR0911 - one return for each kind of step
    name: str, use: StepUse, inputs: Mapping[str, KnownColumns]
) -> KnownColumns:
    try:
        parameters = parameters_of(name, use)
    except SlackwaterError:  # of a package that is not installed here
        return {}
    first, *others = inputs.values() or ({},)
    match parameters:
        case Filter() | Deduplicate() | DataQuality():
            return first
        case DeleteColumns() as delete:
            return {column: origins for column, origins in first.items() if column not in delete.columns}
        case CleanNan():
            return {column: _at_least(Computed.TRANSFORMATION, origins) for column, origins in first.items()}
        case Select() as select:
            cast = {
                column: _at_least(Computed.TRANSFORMATION, origins) if column in select.cast else origins
                for column, origins in first.items()
            }
            return {
                select.rename.get(column, column): cast[column] for column in select.columns or cast if column in cast
            }
        case Aggregate() as aggregate:
            return _of_aggregate(aggregate, first)
        case Join() as join if join.how in {"inner", "left", "semi", "anti"}:
            return _of_join(join, first, others[0])
        case Lookup() as lookup:
            left = {column: origins for column, origins in first.items() if column != lookup.column}
            return left | {column: others[0][column] for column in lookup.values if column in others[0]}
        case Sql() as sql:
            return query_origins(sql.query, inputs)
    return {}


def _at_least(least: Computed, origins: Origins) -> Origins:
    return {column: max(least, computed) for column, computed in origins.items()}


def _of_aggregate(aggregate: Aggregate, rows: KnownColumns) -> KnownColumns:
    found = {column: rows[column] for column in aggregate.group_by if column in rows}
    for column, measure in aggregate.measures.items():
        # A number of rows comes from no column.
        if measure.column is not None and measure.column in rows:
            found[column] = _at_least(Computed.AGGREGATION, rows[measure.column])
    return found


def _of_join(join: Join, left: KnownColumns, right: KnownColumns) -> KnownColumns:
    if join.how in {"semi", "anti"}:
        return left
    keys = {key if isinstance(key, str) else key.right for key in join.keys}
    taken = [column for column in right if column not in keys] if join.take is None else join.take
    return left | {column: right[column] for column in taken if column in right and column not in left}
