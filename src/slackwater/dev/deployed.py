"""Samples from the deployed system: stored events, published days, and tables of other systems."""

from __future__ import annotations

import io
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from slackwater.aws.objects import s3_store
from slackwater.aws.secrets import CloudSecrets
from slackwater.client.resources import ClientResources
from slackwater.dev.sample import Sample, events_of_day, first_of_each_id
from slackwater.errors import InputError, ObjectInvalid
from slackwater.formatting import counted
from slackwater.outbound.credentials import Secrets
from slackwater.outbound.guard import Outbound
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.table_inputs import IcebergInput
from slackwater.project.project import Project
from slackwater.runs.inputs.consistent_listing import consistent_listing
from slackwater.runs.inputs.partition_objects import objects_of_partitions
from slackwater.runs.inputs.table_inputs import published_periods
from slackwater.runs.packing.event_reader import EventReader
from slackwater.runs.packing.index import OBJECT, ROW
from slackwater.runs.period import Period
from slackwater.sources.definition import Source
from slackwater.sources.event_schema import ARROW_TYPES, BATCH_ID, EXTRA, RECEIVED_AT, TIMESTAMP
from slackwater.sources.partitions import object_partition
from slackwater.steps.files import ProjectFiles
from slackwater.storage import ObjectFile, StoredObject

# Bytes of an object that is read with one request. Of a larger one, only the parts that are needed are read.
_WHOLE_OBJECT = 8 * 2**20


class Deployed:
    """The deployed system, as far as trying a pipeline needs it. Nothing is written to it."""

    def __init__(self, resources: ClientResources, *, rows: int) -> None:
        """`rows` is the largest number of rows of a sample."""
        self._resources, self._rows = resources, rows
        self._events: dict[tuple[str, Period], tuple[pa.Table, int]] = {}

    @property
    def files(self) -> ProjectFiles:
        """The project's files."""
        return ProjectFiles(self._resources.connection.deployment.files_prefix, s3_store)

    @property
    def secrets(self) -> Secrets:
        """Credentials of other systems, as far as this process may read them."""
        return CloudSecrets()

    @property
    def outbound(self) -> Outbound:
        """The guard of connections to other systems."""
        return Outbound.of(filter(None, self._resources.connection.deployment.outbound_allow.split(",")))

    def sample(self, name: str, project: Project, pipeline: Pipeline, day: Period) -> Sample:
        """Return rows of the pipeline's input `name`.

        Raises `InputError` if there are none, and `CloudError`.
        """
        if name in pipeline.sources:
            return self._source(project.source(name), day)
        return self._table(name, project, pipeline, day)

    def _source(self, source: Source, day: Period) -> Sample:
        key = source.source, day
        if key not in self._events:
            self._events[key] = self._read_events(source, day)
        stored, objects = self._events[key]
        if source.id_column and source.id_column in stored.column_names:
            stored = first_of_each_id(stored, source.id_column)
        origin = f"{counted(objects, 'object')} in {self._resources.connection.cloud}"
        return Sample(_columns_of(stored, source), origin)

    def _read_events(self, source: Source, day: Period) -> tuple[pa.Table, int]:
        """Return stored events of the day, from its latest hours, and from how many objects they are."""
        resources = self._resources
        bucket = resources.connection.deployment.raw_bucket
        listing = consistent_listing(
            source,
            partial(
                objects_of_partitions, source.source, {*day.partitions()}, store=resources.store, raw_bucket=bucket
            ),
            files=resources.file_cache,
        )

        def age(item: StoredObject) -> tuple[object, ...]:
            return object_partition(item.uri), item.modified

        found: dict[str, pa.Table] = {}
        missing = self._rows
        # The same hours of all sources, so that their events can be joined.
        reader = EventReader(resources.store)
        for item in sorted(listing.objects, key=age, reverse=True):
            if not missing:
                break
            found[item.uri] = self._first_events(item, day, missing, reader)
            missing -= found[item.uri].num_rows
        if missing == self._rows:
            raise InputError(f"no event of {day.name} is stored in {resources.connection.cloud}")
        for uri, events in found.items():
            if first := listing.first_received_at(uri):
                column = pa.repeat(pa.scalar(first, TIMESTAMP), len(events))
                found[uri] = events.set_column(events.column_names.index(RECEIVED_AT), RECEIVED_AT, column)

        def position(uri: str) -> tuple[object, ...]:
            receipt = listing.receipt(uri)
            return -receipt.received_at.timestamp() if receipt else 0.0, uri

        try:
            # Their order decides between events that were received at the same time (`is_first_of_its_id`). Objects
            # that were written before a column was defined lack it.
            ordered = [found[uri] for uri in sorted(found, key=position)]
            return pa.concat_tables(ordered, promote_options="default"), len(found)
        except pa.ArrowException as error:
            raise ObjectInvalid(f"objects of {source.source} have columns of several types: {error}") from error

    def _first_events(self, item: StoredObject, day: Period, rows: int, reader: EventReader) -> pa.Table:
        """Return the first events of the day in an object. At most one row group is in memory, or a packed object."""
        if item.packed:
            (events,) = reader.blocks(item)
            names = [name for name in events.column_names if name not in (BATCH_ID, EXTRA, OBJECT, ROW)]
            return events_of_day(events.select(names), day).slice(0, rows)
        store = self._resources.store
        file = (
            io.BytesIO(store.get(item.uri))
            if item.size <= _WHOLE_OBJECT
            else ObjectFile(store, item.uri, size=item.size)
        )
        try:
            parquet = pq.ParquetFile(file)
            names = [name for name in parquet.schema_arrow.names if name not in (BATCH_ID, EXTRA)]
            found = [parquet.schema_arrow.empty_table().select(names)]
            for batch in parquet.iter_batches(batch_size=rows, columns=names):
                found.append(events_of_day(pa.Table.from_batches([batch]), day).slice(0, rows))
                rows -= found[-1].num_rows
                if not rows:
                    break
        except pa.ArrowException as error:
            raise ObjectInvalid(f"{item.uri} is not a Parquet file of the receiver: {error}") from error
        return pa.concat_tables(found)

    def _table(self, name: str, project: Project, pipeline: Pipeline, day: Period) -> Sample:
        item, warehouse = pipeline.tables[name], self._resources.warehouse
        if isinstance(item, IcebergInput):
            return Sample(warehouse.first_rows(item.iceberg, limit=self._rows), f"table {item.iceberg}")
        only = pipeline.model_copy(update={"tables": {name: item}})
        periods = published_periods(only, day, table=self._resources.run_table, pipelines=project.pipelines)
        found: list[pa.Table] = []
        days, missing = 0, self._rows
        # The latest days first.
        for version in reversed(list(periods)):
            if not missing:
                break
            found.append(warehouse.version(item.table, date=version.date, tag=version.tag or "", limit=missing))
            days, missing = days + 1, missing - found[-1].num_rows
        if not found:
            raise InputError(f"{item.table} has published none of the days")
        try:
            # A column that a version lacks is null, and one of another size is widened, as in a run.
            rows = pa.concat_tables(reversed(found), promote_options="permissive")
        except pa.ArrowException as error:
            raise InputError(f"the days of {item.table} have columns that do not fit together: {error}") from error
        return Sample(rows, f"{counted(days, 'published day')} of {item.table}")


def _columns_of(events: pa.Table, source: Source) -> pa.Table:
    """Return the source's columns; one that the events lack is null. Raises `InputError` for another type."""
    columns = {}
    for name, field_type in source.columns.items():
        data_type = ARROW_TYPES[field_type]
        column = events[name] if name in events.column_names else pa.nulls(len(events), data_type)
        if column.type != data_type:
            raise InputError(
                f"{name} is {data_type} in the definition, and {column.type} in the stored events: to try the change, "
                "use a file of the partner"
            )
        columns[name] = column
    return pa.table(columns)
