"""The key that encrypts buckets, tables and the queue of events, if the setting `kms_key` is set."""

from __future__ import annotations

from aws_cdk import RemovalPolicy
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.settings import CREATE_KEY, Settings


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
