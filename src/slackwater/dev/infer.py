"""Infer the definition of a source from a file of this machine, or from the beginning of a file at a URL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import unquote

from pydantic import TypeAdapter, ValidationError

from slackwater.dev.context import outbound_of_environment
from slackwater.dev.editor_schemas import keep_schemas, schema_comment
from slackwater.errors import InputError
from slackwater.model import Name
from slackwater.receiver.connectors.http_session import download_start, without_query
from slackwater.receiver.inference.infer import InferredDefinition, infer_definition
from slackwater.receiver.inference.read_sample import MAX_BYTES


class LocalSample(NamedTuple):
    """A sample as a file of this machine."""

    path: Path
    name: str
    """The name of the file, or the last part of its URL."""
    url: str | None
    """Where it comes from, without a query, which may be secret."""
    is_whole: bool
    """Whether `path` holds all of it."""


@contextmanager
def local_sample(sample: str) -> Iterator[LocalSample]:
    """Yield a file, or the beginning of what an http or https URL returns, until the block ends.

    Raises `InputError` for a sample that does not exist, and `PartnerError` for one that cannot be downloaded.
    """
    if not is_url(sample):
        path = Path(sample)
        if not path.is_file():
            raise InputError(f"{sample}: no such file")
        try:
            path.open("rb").close()
        except OSError as error:
            raise InputError(f"{sample} cannot be read: {error.strerror}") from error
        yield LocalSample(path, path.name, None, is_whole=True)
        return
    require_http(sample)
    url = without_query(sample)
    with TemporaryDirectory(prefix="slackwater-sample-") as folder:
        path = Path(folder, "sample")
        with path.open("w+b") as file:
            is_whole = download_start(sample, file, outbound=outbound_of_environment(), max_bytes=MAX_BYTES)
        yield LocalSample(path, unquote(url.rpartition("/")[2]) or "sample", url, is_whole)


def is_url(sample: str) -> bool:
    """Return whether a sample is a URL, and not a path."""
    return re.match(r"[a-z0-9]+://", sample) is not None


def require_http(url: str) -> None:
    """Raise `InputError` for a URL that is not read."""
    if not url.startswith(("http://", "https://")):
        raise InputError(f"{url}: only http and https URLs are read: download the file, and name it")


def infer_source(sample: str, *, name: str | None = None, output: Path | None = None) -> InferredDefinition:
    """Infer the definition of a source from `sample`, a file or an http or https URL; write it to a new file `output`.

    The name of the source is `name`, by default that of `output` or of the sample. Raises `InputError` for a sample
    that does not exist and for a name or a file that cannot be used, and `DataError` for a sample without a row.
    """
    name = _source_name(name, output)
    with local_sample(sample) as local:
        inferred = infer_definition(local.path, name=local.name, source=name, url=local.url, is_whole=local.is_whole)
    if output:
        written_to = output.resolve().parent
        if written_to.name == "sources":
            inferred = replace(inferred, definition=f"{schema_comment('source')}\n{inferred.definition}")
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            with output.open("x", encoding="utf-8") as stream:
                stream.write(inferred.definition)
        except OSError as error:
            raise InputError(f"--output: {output}: {error.strerror}") from error
        if written_to.name == "sources":
            keep_schemas(written_to.parent)
    return inferred


def _source_name(name: str | None, output: Path | None) -> str | None:
    """Return the name of the source; None if it comes from the sample. Raises `InputError`."""
    if output is not None:
        if output.exists():
            raise InputError(f"--output: {output} exists: remove it, or name another file")
        if output.suffix != ".yaml" or (name and name != output.stem):
            raise InputError(f"--output: {output}: the file of a source has its name: {name or output.stem}.yaml")
        name = output.stem
    try:
        return TypeAdapter(Name | None).validate_python(name)
    except ValidationError as error:
        option = "--output" if output else "--name"
        raise InputError(f"{option}: {name!r} is no name of a source: use a letter, then a-z, 0-9 and _") from error
