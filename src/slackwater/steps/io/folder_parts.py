"""The parts of a folder that a load step writes, and the object `_SUCCESS` that names them when all are written."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import uuid4

from slackwater.errors import InputError, ObjectMissing, Superseded
from slackwater.runs.record import Run
from slackwater.steps.files import ProjectFiles
from slackwater.steps.io.attempts import delete_object, put_object, superseded
from slackwater.storage import ObjectStore, StoredObject

PREFIX = "part-"
"""Every part's name begins so."""
SUCCESS = "_SUCCESS"
# A job that was killed has left older parts.
_LONGEST_CALL = timedelta(days=1)
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

    `write` gets the name of the call, writes the parts, and returns their names. Of calls at the same time, the last
    one to end replaces the others. Raises `Superseded` if a later attempt of the run's day has written parts;
    then the folder has none of this call.
    """
    # Unique for each call, so that its parts replace no part of an earlier one before all of them are written.
    call = uuid4().hex[:12]
    if run:
        call = f"{_day_of(run)}-{run.attempt}-{call}"
    success = f"{folder}{SUCCESS}"
    complete = set[str]()

    def read_complete_parts() -> None:
        complete.update(_complete_parts(store, folder))

    delete_object(store, success, run, before=read_complete_parts)
    names = write(call)

    def delete_others() -> None:
        # Other calls may have ended meanwhile.
        read_complete_parts()
        store.delete(_replaced_parts(store, folder, run, complete=complete, own=names))

    try:
        put_object(store, success, json.dumps({"parts": names}).encode(), run, before=delete_others)
    except Superseded:
        store.delete([f"{folder}{name}" for name in names])
        raise


def _replaced_parts(
    store: ObjectStore, folder: str, run: Run | None, *, complete: Set[str], own: Sequence[str]
) -> list[str]:
    """Return the URIs of the parts that a call replaces: all but its own, and those that other calls may be writing.

    `complete` are the names of the parts of calls that have ended. Raises `Superseded` if a later attempt of the
    day has parts.
    """
    prefix, day = f"{folder}{PREFIX}", _day_of(run) if run else None
    begun, found = datetime.now(UTC) - _LONGEST_CALL, []
    for item in store.list(prefix):
        name = item.uri.removeprefix(folder)
        part = _PART.fullmatch(name)
        attempt = int(part["attempt"]) if part and run and part["day"] == day else None
        if run and attempt and attempt > run.attempt:
            raise superseded(folder, attempt, run, remedy="delete the folder's objects, and run the day again")
        is_earlier_attempt = run and attempt and attempt < run.attempt
        may_be_written = run and part and part["day"] and not is_earlier_attempt and item.modified > begun
        if "/" not in name and name not in own and (name in complete or not may_be_written):
            found.append(item.uri)
    return found


def _day_of(run: Run) -> str:
    """Return 12 hexadecimal digits for the pipeline and the date: other days may replace the parts."""
    return sha256(f"{run.pipeline} {run.date}".encode()).hexdigest()[:12]


def only_complete_parts(found: Sequence[StoredObject], files: ProjectFiles) -> list[StoredObject]:
    """Return the files; of a load step's parts, only those that the folder's `_SUCCESS` names.

    Raises `InputError` if a folder with such parts has no `_SUCCESS`, or not all parts that it names. Other files are
    accepted without a `_SUCCESS`.
    """
    parts: dict[str, set[str]] = defaultdict(set)
    for item in found:
        folder, slash, name = item.uri.rpartition("/")
        if _PART.fullmatch(name):
            parts[folder + slash].add(name)
    left = set()
    for folder, names in parts.items():
        # Read after the listing: a writer that ran meanwhile has removed it, or has named parts that are not listed.
        complete = _complete_parts(files.stores(), folder)
        if not complete or not complete <= names:
            raise InputError(
                f"path: {files.name(folder)}: its parts are not those that {SUCCESS} names: the load step that writes "
                "the folder failed or is still running: let it finish or run it again, and read all of its parts"
            )
        left |= {folder + name for name in names - complete}
    return [item for item in found if item.uri not in left]


def _complete_parts(store: ObjectStore, folder: str) -> set[str]:
    """Return the names in `_SUCCESS`; none if it is missing, or if another program wrote it."""
    try:
        return set(json.loads(store.get(f"{folder}{SUCCESS}"))["parts"])
    except (ObjectMissing, ValueError, TypeError, KeyError):
        return set()
