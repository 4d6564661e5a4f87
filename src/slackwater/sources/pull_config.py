"""What a user writes about files that are pulled: where they are, which are wanted, what is in them."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from slackwater.model import Cron, Model, TimeZone
from slackwater.sources.file_format import Csv, FileFormat
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.host_key import HostKey

_SCHEMES = ("http", "https", "s3", "sftp")
_UNPLAIN = re.compile(r"[\s\x00-\x1f\x7f\\]")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_KEY = re.compile(r"[^*?$\x00-\x1f]*")
_REFERENCE = re.compile(r"(secretsmanager|ssm):[A-Za-z0-9/_+=.@:-]+")


def _address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in _SCHEMES or not parts.hostname or not _has_port(parts) or _UNPLAIN.search(value):
        such_as = "https://host/path, s3://bucket/prefix or sftp://host/path"
        raise ValueError(f"{value!r}: an address such as {such_as} is expected")
    if parts.username or parts.password:
        raise ValueError(
            f"{parts.scheme}://...@{parts.hostname}: credentials do not belong here: name them in `credentials`"
        )
    if parts.scheme == "s3":
        _expect_bucket(value, parts)
    if parts.fragment or (parts.query and parts.scheme in {"s3", "sftp"}):
        raise ValueError(f"{value!r}: neither a query nor a fragment is expected here")
    return value


def _has_port(parts: SplitResult) -> bool:
    """Whether its port, if it names one, is one."""
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False


def _expect_bucket(value: str, parts: SplitResult) -> None:
    """Rights are made of it, in which a * would open others' objects."""
    if not _BUCKET.fullmatch(parts.netloc) or not _KEY.fullmatch(parts.path):
        raise ValueError(f"{value!r}: a bucket's name and a prefix without * and ? are expected")


def _reference(value: str) -> str:
    if not _REFERENCE.fullmatch(value):
        raise ValueError("credentials are named, never written down: use secretsmanager:<name> or ssm:<name>")
    return value


def _host_key(value: str) -> str:
    HostKey.parse(value)
    return value


def _pattern(value: str) -> str:
    FilePattern(value)
    return value


class PullConfig(Model):
    """Files are fetched from a partner, over a rolling look-back window."""

    url: Annotated[str, AfterValidator(_address)]
    """`http(s)://` answers with a listing, and a file's address is this, a slash and its name; `s3://bucket/prefix` and
    `sftp://host/folder` are listed, and names are from there on."""
    files: Annotated[str, AfterValidator(_pattern)]
    """Names of the wanted files: `{date}` (or `{date:%Y/%m/%d}`) is the date that a file belongs to, `{hour}` its hour,
    `*` any text but a slash."""
    listing: Literal["json", "html", "none"] = "json"
    """What an HTTP server answers at `url`: a JSON listing, an HTML index, or nothing: then each name is asked for."""
    format: FileFormat = Csv()
    credentials: Annotated[str, AfterValidator(_reference)] | None = None
    """`secretsmanager:<name>` or `ssm:<name>`: a JSON object; see `slackwater.receiver.partners.credentials`."""
    role: (
        Annotated[str, StringConstraints(pattern=r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]+$")] | None
    ) = None
    """S3: the role to take on, of the account that owns the bucket."""
    host_key: Annotated[str, AfterValidator(_host_key)] | None = None
    """SFTP: the server's public key, as `ssh-keyscan` shows it: `ssh-ed25519 AAAA...`."""
    lookback_days: Annotated[int, Field(gt=0, le=366)] = 7
    timezone: TimeZone = "UTC"
    """Whose calendar `{date}` and "today" are of, and whose clock `schedule` is of."""
    schedule: Cron = "15 * * * *"
    """When the files are looked for."""
    function_mb: Annotated[int, Field(gt=0)] = 1024
    """Files larger than this are taken by a job of EMR Serverless instead of a function."""

    @property
    def scheme(self) -> str:
        """`http`, `https`, `s3` or `sftp`."""
        return urlsplit(self.url).scheme

    @property
    def pattern(self) -> FilePattern:
        """The wanted files' names."""
        return FilePattern(self.files)

    @model_validator(mode="after")
    def _fits_its_scheme(self) -> PullConfig:
        web = self.scheme in {"http", "https"}
        if self.listing != "json" and not web:
            raise ValueError(f"listing is for http and https; {self.scheme} lists by itself")
        if self.listing == "none" and not self.pattern.is_exact:
            raise ValueError("without a listing each name is asked for, so `files` cannot have a *")
        if self.listing == "html" and "*" in self.files.rpartition("/")[0]:
            raise ValueError("an HTML index shows one folder, so that none in `files` can be a *")
        if self.role and self.scheme != "s3":
            raise ValueError(f"role is for s3, not for {self.scheme}")
        if self.credentials and self.scheme == "s3":
            raise ValueError("s3 takes no credentials: let this account read the bucket, or name a `role`")
        if self.credentials and self.scheme == "http":
            raise ValueError("credentials would be sent in the clear: use https")
        if self.scheme == "sftp" and not (self.credentials and self.host_key):
            raise ValueError("sftp needs `credentials`, and the server's `host_key` so that it cannot be another one's")
        if self.host_key and self.scheme != "sftp":
            raise ValueError(f"host_key is for sftp, not for {self.scheme}")
        return self
