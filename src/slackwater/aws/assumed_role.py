"""Sessions with another account's role, which are renewed before they run out."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.credentials import CredentialProvider, CredentialResolver, DeferredRefreshableCredentials
from botocore.session import Session


class _RoleProvider(CredentialProvider):  # type: ignore[misc]
    METHOD = "slackwater-assume-role"

    def __init__(self, sts: Any, role: str, name: str) -> None:
        super().__init__()
        self._sts, self._role, self._name = sts, role, name

    def load(self) -> DeferredRefreshableCredentials:
        """Return credentials that ask for the role when they are first needed, and again before they run out."""
        return DeferredRefreshableCredentials(refresh_using=self._assume, method=self.METHOD)

    def _assume(self) -> dict[str, str]:
        given = self._sts.assume_role(RoleArn=self._role, RoleSessionName=self._name)["Credentials"]
        return {
            "access_key": given["AccessKeyId"],
            "secret_key": given["SecretAccessKey"],
            "token": given["SessionToken"],
            "expiry_time": given["Expiration"].isoformat(),
        }


def role_session(role: str, *, sts: Any, name: str) -> boto3.session.Session:
    """Return a session that acts as `role`; `name` is how the role's account sees it, in CloudTrail."""
    session = Session()
    session.register_component("credential_provider", CredentialResolver([_RoleProvider(sts, role, name)]))
    return boto3.session.Session(botocore_session=session)
