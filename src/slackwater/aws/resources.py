"""The library's objects over AWS, for the settings of one deployment: functions, Spark jobs and clients get them here.

Each object is made, and its module imported, when it is used first: a function starts without what it does not need.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from slackwater.aws.clients import Clients
from slackwater.aws.objects import S3ObjectStore
from slackwater.project.project import Project
from slackwater.sources.kms_keys import parse_source_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from slackwater.aws.dynamodb.event_counts import DynamoEventCounts
    from slackwater.aws.dynamodb.file_cache import DynamoFileCache
    from slackwater.aws.dynamodb.period_table import DynamoPeriodTable
    from slackwater.aws.dynamodb.run_table import DynamoRunTable
    from slackwater.aws.dynamodb.state_table import DynamoStateTable
    from slackwater.aws.dynamodb.tokens import TokenTable
    from slackwater.aws.dynamodb.verdict_table import DynamoVerdictTable
    from slackwater.aws.dynamodb.wait_table import DynamoWaitTable
    from slackwater.aws.executions.state_machines import StateMachines
    from slackwater.aws.raw_tables import RawTables
    from slackwater.aws.warehouse import Warehouse
    from slackwater.late.check.checker import Checker
    from slackwater.receiver.pull.fetch_result import FetchResult
    from slackwater.receiver.pull.plan import WorkItem
    from slackwater.receiver.writing.raw_writer import RawWriter
    from slackwater.runs.inputs.listing import InputListing
    from slackwater.runs.inputs.source_counts import CountsReader
    from slackwater.runs.waits.evaluation import InputEvaluator
    from slackwater.sources.definition import Source
    from slackwater.state.facts import RejectedEvents


class Resources:
    """The objects that several programs use."""

    def __init__(self, settings: Any, clients: Clients) -> None:
        """`settings` has the attributes of a `Deployment` that are used: it is one, or the arguments of a job."""
        self.settings = settings
        self.clients = clients

    @cached_property
    def project(self) -> Project:
        """The deployed sources and pipelines. Raises `CloudError`."""
        # The URI contains a digest: another project has another URI.
        return Project.model_validate_json(self.store.get(self.settings.project_uri))

    @cached_property
    def store(self) -> S3ObjectStore:
        """The objects in S3."""
        keys = parse_source_keys(getattr(self.settings, "source_kms_keys", ""))
        return S3ObjectStore(self.clients("s3"), source_keys=keys)

    @cached_property
    def raw_writer(self) -> RawWriter:
        """Writes partitions of the raw bucket."""
        from slackwater.receiver.writing.raw_writer import RawWriter

        return RawWriter(store=self.store, raw_bucket=self.settings.raw_bucket)

    @cached_property
    def run_table(self) -> DynamoRunTable:
        """The run table."""
        from slackwater.aws.dynamodb.run_table import DynamoRunTable

        return DynamoRunTable(self.clients("dynamodb"), self.settings.run_table)

    @cached_property
    def file_cache(self) -> DynamoFileCache:
        """The file cache of all pulled sources."""
        from slackwater.aws.dynamodb.file_cache import DynamoFileCache

        return DynamoFileCache(self.clients("dynamodb"), self.settings.file_table)

    def fetch_file(
        self, source: Source, item: WorkItem, *, max_file_bytes: int, correlation_id: str, lease: timedelta
    ) -> FetchResult:
        """Fetch a file of a partner. The lease must be longer than the process may run.

        Raises what `FileFetcher.fetch` raises: `FileTooLarge` for a file of more than `max_file_bytes`.
        """
        from slackwater.aws.connect import connector_of
        from slackwater.receiver.pull.fetch import FileFetcher

        with connector_of(source, allow=self.settings.outbound_allow, max_file_bytes=max_file_bytes) as partner:
            fetcher = FileFetcher(
                source=source,
                partner=partner,
                cache=self.file_cache,
                raw_writer=self.raw_writer,
                now=utc_now,
                put_rejected=self.put_rejected_rows,
                # The UUID makes each attempt an owner of its own: a retry may overlap with the attempt that it repeats.
                owner=f"{correlation_id}/{uuid4()}",
                lease=lease,
            )
            return fetcher.fetch(item)

    def put_rejected_rows(self, source: str, rejected: Mapping[datetime, RejectedEvents]) -> None:
        """Store the rejected rows of a pulled file, by the UTC hour of their timestamps. Raises `CloudError`."""
        self.state_table.put_rejected(source, rejected)

    @cached_property
    def period_table(self) -> DynamoPeriodTable:
        """The states of periods, beside the facts."""
        from slackwater.aws.dynamodb.period_table import DynamoPeriodTable

        return DynamoPeriodTable(self.clients("dynamodb"), self.settings.state_table)

    @cached_property
    def state_table(self) -> DynamoStateTable:
        """The facts about the hours of all sources."""
        from slackwater.aws.dynamodb.state_table import DynamoStateTable

        return DynamoStateTable(self.clients("dynamodb"), self.settings.state_table)

    @cached_property
    def event_counts(self) -> DynamoEventCounts:
        """The numbers of events by source and hour."""
        from slackwater.aws.dynamodb.event_counts import DynamoEventCounts

        return DynamoEventCounts(self.clients("dynamodb"), self.settings.file_table)

    @cached_property
    def tokens(self) -> TokenTable:
        """Partners' bearer tokens."""
        from slackwater.aws.dynamodb.tokens import TokenTable

        return TokenTable(self.clients("dynamodb"), self.settings.token_table)

    @cached_property
    def state_machines(self) -> StateMachines:
        """The state machines and their executions."""
        from slackwater.aws.executions.state_machines import StateMachines

        return StateMachines(self.clients("stepfunctions"))

    @cached_property
    def inputs(self) -> InputListing:
        """The inputs of days."""
        from slackwater.aws.glue_tables import GlueTables
        from slackwater.runs.inputs.foreign_tables import ForeignTables
        from slackwater.runs.inputs.listing import InputListing

        return InputListing(
            project=self.project,
            store=self.store,
            files=self.file_cache,
            table=self.run_table,
            foreign=ForeignTables(GlueTables(self.clients), self.store),
            raw_bucket=self.settings.raw_bucket,
            now=utc_now,
        )

    @cached_property
    def counts_reader(self) -> CountsReader:
        """What sources have sent, against what is stored."""
        from slackwater.runs.inputs.source_counts import CountsReader

        return CountsReader(project=self.project, state=self.period_table, files=self.file_cache)

    @cached_property
    def wait_table(self) -> DynamoWaitTable:
        """The runs that wait for their inputs."""
        from slackwater.aws.dynamodb.wait_table import DynamoWaitTable

        return DynamoWaitTable(self.clients("dynamodb"), self.settings.state_table)

    @cached_property
    def verdict_table(self) -> DynamoVerdictTable:
        """The verdicts about hours of sources and days of pipelines."""
        from slackwater.aws.dynamodb.verdict_table import DynamoVerdictTable

        return DynamoVerdictTable(self.clients("dynamodb"), self.settings.state_table)

    @cached_property
    def input_evaluator(self) -> InputEvaluator:
        """Evaluates what runs wait for."""
        from slackwater.runs.waits.evaluation import InputEvaluator

        return InputEvaluator(
            project=self.project,
            inputs=self.inputs,
            counts=self.counts_reader,
            table=self.run_table,
            verdicts=self.verdict_table,
            now=utc_now,
        )

    @cached_property
    def checker(self) -> Checker:
        """Decides about days with late data."""
        from slackwater.late.check.checker import Checker

        return Checker(
            project=self.project,
            inputs=self.inputs,
            counts=self.counts_reader,
            table=self.run_table,
            executions=self.state_machines,
            store=self.store,
            verdicts=self.verdict_table if self.settings.state_table else None,
            exchange_bucket=self.settings.exchange_bucket,
            now=utc_now,
        )

    @cached_property
    def raw_tables(self) -> RawTables:
        """The Iceberg tables of raw events, for other engines."""
        from slackwater.aws.raw_tables import RawTables
        from slackwater.aws.warehouse import open_catalog_to_write

        settings = self.settings
        return RawTables(
            catalog=open_catalog_to_write(),
            database=settings.raw_database,
            location=f"s3://{settings.warehouse_bucket}/{settings.raw_database}",
            project=self.project,
            store=self.store,
            files=self.file_cache,
            raw_bucket=settings.raw_bucket,
        )

    @cached_property
    def warehouse(self) -> Warehouse:
        """The published tables and the raw partitions."""
        from slackwater.aws.warehouse import open_warehouse

        settings = self.settings
        return open_warehouse(self.clients, database=settings.warehouse_database, raw_bucket=settings.raw_bucket)


def utc_now() -> datetime:
    """Return the present instant, UTC."""
    return datetime.now(UTC)
