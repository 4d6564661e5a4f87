"""Connections to a PostgreSQL database, to an address that the outbound guard has checked.

psycopg, and not ADBC's driver, which drops the precision and scale of a `numeric` column and returns strings, and has
written decimals with a wrong scale (apache/arrow-adbc#3485).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator

from slackwater.errors import DefinitionError, InputError, OutboundRefused, SlackwaterError, Unavailable
from slackwater.outbound.credentials import Secrets
from slackwater.outbound.guard import Outbound
from slackwater.outbound.ip_addresses import LOOPBACK, PRIVATE, special_purpose
from slackwater.sources.pull_config import CredentialsReference
from slackwater.steps.files import ProjectFiles, ProjectPath
from slackwater.steps.io.typed_files import local_copy
from slackwater.steps.step import Parameters, StepContext

if TYPE_CHECKING:
    from psycopg import Connection

_SCHEME = "postgresql"
_CONNECT_SECONDS = 10
_SESSION = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "client_encoding": "UTF8",
    # How long a statement waits for a lock of another session, such as a run of the same day.
    "lock_timeout": "30min",
}
_OPTIONS = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
_NO_FILE = "/dev/null/none"


def check_database_url(url: str, schemes: Sequence[str] = (_SCHEME,)) -> str:
    """Return the URL unchanged. Raises `ValueError` unless it is `SCHEME://host:port/database`."""
    parts = urlsplit(url)
    database = parts.path.removeprefix("/")
    if "@" in parts.netloc:
        # The message must not repeat the credentials.
        raise ValueError("a URL must not contain credentials: name them in `credentials`")
    if "?" in url:
        raise ValueError("a URL must not have options, which may contain a password: remove `?` and what follows")
    if parts.scheme not in schemes or not parts.hostname or not database or "/" in database or "#" in url:
        others = f"; other schemes are {', '.join(schemes[1:])}" if schemes[1:] else ""
        raise ValueError(f"{url!r} is not a URL such as {_SCHEME}://host:5432/database{others}")
    return url


DatabaseUrl = Annotated[str, AfterValidator(check_database_url)]


class DatabaseParameters(Parameters):
    """Parameters of a connection."""

    url: DatabaseUrl
    """`postgresql://host:5432/database`. A host with a private address has to be in the setting `outbound_allow`."""
    credentials: CredentialsReference
    """`secretsmanager:<name>` or `ssm:<name>`: a JSON object with `username` and `password`."""
    tls: Literal["verify", "encrypt", "off"] = "verify"
    """`verify` accepts a server with a certificate for its host name, `encrypt` any certificate. `off` is for databases
    at private addresses."""
    certificate_authority: ProjectPath | None = None
    """Path of a PEM file with the authorities that may have signed the server's certificate, below the project's files.
    The default is the public authorities."""


@dataclass(frozen=True)
class Access:
    """What a connection needs besides its parameters. Executors use it too."""

    secrets: Secrets
    outbound: Outbound
    files: ProjectFiles | None

    @classmethod
    def of(cls, context: StepContext) -> Access:
        """Return the access of a step. Raises `InputError` where there are no secrets."""
        if context.secrets is None:
            raise InputError("credentials: there are no secrets here: run the step in a pipeline")
        return cls(context.secrets, context.outbound or Outbound(), context.files)


@contextmanager
def connected(
    parameters: DatabaseParameters, access: Access, arguments: Mapping[str, Any] | None = None
) -> Iterator[Connection]:
    """Yield a connection whose session is in UTC; at the end, commit its transaction, or roll it back after an error.

    `arguments` of psycopg replace those that make a session of PostgreSQL. Raises `OutboundRefused`, `DefinitionError`
    for credentials without a password, `Unavailable` if the server does not answer or ends the connection, and
    `InputError` for what else the database refuses.
    """
    import psycopg

    place = parameters.url
    target = access.outbound.check(place)
    credentials = access.secrets.read(parameters.credentials)
    if credentials.username is None or credentials.password is None:
        raise DefinitionError(f"{parameters.credentials}: a database needs a `username` and a `password`")
    with ExitStack() as opened:
        try:
            addresses = access.outbound.connect_addresses(target)
            categories = {special_purpose(address) for address in addresses}
            if parameters.tls == "off" and not categories <= {PRIVATE, LOOPBACK}:
                raise OutboundRefused(f"{place}: `tls: off` would send credentials unencrypted to a public address")
            connection = psycopg.connect(
                # With `hostaddr`, nothing resolves the name a second time; the certificate is compared with `host`.
                host=",".join([target.host] * len(addresses)),
                hostaddr=",".join(map(str, addresses)),
                port=target.port,
                dbname=unquote(urlsplit(place).path.removeprefix("/")),
                user=credentials.username,
                password=credentials.password.get_secret_value(),
                sslmode={"verify": "verify-full", "encrypt": "require", "off": "disable"}[parameters.tls],
                sslrootcert=opened.enter_context(_authorities(parameters, access)),
                connect_timeout=_CONNECT_SECONDS,
                gssencmode="disable",
                application_name="slackwater",
                **({"options": _OPTIONS} if arguments is None else arguments),
            )
            with connection:
                yield connection
        except SlackwaterError:
            raise
        except (psycopg.OperationalError, OSError) as error:
            raise Unavailable(f"{place}: {_one_line(error)}") from error
        except psycopg.Error as error:
            raise InputError(f"{place}: {_one_line(error)}") from error


@contextmanager
def _authorities(parameters: DatabaseParameters, access: Access) -> Iterator[str]:
    """Yield the path of a file with the authorities that certificates are checked with."""
    import certifi

    if parameters.tls != "verify":
        # With a file that exists, libpq verifies the certificate in its mode `require` too.
        yield _NO_FILE
    elif parameters.certificate_authority is None:
        yield certifi.where()
    elif access.files is None:
        raise InputError("certificate_authority: there are no project files here")
    else:
        item = access.files.find_one(parameters.certificate_authority, None)
        with local_copy(item, access.files) as path:
            yield str(path)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
