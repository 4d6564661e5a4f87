"""Where data comes in: the HTTP API, and the functions that take pushed events and pulled files."""

from __future__ import annotations

from pathlib import Path

from aws_cdk import Duration, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from infra.constructs import grants
from infra.constructs.common import outputs
from infra.constructs.event_buffer import STORE_TIMEOUT
from infra.constructs.library_function import Library, LibraryFunction
from infra.constructs.receiver_api import ReceiverApi
from infra.settings import Settings
from infra.stacks.storage import StorageStack
from slackwater.project import Project


class ReceiverStack(Stack):
    """Push and pull, up to raw partitions registered in Glue."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        settings: Settings,
        project: Project,
        storage: StorageStack,
        layer: Path,
        lambdas: Path,
        project_file: Path,
        env: Environment | None = None,
    ) -> None:
        super().__init__(scope, id_, env=env, description="Slackwater: push API and pull functions")
        self._settings, self._storage = settings, storage
        self._library = Library(self, "Library", settings=settings, artefact=layer, lambdas=lambdas)
        self._project = assets.Asset(self, "Project", path=str(project_file))
        self.receive_events = self._receive_events()
        self.store_events = self._store_events()
        self.list_files = self._list_files()
        self.fetch_file = self._fetch_file()
        for pulling in (self.list_files, self.fetch_file):
            grants.reach_partners(pulling.role, project)
        self.api = ReceiverApi(self, "Receiver", settings=settings, function=self.receive_events.function)
        outputs(self, {"ApiUrl": self.api.url})

    def _receive_events(self) -> LibraryFunction:
        function = self._library.function(
            "receive_events",
            description="Takes a batch of pushed events into raw partitions",
            environment={
                **self._raw_environment(),
                "TOKEN_TABLE": self._storage.token_table.table_name,
                "EVENT_QUEUE_URL": self._storage.buffer.queue.queue_url,
                **self._issuer_environment(),
            },
            timeout=Duration.seconds(29),
            memory_mb=1769,
        )
        grants.read_asset(function.role, self._project)
        grants.use_items(function.role, self._storage.token_table, "GetItem")
        self._let_write_raw(function.role, "sideline/", "receipts/")
        grants.read_objects(function.role, self._storage.raw, "receipts/")
        grants.use_queue(function.role, self._storage.buffer.queue, "SendMessage")
        return function

    def _store_events(self) -> LibraryFunction:
        function = self._library.function(
            "store_events",
            description="Stores pushed events that wait in the queue",
            environment=self._raw_environment(),
            timeout=STORE_TIMEOUT,
            memory_mb=1769,
        )
        grants.read_asset(function.role, self._project)
        self._let_write_raw(function.role)
        self._storage.buffer.feed(function)
        return function

    def _list_files(self) -> LibraryFunction:
        function = self._library.function(
            "list_files",
            description="Lists a partner's files and writes down those not taken yet",
            environment={
                "EXCHANGE_BUCKET": self._storage.exchange.bucket_name,
                "FILE_TABLE": self._storage.file_table.table_name,
                "PROJECT_URI": self._project.s3_object_url,
                **self._outbound_environment(),
            },
            timeout=Duration.minutes(2),
        )
        grants.read_asset(function.role, self._project)
        grants.use_items(function.role, self._storage.file_table, "Query")
        grants.write_objects(function.role, self._storage.exchange, "pulls/")
        return function

    def _fetch_file(self) -> LibraryFunction:
        function = self._library.function(
            "fetch_file",
            description="Fetches one of a partner's files into raw partitions",
            environment={
                **self._raw_environment(),
                "FILE_TABLE": self._storage.file_table.table_name,
                **self._outbound_environment(),
            },
            timeout=Duration.minutes(15),
            memory_mb=1769,
            # All that Lambda has: a file as it came, and what is made of it.
            disk_mb=10_240,
        )
        grants.read_asset(function.role, self._project)
        grants.read_objects(function.role, self._storage.exchange, "pulls/")
        grants.list_objects(function.role, self._storage.exchange, "pulls/")
        grants.use_items(function.role, self._storage.file_table, "GetItem", "PutItem", "Query")
        self._let_write_raw(function.role, "sideline/", "landing/")
        grants.delete_objects(function.role, self._storage.raw, "raw/")
        return function

    def _issuer_environment(self) -> dict[str, str]:
        if self._settings.oidc_issuer is None:
            return {}
        return {
            "OIDC_ISSUER": self._settings.oidc_issuer,
            "OIDC_AUDIENCE": self._settings.oidc_audience,
            **self._outbound_environment(),
        }

    def _outbound_environment(self) -> dict[str, str]:
        return {"OUTBOUND_ALLOW": ",".join(self._settings.outbound_allow)}

    def _raw_environment(self) -> dict[str, str]:
        return {
            "RAW_BUCKET": self._storage.raw.bucket_name,
            "RAW_DATABASE": self._storage.raw_database,
            "PROJECT_URI": self._project.s3_object_url,
        }

    def _let_write_raw(self, role: iam.IRole, *more: str) -> None:
        grants.write_objects(role, self._storage.raw, "raw/", *more)
        grants.use_tables(role, self._storage.raw_database, "GetTable", "BatchCreatePartition")
