"""Sessions with another account's role, renewed before they expire."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.credentials import CredentialProvider, CredentialResolver, DeferredRefreshableCredentials
from botocore.session import Session


class AssumedRoleProvider(CredentialProvider):  # type: ignore[misc]
    """Provides credentials of the role to botocore."""

    METHOD = "slackwater-assume-role"

    def __init__(self, sts: Any, role: str, name: str) -> None:
        super().__init__()
        self._sts, self._role, self._name = sts, role, name

    def load(self) -> DeferredRefreshableCredentials:
        """Return credentials that assume the role on first use, and again before they expire."""
        return DeferredRefreshableCredentials(refresh_using=self._assume, method=self.METHOD)

    def _assume(self) -> dict[str, str]:
        credentials = self._sts.assume_role(RoleArn=self._role, RoleSessionName=self._name)["Credentials"]
        return {
            "access_key": credentials["AccessKeyId"],
            "secret_key": credentials["SecretAccessKey"],
            "token": credentials["SessionToken"],
            "expiry_time": credentials["Expiration"].isoformat(),
        }


def role_session(role: str, *, sts: Any, name: str) -> boto3.session.Session:
    """Return a session with the rights of `role`, an ARN. The role's account sees `name` in CloudTrail."""
    # Deferred credentials renew themselves. A long download outlives a session: when one role assumes another, AWS
    # limits the session to an hour.
    session = Session()
    session.register_component("credential_provider", CredentialResolver([AssumedRoleProvider(sts, role, name)]))
    return boto3.session.Session(botocore_session=session)
