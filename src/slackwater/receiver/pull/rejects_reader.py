"""Read the rejected events under `sideline/`: their number by day and rule, or the events themselves.

Nothing is deleted there. Of a pulled file, only the events count that its present content has, as the definition that
readers see has read it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slackwater.errors import DataError
from slackwater.receiver.pull.file_cache import FileCache
from slackwater.sources.rejected_events import rejects_prefix
from slackwater.storage import ObjectStore, StoredObject

UNKNOWN = "unknown"
"""The rule of a stored event without a rule."""
# Objects that are read at the same time. A read mostly waits for S3.
_PARALLEL_READS = 16
# The object of a pulled file has the ids of its content and of what was read (`ContentVersion.digest`).
_OF_FILE = re.compile(r"/(?P<content>[0-9a-f]{32})-(?P<digest>[0-9a-f]{12})\.jsonl$")


class StoredReject(BaseModel):
    """A rejected event, as `to_jsonl` stores it.

    Another release may have written it, so more fields and unknown rules are accepted.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    index: Annotated[int, Field(ge=0)]
    line: int | None = None
    reason: str
    rule: str = UNKNOWN
    batch_id: str
    origin: str
    text: str
    rows: int = 1
    """More than 1 in the last example of a file that was rejected as a whole: itself and all later rows."""


@dataclass(frozen=True, kw_only=True)
class RejectedDay:
    """The number of events of a source that were rejected on one UTC day."""

    source: str
    date: str
    """The UTC day on which their batches were received first."""
    events: int
    batches: int
    """Number of batches and files that have rejected events."""
    rules: Counter[str]
    """Events by rule."""


class RejectedEventOnDay(NamedTuple):
    """A rejected event, and the UTC day on which its batch was received."""

    date: str
    record: StoredReject


@dataclass(frozen=True, kw_only=True)
class RejectsReader:
    """Reads rejected events. All methods raise `CloudError`, and `DataError` when an object has another format.

    `dates` are UTC days such as `2013-03-10`.
    """

    store: ObjectStore
    files: FileCache
    raw_bucket: str

    def days(self, source: str, dates: Iterable[str]) -> Iterator[RejectedDay]:
        """Yield the number of rejected events of each day; days without rejected events are left out."""

        def count_rules(uri: str) -> Counter[str]:
            rules = Counter[str]()
            for record in self._records(uri):
                rules[record.rule] += record.rows
            return rules

        with ThreadPoolExecutor(max_workers=_PARALLEL_READS) as pool:
            for date in dates:
                uris = [item.uri for item in self.objects(source, date)]
                rules = sum(pool.map(count_rules, uris), Counter[str]())
                if uris:
                    yield RejectedDay(source=source, date=date, events=rules.total(), batches=len(uris), rules=rules)

    def events(self, source: str, dates: Iterable[str]) -> Iterator[RejectedEventOnDay]:
        """Yield the rejected events of the days: the latest batch of a day first, each batch in its own order."""
        for date in dates:
            yield from self._events(self.objects(source, date))

    def events_of_batch(self, source: str, batch_id: str) -> Iterator[RejectedEventOnDay]:
        """Yield the rejected events of one batch. Lists the objects of all days, because the day is not known."""
        # The object of a pulled file also has the digest of what was read in its name.
        name = re.compile(rf"/{re.escape(batch_id)}(-[0-9a-f]+)?\.jsonl$")
        return self._events(item for item in self.objects(source) if name.search(item.uri))

    def objects(self, source: str, date: str = "") -> list[StoredObject]:
        """Return the objects of a day, or of all days, without those of replaced contents and definitions."""
        objects = list(self.store.list(rejects_prefix(self.raw_bucket, source, date)))
        of_files = {item.uri: match for item in objects if (match := _OF_FILE.search(item.uri))}
        ids = {match["content"] for match in of_files.values()}
        contents = {content.id: content.committed for content in self.files.contents(source, ids)}
        return [
            item
            for item in objects
            if (match := of_files.get(item.uri)) is None
            or match["content"] not in contents
            or ((committed := contents[match["content"]]) and committed.digest == match["digest"])
        ]

    def _events(self, objects: Iterable[StoredObject]) -> Iterator[RejectedEventOnDay]:
        for item in sorted(objects, key=lambda item: item.modified, reverse=True):
            date = item.uri.rpartition("/date=")[2].partition("/")[0]
            for record in self._records(item.uri):
                yield RejectedEventOnDay(date, record)

    def _records(self, uri: str) -> Iterator[StoredReject]:
        for number, line in enumerate(self.store.get(uri).splitlines(), start=1):
            try:
                yield StoredReject.model_validate_json(line)
            except ValidationError as error:
                message = error.errors()[0]["msg"]
                raise DataError(f"{uri}: line {number} is not a rejected event: {message}") from error
