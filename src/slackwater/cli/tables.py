"""The tables of a query, in the cloud."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from slackwater.aws.deployment import Deployment
from slackwater.project import Project

if TYPE_CHECKING:
    from slackwater.aws.warehouse import Warehouse


@dataclass(frozen=True)
class CloudTables:
    """`slackwater.cli.sql.Tables` over Glue and S3; both are reached when the first table is opened."""

    project: Project
    deployment: Deployment

    @cached_property
    def _warehouse(self) -> Warehouse:
        from slackwater.aws.warehouse import open_warehouse

        return open_warehouse(database=self.deployment.warehouse_database, raw_bucket=self.deployment.raw_bucket)

    def published(self, pipeline: str) -> Any | None:
        """Return the pipeline's published table, or None when nothing was published yet."""
        return self._warehouse.published(pipeline)

    def raw(self, source: str) -> Any:
        """Return the events of a source, with their partitions' `_date` and `_hour`."""
        from slackwater.receiver.schema import raw_schema

        return self._warehouse.partitions(source, raw_schema(self.project.source(source)))
