"""Opens a session with a partner's SFTP server: checks the server's host key, and logs in with our credentials."""

from __future__ import annotations

import io
import logging
import socket
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from threading import Timer

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_ssh_private_key
from paramiko import AuthenticationException, ECDSAKey, Ed25519Key, PKey, RSAKey, SFTPClient, SSHException, Transport
from paramiko.ssh_exception import IncompatiblePeer

from slackwater.errors import DefinitionError, PartnerError
from slackwater.outbound.credentials import Credentials
from slackwater.outbound.guard import Outbound
from slackwater.receiver.connectors.connector import TransientPartnerError
from slackwater.sources.pull_config import HostKey, PullConfig

# Limits the whole login, and after that the wait for each response.
_TIMEOUT_SECONDS = 30.0
# Signature algorithms of a key type, where their names differ from the key type's (RFC 8332).
_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


@dataclass(frozen=True)
class SftpSession:
    """An open session: its SFTP client, and the function that closes it."""

    files: SFTPClient
    close: Callable[[], None]


def open_session(pull: PullConfig, *, outbound: Outbound, credentials: Credentials) -> SftpSession:
    """Connect to the server of `pull`, check its host key, and log in.

    Raises `TransientPartnerError` when the server does not answer, `OutboundRefused`, `DefinitionError` for an invalid
    private key, and `PartnerError` when the host key is a different one or the credentials are not accepted.
    """
    target = outbound.check(pull.url)
    server = f"{target.host}:{target.port}"
    expected = HostKey.parse(pull.host_key or "")
    private_key = load_private_key(pull, credentials)
    # paramiko logs a traceback for each failure, although the errors raised here contain its message. A level that the
    # application has set stays.
    if logging.getLogger("paramiko").level == logging.NOTSET:
        logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    with ExitStack() as cleanup, _partner_errors(pull, server):
        connection = outbound.open_socket(target.host, target.port)
        cleanup.callback(connection.close)
        # Without TCP_NODELAY, small requests wait for acknowledgements, and the login takes ten times as long.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport = Transport(connection)
        cleanup.callback(transport.close)
        # Some waits of paramiko have no time-out of their own: closing the transport ends them.
        deadline = Timer(_TIMEOUT_SECONDS, transport.close)
        deadline.daemon = True
        deadline.start()
        try:
            _expect_host_key(transport, expected, server)
            _log_in(transport, credentials, private_key)
            channel = transport.open_session(timeout=_TIMEOUT_SECONDS)
            channel.settimeout(_TIMEOUT_SECONDS)
            channel.invoke_subsystem("sftp")
            files = SFTPClient(channel)
        finally:
            deadline.cancel()
        return SftpSession(files, cleanup.pop_all().close)


def load_private_key(pull: PullConfig, credentials: Credentials) -> PKey | None:
    """Return the private key, or None for a login by password.

    Raises `DefinitionError`, whose message contains no part of the key.
    """
    if credentials.username is None:
        raise DefinitionError(f"{pull.credentials}: sftp needs a `username`, and a `password` or a `private_key`")
    if credentials.private_key is None:
        return None
    # Parsed by cryptography, because paramiko's own parser fails for some keys without a comment. Our error is raised
    # after the block, so that it has no cause whose message may contain a part of the key.
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        match key := load_ssh_private_key(credentials.private_key.get_secret_value().encode(), password=None):
            case RSAPrivateKey():
                return RSAKey(key=key)
            case EllipticCurvePrivateKey():
                return ECDSAKey(vals=(key, key.public_key()))
            case Ed25519PrivateKey():
                openssh = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
                return Ed25519Key.from_private_key(io.StringIO(openssh))
            case _:
                pass
    raise DefinitionError(
        f"{pull.credentials}: its `private_key` is not an Ed25519, ECDSA or RSA key in OpenSSH's format "
        "without a passphrase"
    )


@contextmanager
def _partner_errors(pull: PullConfig, server: str) -> Iterator[None]:
    """Raise paramiko's errors as `PartnerError` or `TransientPartnerError`."""
    try:
        yield
    except AuthenticationException as error:
        raise PartnerError(
            f"{server}: the credentials in {pull.credentials} are not accepted ({error}): "
            "correct them there, or ask the partner whether they are registered"
        ) from error
    except IncompatiblePeer as error:
        raise PartnerError(
            f"{server}: the server has no host key of the type in `host_key`, or no cipher that we support ({error}): "
            f"compare with ssh-keyscan {server.rpartition(':')[0]}"
        ) from error
    except (SSHException, EOFError, OSError) as error:
        raise TransientPartnerError(f"{server}: no session: {error or type(error).__name__}") from error


def _expect_host_key(transport: Transport, expected: HostKey, server: str) -> None:
    """Exchange keys with the server. Raises `PartnerError` unless it has the expected host key."""
    # The server proves only one of its host keys: it has to be of the type of the expected one.
    transport.get_security_options().key_types = _SIGNATURES.get(expected.algorithm, (expected.algorithm,))
    transport.start_client(timeout=_TIMEOUT_SECONDS)
    host_key = transport.get_remote_server_key().asbytes()
    if host_key != expected.blob:
        raise PartnerError(
            f"{server}: the server's host key is {fingerprint(host_key)}, and not {fingerprint(expected.blob)}: if "
            "the partner confirms the new one, write it into `host_key`; otherwise another server answers in its place"
        )


def fingerprint(blob: bytes) -> str:
    """Return a key's fingerprint as `ssh-keygen -l` shows it: `SHA256:...`."""
    return f"SHA256:{b64encode(sha256(blob).digest()).decode().rstrip('=')}"


def _log_in(transport: Transport, credentials: Credentials, key: PKey | None) -> None:
    """Log in by private key, or else by password. Raises `AuthenticationException` when the server asks for more."""
    if key is not None:
        further = transport.auth_publickey(credentials.username, key)
    else:
        password = credentials.password
        further = transport.auth_password(credentials.username, password.get_secret_value() if password else "")
    if further:
        raise AuthenticationException(f"it also asks for {' or '.join(further)}")
