"""Open a source's partner, by the scheme of its `url`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

import boto3
from botocore.credentials import CredentialProvider, CredentialResolver, DeferredRefreshableCredentials

from slackwater.aws.clients import botocore_session, client
from slackwater.aws.s3_connector import S3Connector
from slackwater.aws.secrets import CloudSecrets
from slackwater.outbound.credentials import Secrets
from slackwater.outbound.guard import Outbound
from slackwater.receiver.connectors.connector import Connector
from slackwater.receiver.connectors.http_connector import HttpConnector
from slackwater.sources.definition import Source

if TYPE_CHECKING:
    from slackwater.receiver.connectors.sftp_connector import SftpConnector

# Characters. STS allows no more in the name of a session.
_MAX_SESSION_NAME = 64
# One for the process, so that its cache serves all invocations of a function.
_SECRETS = CloudSecrets()


@contextmanager
def connector_of(
    source: Source, *, allow: str, secrets: Secrets = _SECRETS, max_file_bytes: int
) -> Iterator[Connector]:
    """Open the partner of a pulled source, and close its connections at the end of the block.

    `allow` is the setting `outbound_allow`, its entries separated by commas. Downloads larger than `max_file_bytes`
    raise `FileTooLarge`. Raises `DefinitionError` for a source without `pull`, and what `Secrets.read` raises.
    """
    pull, outbound = source.require_pull(), Outbound.of(filter(None, allow.split(",")))
    with ExitStack() as opened:
        if pull.scheme == "s3":
            session = None
            if pull.role:
                sts = opened.enter_context(closing(client("sts")))
                session = role_session(pull.role, sts=sts, name=f"slackwater-{source.source}"[:_MAX_SESSION_NAME])
            s3 = opened.enter_context(closing(client("s3", session=session)))
            yield S3Connector(pull, s3=s3, max_file_bytes=max_file_bytes)
        else:
            credentials = secrets.read(pull.credentials) if pull.credentials else None
            connector: HttpConnector | SftpConnector
            if pull.scheme == "sftp" and credentials is not None:  # an sftp source without them is not valid
                # Importing paramiko takes 0.1 s, which pulls over HTTP and S3 should not wait for.
                from slackwater.receiver.connectors.sftp_connector import SftpConnector  # noqa: PLC0415

                connector = SftpConnector(
                    pull, outbound=outbound, credentials=credentials, max_file_bytes=max_file_bytes
                )
            else:
                connector = HttpConnector(
                    pull, outbound=outbound, credentials=credentials, max_file_bytes=max_file_bytes
                )
            yield opened.enter_context(closing(connector))


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
    session = botocore_session()
    session.register_component("credential_provider", CredentialResolver([AssumedRoleProvider(sts, role, name)]))
    return boto3.session.Session(botocore_session=session)
