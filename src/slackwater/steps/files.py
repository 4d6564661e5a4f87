"""The files that steps read and write: they are below one prefix of the project, and a step names them by their path.

A path is relative, such as `exports/delays/{date}.csv`. An absolute path, another scheme and `..` are refused, also
percent-encoded and in other Unicode characters, which other programs may decode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import takewhile
from typing import Annotated
from unicodedata import normalize

from pydantic import AfterValidator

from slackwater.errors import InputError
from slackwater.storage import ObjectStore, StoredObject

_DATE, _HOUR = "{date}", "{hour}"
INPUT = "{input}"
"""In a parameter of a load step: the name of the input."""
# A colon separates a scheme from a path, and a tilde is a home folder. The others are patterns to Spark, or quotes.
_FORBIDDEN = re.compile(r"[:\\?\[\]{}^%#\"'<>|]|^~")
# Bytes in UTF-8: a key in S3 has at most 1,024, with the prefix and the name of a part.
_MAX_BYTES = 640


def check_path(path: str) -> str:
    """Return the path unchanged. Raises `ValueError` unless it is a path below the project's prefix, without `*`."""
    return _check(_without_star(path), _DATE)


def check_output(path: str) -> str:
    """Return the path unchanged.

    Raises `ValueError` unless it is a path as in `check_path`, also with `{hour}` and `{input}`.
    """
    return _check(_without_star(path), _DATE, _HOUR, INPUT)


def check_pattern(path: str) -> str:
    """Return the path unchanged. Raises `ValueError` unless it is a path below the project's prefix.

    It may contain `*`, which is any string without a slash.
    """
    return _check(path, _DATE)


def _without_star(path: str) -> str:
    if "*" in path:
        raise ValueError(f"{path!r} has a *, which only steps that read files accept")
    return path


def _check(path: str, *placeholders: str) -> str:
    plain = path
    for placeholder in placeholders:
        plain = plain.replace(placeholder, "2013-03-10")
    # Also as a program reads it that takes characters such as a full-width dot for the plain ones.
    compatible = normalize("NFKC", plain)
    *folders, name = compatible.split("/")
    is_relative = path and not {"", ".", ".."} & set(folders) and name not in {".", ".."}
    if not is_relative or _FORBIDDEN.search(compatible) or not plain.isprintable():
        only = "is the only placeholder" if len(placeholders) == 1 else "are the only placeholders"
        raise ValueError(
            f"{path!r} is not a path below the project's files: use a relative one such as exports/{_DATE}.csv, "
            f"without `..`, a scheme, or characters of patterns; {_listed(placeholders)} {only}"
        )
    if len(path.encode()) > _MAX_BYTES:
        raise ValueError(f"the path {path[:60]!r}... has more than {_MAX_BYTES} bytes in UTF-8")
    return path


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def missing_period(path: str, *, hourly: bool) -> str:
    """Return what is wrong with the placeholders in a path that the runs of a pipeline write; empty if nothing is."""
    if not hourly:
        return f"{_HOUR} in it is of hourly pipelines only: remove it" if _HOUR in path else ""
    missing = [name for name in (_DATE, _HOUR) if name not in path]
    if not missing:
        return ""
    return (
        f"the hours would replace each other in {path!r}: name {' and '.join(missing)} in it, such as "
        f"exports/{_DATE}/{_HOUR}.csv"
    )


ProjectPath = Annotated[str, AfterValidator(check_path)]
"""A path below the project's files. `{date}` in it is the day of the run."""

OutputPath = Annotated[str, AfterValidator(check_output)]
"""As `ProjectPath`. `{input}` in it is the name of an input, and `{hour}` the hour of the run, such as 05."""

ProjectPattern = Annotated[str, AfterValidator(check_pattern)]
"""As `ProjectPath`. With `*`, or with a slash at the end, it is the path of several files."""


@dataclass(frozen=True)
class ProjectFiles:
    """The files of a project: objects below `prefix`."""

    prefix: str
    """URI that ends with a slash, such as `s3://bucket/files/`."""
    stores: Callable[[], ObjectStore]
    """Creates the store in the process that needs it."""

    def uri(self, path: str, day: date | None, hour: int | None = None) -> str:
        """Return the URI of a `ProjectPath`, with `{date}` replaced by `day`, and `{hour}` by `hour`, from 0 to 23.

        Raises `InputError` for a path with `{date}` outside of a run, and for one with `{hour}` outside of that of an
        hourly pipeline.
        """
        if _DATE in path and day is None:
            raise InputError(f"path: {path} contains {_DATE}, which only a run of a pipeline has")
        if _HOUR in path and hour is None:
            raise InputError(f"path: {path} contains {_HOUR}, which only a run of an hourly pipeline has")
        named = path.replace(_DATE, day.isoformat()) if day else path
        return self.prefix + (named if hour is None else named.replace(_HOUR, f"{hour:02d}"))

    def name(self, uri: str) -> str:
        """Return the path of the object at `uri` below the prefix, for messages."""
        return uri.removeprefix(self.prefix)

    def find(self, path: str, day: date | None) -> list[StoredObject]:
        """Return the objects of a `ProjectPattern`, in order of URI.

        A path that ends with a slash means all files directly in the folder. Names that begin with `_` or `.` are left
        out, as Spark does. Raises `InputError` if there is no file.
        """
        pattern = self.uri(f"{path}*" if path.endswith("/") else path, day)
        wanted = re.compile(re.escape(pattern).replace(r"\*", "[^/]*"))
        found = [
            item
            for item in takewhile(lambda item: "*" in pattern or item.uri <= pattern, self._below(pattern))
            if wanted.fullmatch(item.uri) and item.uri.rpartition("/")[2][:1] not in {"", "_", "."}
        ]
        if not found:
            raise InputError(
                f"path: no file {self.name(pattern)} below {self.prefix}: correct the path, or add the file"
            )
        return found

    def find_one(self, path: str, day: date | None) -> StoredObject:
        """Return the object of a path. Raises `InputError` unless there is exactly one."""
        first, *others = self.find(path, day)
        if others:
            raise InputError(f"path: {path} names {len(others) + 1} files, and one is expected: name the file")
        return first

    def _below(self, pattern: str) -> Iterator[StoredObject]:
        """List the objects whose URIs start with the part of the pattern before the first `*`."""
        return self.stores().list(pattern.partition("*")[0])
