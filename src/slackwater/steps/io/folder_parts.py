"""The parts of a folder that a load step writes, and the object `_SUCCESS` that names them when all are written."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from slackwater.errors import InputError, ObjectMissing
from slackwater.steps.files import ProjectFiles
from slackwater.storage import ObjectStore, StoredObject

PREFIX = "part-"
"""Every part's name begins so."""
SUCCESS = "_SUCCESS"
# Only load steps name files so: Spark's own parts have a longer identifier, after the number of the task.
_PART = re.compile(rf"{PREFIX}[0-9a-f]{{12}}-\d{{5,}}-\d{{3,}}\.\w+")


def part_name(call: str, task: int, number: int, extension: str) -> str:
    """Return the name of a part. `call` is 12 hexadecimal digits that no other call uses."""
    return f"{PREFIX}{call}-{task:05}-{number:03}.{extension}"


def write_success(store: ObjectStore, folder: str, names: Sequence[str]) -> None:
    """State that the folder, a URI with a slash at the end, has exactly these parts."""
    store.put(f"{folder}{SUCCESS}", json.dumps({"parts": names}).encode())


def expect_complete_folders(found: Iterable[StoredObject], files: ProjectFiles) -> None:
    """Raise `InputError` if files are parts of a load step, and not exactly those that their folder's `_SUCCESS` names.

    Other files are accepted without a `_SUCCESS`.
    """
    parts: dict[str, set[str]] = defaultdict(set)
    for item in found:
        folder, slash, name = item.uri.rpartition("/")
        if _PART.fullmatch(name):
            parts[folder + slash].add(name)
    for folder, names in parts.items():
        # Read after the listing: a writer that ran meanwhile has removed it, or has named parts that are not listed.
        if names != _complete_parts(files.stores(), folder):
            raise InputError(
                f"path: {files.name(folder)}: its parts are not those that {SUCCESS} names: the load step that writes "
                "the folder failed or is still running: let it finish or run it again, and read all of its parts"
            )


def _complete_parts(store: ObjectStore, folder: str) -> set[str]:
    """Return the names in `_SUCCESS`; none if it is missing, or if another program wrote it."""
    try:
        return set(json.loads(store.get(f"{folder}{SUCCESS}"))["parts"])
    except (ObjectMissing, ValueError, TypeError, KeyError):
        return set()
