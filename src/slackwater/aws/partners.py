"""A source's partner, by the scheme of its address."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from slackwater.aws.assumed_role import role_session
from slackwater.aws.clients import client
from slackwater.aws.s3_partner import S3Partner
from slackwater.aws.secrets import CloudSecrets
from slackwater.receiver.partners.credentials import Credentials, Secrets
from slackwater.receiver.partners.http_partner import HttpPartner
from slackwater.receiver.partners.outbound import Outbound
from slackwater.receiver.partners.partner import Partner
from slackwater.receiver.pull.plan import pull_of
from slackwater.sources.definition import Source
from slackwater.sources.pull_config import PullConfig

if TYPE_CHECKING:
    from slackwater.receiver.partners.sftp_partner import SftpPartner

_LONGEST_NAME = 64
"""Of a role's session."""
_SECRETS = CloudSecrets()


def partner_of(source: Source, *, allow: str, max_file_bytes: int) -> AbstractContextManager[Partner]:
    """As `open_partner`, with this account's secrets, and `outbound_allow` as functions and jobs are told it."""
    outbound = Outbound.of(filter(None, allow.split(",")))
    return open_partner(source, outbound=outbound, secrets=_SECRETS, max_file_bytes=max_file_bytes)


@contextmanager
def open_partner(source: Source, *, outbound: Outbound, secrets: Secrets, max_file_bytes: int) -> Iterator[Partner]:
    """Open the partner of a source that is pulled, and close its connections in the end.

    Raises `DefinitionError` for a source that is pushed, and what `Secrets.read` does.
    """
    pull = pull_of(source)
    with ExitStack() as opened:
        if pull.scheme == "s3":
            session = None
            if pull.role:
                sts = opened.enter_context(closing(client("sts")))
                session = role_session(pull.role, sts=sts, name=f"slackwater-{source.source}"[:_LONGEST_NAME])
            s3 = opened.enter_context(closing(client("s3", session=session)))
            yield S3Partner(pull, s3=s3, max_file_bytes=max_file_bytes)
        else:
            credentials = secrets.read(pull.credentials) if pull.credentials else None
            yield opened.enter_context(closing(_server(pull, outbound, credentials, max_file_bytes)))


def _server(
    pull: PullConfig, outbound: Outbound, credentials: Credentials | None, max_file_bytes: int
) -> HttpPartner | SftpPartner:
    if pull.scheme == "sftp" and credentials is not None:  # without, it is no valid definition
        # Loads a tenth of a second of ciphers, which pulls by HTTP and S3 need not wait for.
        from slackwater.receiver.partners.sftp_partner import SftpPartner  # noqa: PLC0415

        return SftpPartner(pull, outbound=outbound, credentials=credentials, max_file_bytes=max_file_bytes)
    return HttpPartner(pull, outbound=outbound, credentials=credentials, max_file_bytes=max_file_bytes)
