"""How files are pulled from a partner: where they are, which of them to fetch, and their format."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)

from slackwater.model import Cron, Model, TimeZone
from slackwater.sources.file_format import Csv, FileFormat
from slackwater.sources.file_pattern import FilePattern

_SCHEMES = ("http", "https", "s3", "sftp")
# Characters that URL parsers treat differently: a backslash is a slash to some of them. None is valid in a URL.
_WHITESPACE_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f\\]")
# S3's rule: 3 to 63 lower-case letters, digits, dots and hyphens.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# The deployment grants rights on `bucket/prefix*`. In a policy, `*` and `?` are wildcards and `$` starts a variable: a
# prefix with one of them would grant rights on other objects too.
_PREFIX = re.compile(r"[^*?$\x00-\x1f]*")
# Bytes in UTF-8, with a date, as for names of files. The pattern with a date is a key of an index of the file cache:
# DynamoDB limits it to 2,048 bytes.
_MAX_PATTERN_BYTES = 640
_LONGEST_DATE = date(2013, 9, 30)  # September, with %B
# The characters that Secrets Manager and Parameter Store allow in names, and `:` for ARNs.
_CREDENTIALS_REFERENCE = re.compile(r"(secretsmanager|ssm):[A-Za-z0-9/_+=.@:-]+")

# Without ssh-dss: OpenSSH disables it by default since version 7.0.
_KEY_ALGORITHMS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")


def check_url(value: str) -> str:
    """Return the URL unchanged. Raises `ValueError` for one that is malformed, or that contains credentials."""
    parts = urlsplit(value)
    try:
        has_valid_port = parts.port is None or parts.port > 0
    except ValueError:
        has_valid_port = False
    if parts.scheme not in _SCHEMES or not parts.hostname or not has_valid_port or _WHITESPACE_OR_CONTROL.search(value):
        raise ValueError(f"{value!r} is not a URL such as https://host/path, s3://bucket/prefix or sftp://host/path")
    if parts.username or parts.password:
        # The message must not repeat the credentials.
        raise ValueError(
            f"{parts.scheme}://...@{parts.hostname}: a URL must not contain credentials: name them in `credentials`"
        )
    if parts.scheme == "s3" and not (_BUCKET.fullmatch(parts.netloc) and _PREFIX.fullmatch(parts.path)):
        raise ValueError(f"{value!r}: use the name of a bucket and a prefix without * and ?")
    if parts.fragment or (parts.query and parts.scheme in {"s3", "sftp"}):
        raise ValueError(f"{value!r}: remove the query and the fragment")
    return value


def _check_credentials_reference(value: str) -> str:
    if not _CREDENTIALS_REFERENCE.fullmatch(value):
        raise ValueError("a definition must not contain credentials: use secretsmanager:<name> or ssm:<name>")
    return value


CredentialsReference = Annotated[str, AfterValidator(_check_credentials_reference)]
"""`secretsmanager:<name>` or `ssm:<name>`."""


@dataclass(frozen=True)
class HostKey:
    """The public key of an SFTP server, in OpenSSH's format. It proves that a server is the partner's."""

    algorithm: str
    """Such as `ssh-ed25519`."""
    blob: bytes
    """The key as servers send it: the name of the algorithm, then the key itself."""

    @classmethod
    def parse(cls, line: str) -> HostKey:
        """Parse `ssh-ed25519 AAAA...`, with or without a comment at the end. Raises `ValueError`."""
        algorithm, *encoded = line.split()[:2] or [""]
        if algorithm not in _KEY_ALGORITHMS or not encoded:
            raise ValueError(
                f"{line!r} is not a host key: use the last two words of a line of `ssh-keyscan HOST`, "
                f"such as ssh-ed25519 AAAA... (supported: {', '.join(_KEY_ALGORITHMS)})"
            )
        try:
            blob = base64.b64decode(encoded[0], validate=True)
        except ValueError:
            blob = b""
        # RFC 4253, section 6.6: a key begins with the length of its algorithm's name in four bytes, then the name.
        name = algorithm.encode()
        if not blob.startswith(len(name).to_bytes(4, "big") + name):
            raise ValueError(f"{line!r} is not a host key: the part after {algorithm} is not a key of that algorithm")
        return cls(algorithm, blob)


def _check_host_key(value: str) -> str:
    HostKey.parse(value)
    return value


def _check_pattern(value: str) -> str:
    size = len(FilePattern(value).dated(_LONGEST_DATE).encode())
    if size > _MAX_PATTERN_BYTES:
        raise ValueError(f"with a date the pattern has {size:,} bytes in UTF-8, and the limit is {_MAX_PATTERN_BYTES}")
    return value


OnRemoved = Literal["keep", "hold", "drop"]
"""What happens to the rows of a file that the partner has removed: the days keep them, the days that have read them are
on hold, or the days run again without them."""


class PullConfig(Model):
    """Files are fetched from a partner, over a rolling look-back window."""

    url: Annotated[str, AfterValidator(check_url)]
    """The folder with the files: `https://host/path`, `s3://bucket/prefix` or `sftp://host/folder`. The names of files
    are relative to it."""
    files: Annotated[str, AfterValidator(_check_pattern)]
    """Pattern of the names of the files to fetch. `{date}` (or `{date:%Y/%m/%d}`) is the date of a file, `{hour}` its
    hour, and `*` is any string without a slash."""
    listing: Literal["json", "html", "none"] = "json"
    """What an HTTP server returns at `url`: a JSON listing, an HTML index, or nothing. With `none`, each possible name
    is requested. An index with links to files of the window is recognised without `html`."""
    format: FileFormat = Csv()
    credentials: CredentialsReference | None = None
    """`secretsmanager:<name>` or `ssm:<name>`: a JSON object with a `token`, or with a `username` and a `password` or a
    `private_key`."""
    role: (
        Annotated[str, StringConstraints(pattern=r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]+$")] | None
    ) = None
    """S3: the IAM role to assume, in the account that owns the bucket."""
    host_key: Annotated[str, AfterValidator(_check_host_key)] | None = None
    """SFTP: the server's public key, as `ssh-keyscan` shows it: `ssh-ed25519 AAAA...`."""
    empty_files: Literal["ignore", "fail"] | None = None
    """What happens to a file without a row: `ignore` stores it, with no events, and `fail` lets it fail. By default, a
    file with only a header is stored, and one without a byte fails if its format cannot be empty."""
    lookback_days: Annotated[int, Field(gt=0, le=366)] = 7
    """Number of days in the look-back window, which ends today."""
    timezone: TimeZone | None = None
    """Timezone of `{date}`, of "today" and of `schedule`: by default `timestamp.timezone`, or else UTC."""
    schedule: Cron = "15 * * * *"
    """When files are pulled, as a cron expression."""
    on_removed: OnRemoved = "keep"
    """What happens when the partner removes a file of the window whose rows are stored. `keep`: its rows stay. `hold`:
    published days with its rows are on hold. `drop`: they run again without its rows, by the thresholds."""
    function_mb: Annotated[int, Field(gt=0)] = 1024
    """Files larger than this number of megabytes are fetched by an EMR Serverless job instead of a Lambda function."""
    max_file_mb: Annotated[int, Field(gt=0)] | None = None
    """Files larger than this number of megabytes fail. If it is at most `function_mb`, the source needs no job. By
    default, jobs fetch files of any size; those without a network only from S3, and larger files of others fail."""

    @property
    def scheme(self) -> str:
        """The scheme of `url`: `http`, `https`, `s3` or `sftp`."""
        return urlsplit(self.url).scheme

    def uses_jobs(self, *, have_network: bool) -> bool:
        """Return whether jobs fetch the files that are too large for a function; if not, such files fail.

        Jobs without a network reach S3 only. A deployment refuses a `max_file_mb` that needs others.
        """
        if self.max_file_mb is not None:
            return self.max_file_mb > self.function_mb
        return have_network or self.scheme == "s3"

    @property
    def pattern(self) -> FilePattern:
        """The parsed pattern of `files`."""
        return FilePattern(self.files)

    @model_serializer(mode="wrap")
    def _without_new_keys(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # While a deployment updates the functions, those of the release before read receipts and messages with this
        # definition: they do not know `empty_files`, and need a timezone if there is the key.
        new = ("empty_files", "timezone")
        return {key: value for key, value in serialize(self).items() if key not in new or value is not None}

    @model_validator(mode="after")
    def _check_options_of_scheme(self) -> PullConfig:
        is_http = self.scheme in {"http", "https"}
        if self.listing != "json" and not is_http:
            raise ValueError(f"listing is for http and https, not for {self.scheme}: remove it")
        if self.listing == "none" and not self.pattern.is_exact:
            raise ValueError("`files` cannot have a * with `listing: none`, because each name is requested")
        if self.listing == "html" and "*" in self.files.rpartition("/")[0]:
            raise ValueError("an HTML index lists one folder, so the folders in `files` cannot have a *")
        if self.role and self.scheme != "s3":
            raise ValueError(f"role is for s3, not for {self.scheme}: remove it")
        if self.credentials and self.scheme == "s3":
            raise ValueError("credentials are not for s3: let this account read the bucket, or set `role`")
        if self.credentials and self.scheme == "http":
            raise ValueError("http would send the credentials unencrypted: use https")
        if self.scheme == "sftp" and not (self.credentials and self.host_key):
            raise ValueError("sftp needs `credentials`, and `host_key` to verify the server's identity")
        if self.host_key and self.scheme != "sftp":
            raise ValueError(f"host_key is for sftp, not for {self.scheme}: remove it")
        return self
