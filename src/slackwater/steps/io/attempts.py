"""Objects that the attempts of a day replace: the latest attempt wins, in whatever order they write.

An object carries the pipeline, the date and the attempt of its run as user metadata. It is written and deleted on the
condition that it is still the object whose metadata was read.
"""

from __future__ import annotations

from collections.abc import Callable

from slackwater.errors import Superseded, Unavailable
from slackwater.runs.record import Run
from slackwater.storage import ObjectHead, ObjectStore

# How often another writer may change the object between reading its metadata and writing it.
_TRIES = 20


def put_object(
    store: ObjectStore, uri: str, body: bytes, run: Run | None, *, before: Callable[[], object] = lambda: None
) -> None:
    """Write an object, over one of anybody but a later attempt of the run's day; outside of a run, over any object.

    `before` is called before each try, and sees the object that the try replaces, or a newer one. Raises
    `Superseded` if a later attempt has written it, and `Unavailable`.
    """
    metadata = {"pipeline": run.pipeline, "date": run.date, "attempt": str(run.attempt)} if run else {}

    def write(found: ObjectHead | None) -> bool:
        before()
        if found is None:
            return store.put_new(uri, body, metadata=metadata)
        return store.put_if_match(uri, body, etag=found.etag, metadata=metadata)

    _change(store, uri, run, write)


def delete_object(
    store: ObjectStore, uri: str, run: Run | None, *, before: Callable[[], object] = lambda: None
) -> None:
    """Delete an object if it exists; `before` and errors are those of `put_object`."""

    def delete(found: ObjectHead | None) -> bool:
        before()
        return found is None or store.delete_if_match(uri, etag=found.etag)

    _change(store, uri, run, delete)


def superseded(what: str, later: int, run: Run, *, remedy: str) -> Superseded:
    """Return the error of a run whose later attempt has loaded the day. `remedy` is for a deployment made anew."""
    return Superseded(
        f"{what}: attempt {later} has loaded {run.date} already; this is attempt {run.attempt}, with older inputs. "
        f"If the deployment was destroyed and created again, its attempts begin at 1 again: {remedy}"
    )


def _change(store: ObjectStore, uri: str, run: Run | None, change: Callable[[ObjectHead | None], bool]) -> None:
    for _ in range(_TRIES):
        found = store.head(uri)
        if found and run:
            of_day = (found.metadata.get("pipeline"), found.metadata.get("date")) == (run.pipeline, run.date)
            later = int(found.metadata["attempt"]) if of_day else 0
            if later > run.attempt:
                raise superseded(uri, later, run, remedy="delete this object, and run the day again")
        if change(found):
            return
    raise Unavailable(f"{uri}: other programs replace it again and again: run the day again later")
