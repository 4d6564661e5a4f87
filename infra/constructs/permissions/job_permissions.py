"""The permissions of Spark jobs, each with the role of what it does."""

from __future__ import annotations

from aws_cdk import aws_iam as iam

from infra.constructs.permissions import grants
from infra.constructs.permissions.roles import Grantee
from infra.stacks.storage import FILES, StorageStack
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.runs.record import ARROW_FILES, REJECTED

LOGS, PROJECTS = "logs/", "projects/"
"""Prefixes of the exchange bucket: logs of jobs, and projects with a pipeline that is not deployed."""
_COMPARISONS = "comparisons/"


def allow_every_pipeline(policy: Grantee, *, storage: StorageStack) -> None:
    """Grant what the stages of every pipeline need, besides `allow_pipeline`."""
    grants.write_objects(policy, storage.exchange, LOGS)
    # Once for all pipelines: with a statement of each, the template of many is too large. Nobody may read them with it,
    # and a source with a key has an own grant for that.
    grants.write_objects(policy, storage.raw, f"{REJECTED}/")
    # Glue also checks the catalog and the database of a table.
    grants.use_database(policy, storage.warehouse_database, "GetDatabase", "GetTable", "CreateTable", "UpdateTable")


def allow_pipeline(role: iam.IRole, pipeline: Pipeline, *, storage: StorageStack) -> None:
    """Let `role` run the stages of one pipeline: read its inputs, and write its table and files."""
    name, database = pipeline.pipeline, storage.warehouse_database
    if pipeline.sources:
        grants.find_objects(role, storage.raw, *(f"raw/source={source}/" for source in pipeline.sources))
    grants.encrypt_sources(role, storage.source_keys, pipeline.sources)
    manifests, attempts, arrow = f"manifests/{name}/", f"runs/{name}/", f"{ARROW_FILES}{name}/"
    grants.read_objects(role, storage.exchange, manifests, arrow)
    grants.replace_objects(role, storage.exchange, attempts)
    grants.write_objects(role, storage.exchange, arrow)
    grants.list_objects(role, storage.exchange, manifests, attempts, arrow)
    upstream = [read.table for read in pipeline.published_tables.values()]
    read = [f"{database}/{table}/" for table in upstream]
    written = [f"{database}/{name}/", FILES]
    if read:
        grants.read_objects(role, storage.warehouse, *read)
    grants.replace_objects(role, storage.warehouse, *written)
    grants.list_objects(role, storage.warehouse, *read, *written)
    # Retention of versions reads which ones are in use.
    grants.use_items(role, storage.run_table, "GetItem")
    table_actions = ["glue:GetTable", "glue:CreateTable", "glue:UpdateTable"]
    grants.allow(role, table_actions, [grants.table_arn(role, database, name)])
    if upstream:
        grants.allow(role, ["glue:GetTable"], [grants.table_arn(role, database, table) for table in upstream])
    grants.allow_foreign_tables(role, [pipeline])
    grants.allow_steps(role, [pipeline])


def allow_any_pipeline(role: iam.IRole, project: Project, *, storage: StorageStack) -> None:
    """Let `role` run the stages of pipelines that are not deployed, and the check of the release."""
    database = storage.warehouse_database
    grants.find_objects(role, storage.raw, "raw/")
    grants.write_objects(role, storage.raw, f"{REJECTED}/")
    grants.encrypt_sources(role, storage.source_keys)
    grants.read_objects(role, storage.exchange, "manifests/", PROJECTS, ARROW_FILES)
    grants.replace_objects(role, storage.exchange, "runs/")
    grants.write_objects(role, storage.exchange, ARROW_FILES, LOGS)
    grants.list_objects(role, storage.exchange, "manifests/", "runs/", ARROW_FILES)
    grants.replace_objects(role, storage.warehouse, f"{database}/", FILES)
    grants.list_objects(role, storage.warehouse, f"{database}/", FILES)
    grants.use_tables(role, database, "GetDatabase", "GetTable", "CreateTable", "UpdateTable")
    # The check of the release does what the stages of deployed pipelines do.
    grants.use_items(role, storage.run_table, "GetItem")
    grants.allow_foreign_tables(role, project.pipelines.values())
    grants.allow_steps(role, project.pipelines.values())


def allow_comparisons(role: iam.IRole, *, storage: StorageStack) -> None:
    """Let `role` compare published versions of all pipelines."""
    database = storage.warehouse_database
    # The manifests of both versions tell what caused a difference.
    grants.read_objects(role, storage.exchange, "manifests/", f"{ARROW_FILES}{_COMPARISONS}")
    grants.replace_objects(role, storage.exchange, _COMPARISONS)
    grants.list_objects(role, storage.exchange, "manifests/", _COMPARISONS, f"{ARROW_FILES}{_COMPARISONS}")
    grants.write_objects(role, storage.exchange, LOGS)
    grants.find_objects(role, storage.warehouse, f"{database}/")
    grants.use_tables(role, database, "GetDatabase", "GetTable")


def allow_splits(role: iam.IRole, project: Project, *, storage: StorageStack) -> None:
    """Let `role` compute days of all pipelines with earlier definitions, and store the rows; it cannot publish any."""
    database, arrow = storage.warehouse_database, f"{ARROW_FILES}{_COMPARISONS}"
    grants.find_objects(role, storage.raw, "raw/")
    grants.decrypt_sources(role, storage.source_keys)
    grants.read_objects(role, storage.exchange, arrow)
    grants.replace_objects(role, storage.exchange, _COMPARISONS)
    grants.write_objects(role, storage.exchange, arrow, LOGS)
    grants.list_objects(role, storage.exchange, _COMPARISONS, arrow)
    grants.find_objects(role, storage.warehouse, f"{database}/", FILES)
    grants.use_tables(role, database, "GetDatabase", "GetTable")
    grants.allow_foreign_tables(role, project.pipelines.values())
    grants.allow_steps(role, project.pipelines.values())


def allow_pulls(role: iam.IRole, project: Project, *, storage: StorageStack) -> None:
    """Let `role` fetch files that are too large for a function."""
    grants.read_objects(role, storage.exchange, "pulls/")
    grants.write_objects(role, storage.exchange, "pulls/", LOGS)
    grants.write_objects(role, storage.raw, "raw/", "sideline/", "landing/")
    grants.encrypt_sources(role, storage.source_keys)
    grants.use_items(role, storage.file_table, "BatchGetItem", "PutItem")
    grants.use_items(role, storage.state_table, "BatchWriteItem")
    grants.allow_partners(role, project)
