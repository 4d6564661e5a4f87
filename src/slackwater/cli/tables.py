"""The tables of a query, in the cloud."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from slackwater.aws.deployment import Deployment
from slackwater.project import Project

if TYPE_CHECKING:
    from slackwater.aws.warehouse import Warehouse
    from slackwater.receiver.pull.file_cache import FileCache


@dataclass(frozen=True)
class CloudTables:
    """`slackwater.cli.sql.Tables` over Glue, S3 and the file cache, reached when the first table is opened."""

    project: Project
    deployment: Deployment

    @cached_property
    def _warehouse(self) -> Warehouse:
        from slackwater.aws.warehouse import open_warehouse

        return open_warehouse(database=self.deployment.warehouse_database, raw_bucket=self.deployment.raw_bucket)

    @cached_property
    def _files(self) -> FileCache:
        from slackwater.aws.clients import client
        from slackwater.aws.file_cache import DynamoFileCache

        return DynamoFileCache(client("dynamodb"), self.deployment.file_table)

    def published(self, pipeline: str) -> Any | None:
        """Return the pipeline's published table, or None when nothing was published yet."""
        return self._warehouse.published(pipeline)

    def raw(self, source: str) -> Any:
        """Return the events of a source's settled objects, with their partitions' `_date` and `_hour`, and `_object`.

        Raises `DayChanged` when files of the source keep changing meanwhile.
        """
        from slackwater.runs.consistent_listing import consistent_listing
        from slackwater.sources.event_schema import raw_schema

        definition, bucket = self.project.source(source), self.deployment.raw_bucket
        found = consistent_listing(
            definition, lambda: self._warehouse.objects(source), files=self._files, bucket=bucket
        )
        return self._warehouse.partitions([item.uri for item in found.objects], raw_schema(definition))

    def id_column(self, source: str) -> str | None:
        """Return the column by whose value an event of the source counts once in its partition, if it has one."""
        return self.project.source(source).id_column
