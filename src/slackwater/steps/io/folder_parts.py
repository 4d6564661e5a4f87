"""The parts of a folder that a load step writes, and the object `_SUCCESS` that names them when all are written."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from hashlib import sha256
from uuid import uuid4

from slackwater.errors import InputError, ObjectMissing, PublishOvertaken, Unavailable
from slackwater.runs.record import Run
from slackwater.steps.files import ProjectFiles
from slackwater.steps.io.attempts import delete_object, overtaken, put_object
from slackwater.storage import ObjectStore, StoredObject

PREFIX = "part-"
"""Every part's name begins so."""
SUCCESS = "_SUCCESS"
# Only load steps name files so: Spark's own parts have a longer identifier, after the number of the task.
# Older versions, and steps outside of a run, write no day and no attempt.
_PART = re.compile(
    rf"{PREFIX}((?P<day>[0-9a-f]{{12}})-(?P<attempt>\d+)-)?(?P<call>[0-9a-f]{{12}})-\d{{5,}}-\d{{3,}}\.\w+"
)


def part_name(call: str, task: int, number: int, extension: str) -> str:
    """Return the name of a part. `call` is that of `replace_parts`."""
    return f"{PREFIX}{call}-{task:05}-{number:03}.{extension}"


def replace_parts(store: ObjectStore, folder: str, run: Run | None, write: Callable[[str], Sequence[str]]) -> None:
    """Replace the parts in a folder, a URI with a slash at the end, by those of one call.

    `write` gets the name of the call, writes the parts, and returns their names. Raises `PublishOvertaken` if a later
    attempt of the run's day has written parts; then the folder has none of this call. Raises `Unavailable` if another
    call has deleted parts of this one.
    """
    # Unique for each call, so that its parts replace no part of an earlier one before all of them are written.
    call = uuid4().hex[:12]
    if run:
        call = f"{_day_of(run)}-{run.attempt}-{call}"
    delete_object(store, f"{folder}{SUCCESS}", run)
    names = write(call)
    try:
        _delete_other_parts(store, folder, run, names)
        put_object(store, f"{folder}{SUCCESS}", json.dumps({"parts": names}).encode(), run)
    except PublishOvertaken:
        store.delete([f"{folder}{name}" for name in names])
        raise
    # Two jobs of one attempt may each delete the parts of the other one. The last of them to come here sees it.
    if not {folder + name for name in names} <= {item.uri for item in store.list(f"{folder}{PREFIX}")}:
        delete_object(store, f"{folder}{SUCCESS}", run)
        raise Unavailable(f"{folder}: another program has deleted parts of this call: run the day again")


def _delete_other_parts(store: ObjectStore, folder: str, run: Run | None, names: Sequence[str]) -> None:
    prefix = f"{folder}{PREFIX}"
    listed = [item.uri for item in store.list(prefix) if "/" not in item.uri[len(prefix) :]]
    if run:
        day = _day_of(run)
        parts = [_PART.fullmatch(uri.removeprefix(folder)) for uri in listed]
        later = max((int(part["attempt"]) for part in parts if part and part["day"] == day), default=0)
        if later > run.attempt:
            raise overtaken(folder, later, run, remedy="delete the folder's objects, and run the day again")
    store.delete([uri for uri in listed if uri.removeprefix(folder) not in names])


def _day_of(run: Run) -> str:
    """Return 12 hexadecimal digits for the pipeline and the date: other days may replace the parts."""
    return sha256(f"{run.pipeline} {run.date}".encode()).hexdigest()[:12]


def without_superseded_parts(found: Sequence[StoredObject], files: ProjectFiles) -> list[StoredObject]:
    """Return the files without parts that an earlier attempt has left beside those of a later one.

    Raises `InputError` if other parts of a load step are not exactly those that their folder's `_SUCCESS` names. Other
    files are accepted without a `_SUCCESS`.
    """
    parts: dict[str, set[str]] = defaultdict(set)
    for item in found:
        folder, slash, name = item.uri.rpartition("/")
        if _PART.fullmatch(name):
            parts[folder + slash].add(name)
    superseded = set()
    for folder, names in parts.items():
        # Read after the listing: a writer that ran meanwhile has removed it, or has named parts that are not listed.
        complete = _complete_parts(files.stores(), folder)
        left = {name for name in names - complete if any(_is_earlier(name, other) for other in complete)}
        superseded |= {folder + name for name in left}
        if names - left != complete:
            raise InputError(
                f"path: {files.name(folder)}: its parts are not those that {SUCCESS} names: the load step that writes "
                "the folder failed or is still running: let it finish or run it again, and read all of its parts"
            )
    return [item for item in found if item.uri not in superseded]


def _is_earlier(name: str, other: str) -> bool:
    """Return whether a part is of an earlier attempt of the same day than another one."""
    part, later = _PART.fullmatch(name), _PART.fullmatch(other)
    if not (part and later and part["day"] and part["day"] == later["day"]):
        return False
    return int(part["attempt"]) < int(later["attempt"])


def _complete_parts(store: ObjectStore, folder: str) -> set[str]:
    """Return the names in `_SUCCESS`; none if it is missing, or if another program wrote it."""
    try:
        return set(json.loads(store.get(f"{folder}{SUCCESS}"))["parts"])
    except (ObjectMissing, ValueError, TypeError, KeyError):
        return set()
