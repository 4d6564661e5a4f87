"""The key of buckets, tables and the queue of events (setting `kms_key`), and those of sources (`source_kms_keys`)."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.setting_types import CREATE_KEY
from infra.settings import Settings
from slackwater.errors import DefinitionError
from slackwater.project.project import Project
from slackwater.sources.kms_keys import format_source_keys

# Lambda allows 4,096 bytes for all environment variables of a function.
_MAX_BYTES = 3000


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
    if len(keys) > _MAX_BYTES:
        raise DefinitionError(
            f"source_kms_keys: {len(settings.source_kms_keys)} entries have {len(keys):,} characters, and functions "
            f"can get {_MAX_BYTES:,}: name fewer sources"
        )
    return keys
