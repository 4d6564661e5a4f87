"""A session with a partner's SFTP server: its host key is known beforehand, and it knows us by our credentials."""

from __future__ import annotations

import io
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Timer

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_ssh_private_key
from cryptography.hazmat.primitives.serialization.ssh import SSHPrivateKeyTypes
from paramiko import AuthenticationException, ECDSAKey, Ed25519Key, PKey, RSAKey, SFTPClient, SSHException, Transport
from paramiko.ssh_exception import IncompatiblePeer

from slackwater.errors import DefinitionError, PartnerError
from slackwater.receiver.partners.credentials import Credentials
from slackwater.receiver.partners.download import TransientPartnerError
from slackwater.receiver.partners.outbound import Outbound
from slackwater.sources.host_key import HostKey, fingerprint
from slackwater.sources.pull_config import PullConfig

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # what fails is in our errors, without a traceback each time

_SECONDS = 30.0
"""For all that goes before the first request; then for each answer."""
_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
"""What a kind of key signs with, where it is not named as the key is."""


@dataclass(frozen=True)
class SftpSession:
    """An open session."""

    files: SFTPClient
    close: Callable[[], None]


def open_session(pull: PullConfig, *, outbound: Outbound, credentials: Credentials) -> SftpSession:
    """Connect to the server of `pull` and log in.

    Raises `TransientPartnerError` when it does not answer, `OutboundRefused`, `DefinitionError` for a private key that is
    none, and `PartnerError` when it is not the server that it should be, or does not let us in.
    """
    address = outbound.check(pull.url)
    where = f"{address.host}:{address.port}"
    expected = HostKey.parse(pull.host_key or "")
    private_key = _private_key(pull, credentials)
    with ExitStack() as opened, _told(pull, where):
        connection = outbound.open_socket(address.host, address.port)
        opened.callback(connection.close)
        # Small requests leave at once: held back until the last is acknowledged, logging in takes ten times as long.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport = Transport(connection)
        opened.callback(transport.close)
        # Not every wait of paramiko's has an end of its own.
        deadline = Timer(_SECONDS, transport.close)
        deadline.daemon = True
        deadline.start()
        try:
            _meet(transport, expected, where)
            _log_in(transport, credentials, private_key)
            files = _open_files(transport)
        finally:
            deadline.cancel()
        return SftpSession(files, opened.pop_all().close)


def _private_key(pull: PullConfig, credentials: Credentials) -> PKey | None:
    if credentials.username is None:
        raise DefinitionError(f"{pull.credentials}: sftp needs a `username`, and a `password` or a `private_key`")
    if credentials.private_key is None:
        return None
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        return _key_of(load_ssh_private_key(credentials.private_key.get_secret_value().encode(), password=None))
    raise DefinitionError(
        f"{pull.credentials}: its `private_key` is no Ed25519, ECDSA or RSA key in OpenSSH's form without a passphrase"
    )


def _key_of(key: SSHPrivateKeyTypes) -> PKey:
    """Return paramiko's form of a key, whose own reader fails for some that have no comment."""
    match key:
        case RSAPrivateKey():
            return RSAKey(key=key)
        case EllipticCurvePrivateKey():
            return ECDSAKey(vals=(key, key.public_key()))
        case Ed25519PrivateKey():
            text = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
            return Ed25519Key.from_private_key(io.StringIO(text))
        case _:
            raise ValueError(type(key).__name__)


@contextmanager
def _told(pull: PullConfig, where: str) -> Iterator[None]:
    try:
        yield
    except AuthenticationException as error:
        raise PartnerError(
            f"{where}: the credentials in {pull.credentials} are not accepted ({error}): "
            "mend what is kept there, or ask the partner whether they are known"
        ) from error
    except IncompatiblePeer as error:
        raise PartnerError(
            f"{where}: the server has no host key of the kind that `host_key` is of, or no cipher of ours ({error}): "
            f"compare with ssh-keyscan {where.rpartition(':')[0]}"
        ) from error
    except (SSHException, EOFError, OSError) as error:
        raise TransientPartnerError(f"{where}: no session: {error or type(error).__name__}") from error


def _meet(transport: Transport, expected: HostKey, where: str) -> None:
    """Agree on ciphers with a server that has the expected key."""
    transport.get_security_options().key_types = _SIGNATURES.get(expected.algorithm, (expected.algorithm,))
    transport.start_client(timeout=_SECONDS)
    found = transport.get_remote_server_key().asbytes()
    if found != expected.blob:
        raise PartnerError(
            f"{where}: the server's host key is {fingerprint(found)}, and not {expected.fingerprint}: if the partner "
            "confirms the new one, write it into `host_key`; otherwise somebody else answers in its place"
        )


def _log_in(transport: Transport, credentials: Credentials, key: PKey | None) -> None:
    if key is not None:
        more = transport.auth_publickey(credentials.username, key)
    else:
        password = credentials.password
        more = transport.auth_password(credentials.username, password.get_secret_value() if password else "")
    if more:
        raise AuthenticationException(f"it asks for {' or '.join(more)} too")


def _open_files(transport: Transport) -> SFTPClient:
    channel = transport.open_session(timeout=_SECONDS)
    channel.settimeout(_SECONDS)
    channel.invoke_subsystem("sftp")
    return SFTPClient(channel)
