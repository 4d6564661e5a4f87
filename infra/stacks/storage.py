"""Storage: three buckets, four DynamoDB tables, two Glue databases, and the queue of events to store."""

from __future__ import annotations

import math
from typing import cast

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct
from pydantic.alias_generators import to_pascal

from infra.constructs.common import accept, outputs, removal
from infra.constructs.queues import EventBuffer
from infra.setting_types import CREATE_KEY
from infra.settings import Settings
from infra.stacks.base import DeploymentStack, Parts
from slackwater.errors import DefinitionError
from slackwater.pipeline.graph import stages
from slackwater.project.project import Project
from slackwater.runs.periods.changes import LISTS
from slackwater.runs.record import ARROW_FILES
from slackwater.sources.kms_keys import format_source_keys

JOB_MINUTES = 150
"""How long a stage of a run takes at most after its job has left the queue: the time limit of the job, and the pauses
of all retries."""

MOST_KEYS_BYTES = 3000
"""Of the setting `source_kms_keys`. Lambda allows 4,096 bytes for all environment variables of a function."""
DELETES_RAW = "slackwater-deletes-raw"
"""The tag of roles that may delete objects below `raw/`, if it is `true`."""
FILES = "files/"
"""The prefix of the warehouse bucket below which steps read and write the project's files."""


class StorageStack(DeploymentStack):
    """The stack of all durable data. Nothing in it depends on code, so the other stacks can be replaced."""

    def __init__(self, scope: Construct, parts: Parts) -> None:
        settings, project = parts.settings, parts.project
        protected = settings.termination_protection
        super().__init__(
            scope, "storage", parts, "buckets, tables, Glue databases and queues", termination_protection=protected
        )
        self._key = data_key(self, settings)
        self.source_keys = settings.source_kms_keys
        self.source_keys_value = source_keys(project, settings)
        longest = longest_run_days(project, settings)
        # A run reads the files of its own attempt, and of stages that it keeps from earlier ones: those that exist for
        # as long as the run may take. So a failed run can be resumed for the other days, at least as many.
        arrow_days = max(settings.intermediate_days, 2 * longest)
        self.kept_days = arrow_days - longest
        # S3 removes an object asynchronously, from the first midnight UTC after the days since it was written
        # (https://repost.aws/knowledge-center/s3-lifecycle-rule-delay). The least is one day.
        expirations = {
            ARROW_FILES: arrow_days,
            **dict.fromkeys(("pulls/", "logs/", "projects/", LISTS), settings.exchange_days),
        }
        self.raw = self._bucket(
            "Raw",
            # A partner may not be able to send events again, so deleted and overwritten objects can be restored.
            versioned=True,
            # Receipts of pushed batches do not expire: a partner may send a body again at any time, and without its
            # receipt the events could be stored twice, or stored and rejected.
            rules=[
                s3.LifecycleRule(
                    noncurrent_version_expiration=Duration.days(settings.noncurrent_days),
                    # Of an object whose last version is removed. Delete markers of packed objects' members, up to
                    # 86,400 a day, slow each listing of their hour. S3 refuses this beside `expiration`.
                    expired_object_delete_marker=True,
                )
            ],
        )
        # The CDK's own option adds a function that calls S3. CloudFormation does it without one.
        bucket = cast("s3.CfnBucket", self.raw.node.default_child)
        bucket.add_property_override(
            "NotificationConfiguration.EventBridgeConfiguration.EventBridgeEnabled", settings.collect_minutes > 0
        )
        # Raw objects are also data files of Iceberg tables, which other engines may maintain.
        self.raw.add_to_resource_policy(
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["s3:DeleteObject", "s3:DeleteObjectVersion"],
                resources=[self.raw.arn_for_objects("raw/*")],
                conditions={"StringNotEquals": {f"aws:PrincipalTag/{DELETES_RAW}": "true"}},
            )
        )
        # Manifests, comparisons and checks do not expire: a late check reads the manifest of a day of any age. Neither
        # do the manifests and results of runs: they are small, and tell what a version was made from.
        self.exchange = self._bucket(
            "Exchange",
            rules=[
                s3.LifecycleRule(prefix=prefix, expiration=Duration.days(days)) for prefix, days in expirations.items()
            ],
        )
        self.warehouse = self._bucket("Warehouse")
        self.files_uri = f"s3://{self.warehouse.bucket_name}/{FILES}"
        self.file_table = self._file_table()
        self.run_table = self._run_table()
        self.token_table = self._table("TokenTable", partition_key="token_hash")
        # Facts expire: what sources have sent, and what was rejected.
        self.state_table = self._table("StateTable", partition_key="pk", sort_key="sk", expires_at="expires")
        self.buffer = EventBuffer(self, "EventBuffer", settings=settings, key=self._key)
        self.raw_database = settings.raw_database
        self.warehouse_database = settings.warehouse_database
        # The scope of the raw database is that of earlier versions: its name is taken, so it cannot be replaced.
        self._database(Construct(self, "RawTables"), "Database", self.raw_database, "Raw events by source")
        self._database(self, "WarehouseDatabase", self.warehouse_database, "Published tables of the pipelines")
        self.values = {
            "RawBucket": self.raw.bucket_name,
            "ExchangeBucket": self.exchange.bucket_name,
            "WarehouseBucket": self.warehouse.bucket_name,
            "FilesPrefix": self.files_uri,
            "FileTable": self.file_table.table_name,
            "RunTable": self.run_table.table_name,
            "TokenTable": self.token_table.table_name,
            "StateTable": self.state_table.table_name,
            "RawDatabase": self.raw_database,
            "WarehouseDatabase": self.warehouse_database,
            "EventQueueUrl": self.buffer.queue.queue_url,
        }
        """What functions, jobs and state machines get: environment variables, placeholders and outputs."""
        outputs(self, {**self.values, "EventDeadLetterQueueUrl": self.buffer.dead_letters.queue_url})

    def variables(self, *names: str) -> dict[str, str]:
        """Return these environment variables of a function, such as `RAW_BUCKET`."""
        return {name: self.values[to_pascal(name.lower())] for name in names}

    def _bucket(self, id_: str, *, versioned: bool = False, rules: list[s3.LifecycleRule] | None = None) -> s3.Bucket:
        bucket = s3.Bucket(
            self,
            id_,
            versioned=versioned,
            encryption=s3.BucketEncryption.KMS if self._key else s3.BucketEncryption.S3_MANAGED,
            encryption_key=self._key,
            bucket_key_enabled=True if self._key else None,  # one request to KMS for many objects
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            removal_policy=removal(self.settings),
            # S3 bills the parts of an upload that broke off until they are removed, and shows them in no listing.
            lifecycle_rules=[
                s3.LifecycleRule(abort_incomplete_multipart_upload_after=Duration.days(1)),
                *(rules or []),
            ],
        )
        accept(bucket, {"AwsSolutions-S1": "Only roles of this app have access; CloudTrail's data events log it."})
        return bucket

    def _database(self, scope: Construct, id_: str, name: str, description: str) -> None:
        glue.CfnDatabase(
            scope,
            id_,
            catalog_id=self.account,
            database_input=glue.CfnDatabase.DatabaseInputProperty(
                name=name, description=description, location_uri=f"s3://{self.warehouse.bucket_name}/{name}"
            ),
        )

    def _file_table(self) -> dynamodb.Table:
        """Create the table of the file cache, which `slackwater.aws.dynamodb.file_cache` describes."""
        table = self._table("FileTable", partition_key="source", sort_key="path")
        for name, partition_key, sort_key in (
            ("due", "open_source", "due"),
            ("not-taken", "not_taken_source", "not_taken_since"),
        ):
            table.add_global_secondary_index(
                index_name=name, partition_key=_string(partition_key), sort_key=_string(sort_key)
            )
        table.add_global_secondary_index(
            index_name="dated",
            partition_key=_string("dated"),
            sort_key=_string("path"),
            # Each file of the source is in this index, so it holds only what readers of a whole date need.
            projection_type=dynamodb.ProjectionType.INCLUDE,
            non_key_attributes=["state", "is_stored", "is_taken"],
        )
        return table

    def _run_table(self) -> dynamodb.Table:
        """Create the table of runs and days, which `slackwater.aws.dynamodb.run_table` describes."""
        table = self._table("RunTable", partition_key="pipeline", sort_key="item")
        for name, partition_key in (
            ("published", "published_pipeline"),
            ("notification-due", "notification_due_pipeline"),
            ("held", "held_pipeline"),
        ):
            table.add_global_secondary_index(
                index_name=name,
                partition_key=_string(partition_key),
                sort_key=_string("item"),
                projection_type=dynamodb.ProjectionType.KEYS_ONLY,
            )
        return table

    def _table(
        self, id_: str, *, partition_key: str, sort_key: str | None = None, expires_at: str | None = None
    ) -> dynamodb.Table:
        return dynamodb.Table(
            self,
            id_,
            partition_key=_string(partition_key),
            sort_key=_string(sort_key) if sort_key else None,
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            time_to_live_attribute=expires_at,
            encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED if self._key else None,
            encryption_key=self._key,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            removal_policy=removal(self.settings),
        )


def data_key(scope: Construct, settings: Settings) -> kms.IKey | None:
    """Return the key of the setting, which it creates for `create`; None if AWS's own keys encrypt the data."""
    if settings.kms_key is None:
        return None
    if settings.kms_key != CREATE_KEY:
        return kms.Key.from_key_arn(scope, "Key", settings.kms_key)
    return kms.Key(
        scope,
        "Key",
        description="Data of Slackwater",
        enable_key_rotation=True,
        # Whatever the setting `removal_policy` says: objects that it has encrypted may be kept, and need it.
        removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    )


def source_keys(project: Project, settings: Settings) -> str:
    """Return the setting `source_kms_keys` as functions and jobs get it: `source=ARN,source=ARN`.

    Raises `DefinitionError` for sources that the project does not have, and if the functions cannot get so many keys.
    """
    if unknown := sorted(settings.source_kms_keys.keys() - project.sources.keys()):
        known = ", ".join(sorted(project.sources)) or "none"
        raise DefinitionError(f"source_kms_keys: no source {', '.join(unknown)} in this project (sources: {known})")
    keys = format_source_keys(settings.source_kms_keys)
    if len(keys) > MOST_KEYS_BYTES:
        raise DefinitionError(
            f"source_kms_keys: {len(settings.source_kms_keys)} entries have {len(keys):,} characters, and functions "
            f"can get {MOST_KEYS_BYTES:,}: name fewer sources"
        )
    return keys


def longest_run_days(project: Project, settings: Settings) -> int:
    """Return after how many days any run has ended, so that no Arrow file expires that a run may still read.

    Each of its jobs waits in the queue, and then runs.
    """
    jobs = max((len(stages(pipeline)) for pipeline in project.pipelines.values()), default=1)
    return math.ceil(jobs * (settings.queue_minutes + JOB_MINUTES) / (24 * 60))


def _string(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
