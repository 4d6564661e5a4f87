"""The side-line, read: what was rejected on which day by which rule, and the rejected events themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slackwater.errors import DataError
from slackwater.receiver.writing.rejects import rejects_prefix
from slackwater.storage import ObjectStore, StoredObject

UNKNOWN = "unknown"
"""Stands for the rule of an event that was rejected before rules were kept."""
_READERS = 16
"""Objects read at once: most of a read is waiting."""


class StoredReject(BaseModel):
    """A `SidelineRecord` as it lies there, in an older or a newer form too."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    index: Annotated[int, Field(ge=0)]
    line: int | None = None
    reason: str
    rule: str = UNKNOWN
    batch_id: str
    origin: str
    text: str


@dataclass(frozen=True, kw_only=True)
class RejectedDay:
    """How much of a source was rejected on the UTC day on which it came."""

    source: str
    date: str
    events: int
    batches: int
    """Batches and files that they came in."""
    rules: Counter[str]
    """Events by rule."""


class RejectedEventOnDay(NamedTuple):
    """A rejected event, and the UTC day on which it came."""

    date: str
    record: StoredReject


@dataclass(frozen=True, kw_only=True)
class RejectsReader:
    """Reads the side-line. Raises `CloudError`, and `DataError` for an object that is none of its own."""

    store: ObjectStore
    raw_bucket: str

    def days(self, source: str, dates: Iterable[str]) -> Iterator[RejectedDay]:
        """Count what was rejected on each of the days; a day without is left out."""
        with ThreadPoolExecutor(max_workers=_READERS) as pool:
            for date in dates:
                addresses = [item.uri for item in self.store.list(rejects_prefix(self.raw_bucket, source, date))]
                rules = sum(pool.map(self._rules, addresses), Counter[str]())
                if addresses:
                    yield RejectedDay(
                        source=source, date=date, events=rules.total(), batches=len(addresses), rules=rules
                    )

    def events(self, source: str, dates: Iterable[str]) -> Iterator[RejectedEventOnDay]:
        """Read what was rejected on each of the days: of a day the latest batch first, of a batch in its order."""
        for date in dates:
            yield from self._events(self.store.list(rejects_prefix(self.raw_bucket, source, date)))

    def events_of_batch(self, source: str, batch_id: str) -> Iterator[RejectedEventOnDay]:
        """Read what was rejected of one batch, whenever it came."""
        every = self.store.list(rejects_prefix(self.raw_bucket, source))
        return self._events(item for item in every if item.uri.endswith(f"/{batch_id}.jsonl"))

    def _events(self, objects: Iterable[StoredObject]) -> Iterator[RejectedEventOnDay]:
        for item in sorted(objects, key=lambda item: item.modified, reverse=True):
            date = item.uri.rpartition("/date=")[2].partition("/")[0]
            for record in self._records(item.uri):
                yield RejectedEventOnDay(date, record)

    def _rules(self, uri: str) -> Counter[str]:
        return Counter(record.rule for record in self._records(uri))

    def _records(self, uri: str) -> Iterator[StoredReject]:
        for number, line in enumerate(self.store.get(uri).splitlines(), start=1):
            try:
                yield StoredReject.model_validate_json(line)
            except ValidationError as error:
                raise DataError(f"{uri}: line {number} is no rejected event: {error.errors()[0]['msg']}") from error
