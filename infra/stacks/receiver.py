"""The receiver: the push API and the functions that store pushed events and pulled files."""

from __future__ import annotations

from aws_cdk import Duration, Tags
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.common import outputs
from infra.constructs.library_function import LibraryFunction
from infra.constructs.permissions import grants
from infra.constructs.queues import STORE_TIMEOUT
from infra.constructs.receiver_api import ReceiverApi
from infra.stacks.base import UPDATE_RAW_TABLES, FunctionStack, Parts
from infra.stacks.storage import DELETES_RAW, StorageStack


class ReceiverStack(FunctionStack):
    """Everything that writes and deletes raw objects: the push API, the queue's consumer, and the pull functions."""

    def __init__(self, scope: Construct, parts: Parts, storage: StorageStack) -> None:
        super().__init__(scope, "receiver", parts, "push API and pull functions")
        settings, self._storage = parts.settings, storage
        self._outbound = {"OUTBOUND_ALLOW": ",".join(settings.outbound_allow)}
        self._raw = {
            **storage.variables("RAW_BUCKET"),
            "PROJECT_URI": self.project.s3_object_url,
            **({"SOURCE_KMS_KEYS": keys} if (keys := storage.source_keys_value) else {}),
        }
        self.receive_events = self._receive_events()
        self.store_events = self._store_events()
        self.redrive_events = self._redrive_events()
        self.list_files = self._list_files()
        self.fetch_file = self._fetch_file()
        self._update_raw_tables()
        # The first time is a week after the deployment: no earlier release runs by then.
        self.invoke_every(Duration.days(7), self._remove_stale(), description="Stale objects of pulled files")
        pack_objects, project = self._pack_objects(), parts.project
        packs = any(source.pack for source in project.sources.values())
        self.invoke_every(Duration.hours(1), pack_objects, description="Small objects", is_enabled=packs)
        if any(source.pack for source in project.live_sources().values()):
            self.invoke_every(
                Duration.minutes(1),
                pack_objects,
                description="Small objects of open hours",
                name="open",
                event={"is_open": True},
            )
        for function in (self.list_files, self.fetch_file):
            grants.allow_partners(function.role, parts.project)
        # Not the id that the HTTP API of earlier versions had: CloudFormation changes the type of no resource.
        self.api = ReceiverApi(self, "RestReceiver", settings=settings, function=self.receive_events.function)
        outputs(self, {"ApiUrl": self.api.url, "RedriveEventsFunction": self.redrive_events.arn})

    def _receive_events(self) -> LibraryFunction:
        settings = self.settings
        issuer: dict[str, str] = {}
        if settings.oidc_issuer is not None:
            issuer = {"OIDC_ISSUER": settings.oidc_issuer, "OIDC_AUDIENCE": settings.oidc_audience, **self._outbound}
        function = self.function(
            "receive_events",
            sends_states=True,
            stores_verdicts=True,
            description="Accepts pushed events and writes raw partitions; accepts reports of how many were sent",
            environment={
                **self._raw,
                **self._storage.variables("TOKEN_TABLE", "FILE_TABLE", "STATE_TABLE", "EVENT_QUEUE_URL"),
                **issuer,
            },
            # API Gateway waits 29 seconds for its integration. This includes a cold start, which the timeout does not.
            timeout=Duration.seconds(25),
            # Lambda gives a function of 1,769 MB one whole vCPU.
            memory_mb=1769,
        )
        grants.use_items(function.role, self._storage.token_table, "GetItem")
        # It counts the events of each source there.
        grants.use_items(function.role, self._storage.file_table, "UpdateItem")
        grants.use_items(function.role, self._storage.state_table, "BatchWriteItem", "Query", "UpdateItem")
        self._allow_raw_writes(function.role, "sideline/", "receipts/")
        grants.find_objects(function.role, self._storage.raw, "receipts/")
        grants.use_queue(function.role, self._storage.buffer.queue, "SendMessage")
        return function

    def _store_events(self) -> LibraryFunction:
        function = self.function(
            "store_events",
            description="Writes queued events to raw partitions",
            environment=self._raw,
            timeout=STORE_TIMEOUT,
            memory_mb=1769,
        )
        self._allow_raw_writes(function.role)
        self._storage.buffer.feed(function)
        return function

    def _redrive_events(self) -> LibraryFunction:
        storage = self._storage
        function = self.function(
            "redrive_events",
            sends_states=True,
            description="Sends the rejected events of a batch again",
            environment={**self._raw, **storage.variables("STATE_TABLE")},
            # A client waits 5 minutes for an answer.
            timeout=Duration.minutes(4),
            memory_mb=1769,
        )
        grants.use_items(function.role, storage.state_table, "BatchWriteItem")
        self._allow_raw_writes(function.role, "redriven/")
        grants.find_objects(function.role, storage.raw, "sideline/", "receipts/", "redriven/")
        return function

    def _list_files(self) -> LibraryFunction:
        function = self.function(
            "list_files",
            sends_states=True,
            description="Lists a partner's files and writes the work list of those to fetch",
            environment={
                **self._storage.variables("EXCHANGE_BUCKET", "FILE_TABLE", "STATE_TABLE"),
                "PROJECT_URI": self.project.s3_object_url,
                **self._outbound,
            },
            # A listing of 10 million files takes about 30 s of a whole processor, which Lambda gives with 1,769 MB.
            timeout=Duration.minutes(15),
            memory_mb=1769,
        )
        grants.use_items(function.role, self._storage.file_table, "BatchGetItem", "PutItem")
        grants.query_indexes(function.role, self._storage.file_table, "due", "not-taken", "dated")
        grants.use_items(
            function.role, self._storage.state_table, "BatchGetItem", "BatchWriteItem", "Query", "UpdateItem"
        )
        grants.write_objects(function.role, self._storage.exchange, "pulls/")
        return function

    def _fetch_file(self) -> LibraryFunction:
        function = self.function(
            "fetch_file",
            sends_arrivals=True,
            sends_states=True,
            description="Fetches one file of a partner and writes raw partitions",
            environment={
                **self._raw,
                **self._storage.variables("FILE_TABLE", "STATE_TABLE"),
                **self._outbound,
                "JOB_NETWORK": ",".join(self.settings.job_subnets),
            },
            timeout=Duration.minutes(15),  # Lambda's maximum
            memory_mb=1769,
            # Lambda's maximum: the disk holds the downloaded file and the partitions written from it.
            disk_mb=10_240,
        )
        grants.find_objects(function.role, self._storage.exchange, "pulls/")
        grants.use_items(function.role, self._storage.file_table, "BatchGetItem", "PutItem", "UpdateItem")
        grants.use_items(function.role, self._storage.state_table, "BatchWriteItem")
        self._allow_raw_writes(function.role, "sideline/", "landing/")
        return function

    def _update_raw_tables(self) -> None:
        storage = self._storage
        function = self.function(
            UPDATE_RAW_TABLES,
            description="Lets the Iceberg table of a source follow the listing of its raw objects",
            environment={
                "RAW_BUCKET": storage.raw.bucket_name,
                "RAW_DATABASE": storage.raw_database,
                "WAREHOUSE_BUCKET": storage.warehouse.bucket_name,
                "FILE_TABLE": storage.file_table.table_name,
                "PROJECT_URI": self.project.s3_object_url,
            },
            timeout=Duration.minutes(15),
            memory_mb=1769,
        )
        grants.find_objects(function.role, storage.raw, "raw/")
        grants.decrypt_sources(function.role, storage.source_keys)
        grants.use_items(function.role, storage.file_table, "BatchGetItem")
        grants.list_objects(function.role, storage.warehouse, f"{storage.raw_database}/")
        grants.replace_objects(function.role, storage.warehouse, f"{storage.raw_database}/")
        grants.use_database(function.role, storage.raw_database, "GetDatabase")
        grants.use_tables(function.role, storage.raw_database, "GetTable", "CreateTable", "UpdateTable")

    def _remove_stale(self) -> LibraryFunction:
        storage = self._storage
        function = self.function(
            "remove_stale",
            updates_raw_tables=True,
            description="Deletes objects of pulled files that nobody reads any more",
            environment={
                **storage.variables("RAW_BUCKET", "EXCHANGE_BUCKET", "FILE_TABLE"),
                "PROJECT_URI": self.project.s3_object_url,
            },
            timeout=Duration.minutes(15),
        )
        Tags.of(function.role).add(DELETES_RAW, "true")
        grants.list_objects(function.role, storage.raw, "raw/")
        grants.delete_objects(function.role, storage.raw, "raw/")
        grants.use_items(function.role, storage.file_table, "BatchGetItem")
        grants.find_objects(function.role, storage.exchange, "stale-objects/")
        grants.write_objects(function.role, storage.exchange, "stale-objects/")
        return function

    def _pack_objects(self) -> LibraryFunction:
        storage = self._storage
        function = self.function(
            "pack_objects",
            updates_raw_tables=True,
            description="Packs the small objects of hours",
            environment={**self._raw, **storage.variables("FILE_TABLE")},
            timeout=Duration.minutes(15),
            # The rows of a packed object are in memory: 256 MB, and as much again while they are written. Those of
            # earlier packed objects of the hour are on disk.
            memory_mb=1769,
            disk_mb=4096,
        )
        Tags.of(function.role).add(DELETES_RAW, "true")
        grants.find_objects(function.role, storage.raw, "raw/")
        self._allow_raw_writes(function.role)
        grants.delete_objects(function.role, storage.raw, "raw/")
        grants.use_items(function.role, storage.file_table, "BatchGetItem")
        return function

    def _allow_raw_writes(self, role: iam.IRole, *more: str) -> None:
        """Grant writes to raw partitions, and to the prefixes `more`."""
        grants.write_objects(role, self._storage.raw, "raw/", *more)
        grants.encrypt_sources(role, self._storage.source_keys)
