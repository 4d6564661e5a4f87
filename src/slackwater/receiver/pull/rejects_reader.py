"""Read the rejected events under `sideline/`: their number by day and rule, or the events themselves.

Nothing is deleted there. Of a pulled file, only the events count that its present content has, as the definition that
readers see has read it. Of a pushed batch, the events count that are not stored since: some were sent again
(`slackwater.receiver.push.redrive`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from slackwater.receiver.pull.file_cache import FileCache
from slackwater.receiver.writing.redrives import (
    FailedAgain,
    RedriveObjects,
    SentAgain,
    objects_by_batch,
    read_sent_again,
)
from slackwater.receiver.writing.stored_rejects import StoredReject, read_rejects
from slackwater.sources.rejected_events import redrives_prefix, rejects_prefix
from slackwater.storage import ObjectStore, StoredObject

# Objects that are read at the same time. A read mostly waits for S3.
_PARALLEL_READS = 16
# The object of a pulled file has the ids of its content and of what was read (`ContentVersion.digest`).
_OF_FILE = re.compile(r"/(?P<content>[0-9a-f]{32})-(?P<digest>[0-9a-f]{12})\.jsonl$")


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
    """Events by rule, that of their latest rejection."""
    sent_again: Counter[str]
    """Those of them that were sent again, and were rejected again."""
    examples: Mapping[str, RejectedEventOnDay]
    """The first event of each rule."""


class RejectedEventOnDay(NamedTuple):
    """A rejected event, and the UTC day on which its batch was received."""

    date: str
    record: StoredReject
    """With the reason of its first rejection."""
    sent_again: int = 0
    """How often it was sent again."""
    newest: FailedAgain | None = None
    """Its latest rejection, if it was sent again."""

    @property
    def rule(self) -> str:
        """The rule of its latest rejection."""
        return self.newest.rule if self.newest else self.record.rule

    @property
    def reason(self) -> str:
        """The reason of its latest rejection."""
        return self.newest.reason if self.newest else self.record.reason

    @property
    def document(self) -> dict[str, Any]:
        """The event as JSON."""
        newest = {"newest_rule": self.newest.rule, "newest_reason": self.newest.reason} if self.newest else {}
        return {"date": self.date, **self.record.model_dump(), "sent_again": self.sent_again, **newest}


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
        with ThreadPoolExecutor(max_workers=_PARALLEL_READS) as pool:
            for date in dates:
                rules, sent_again = Counter[str](), Counter[str]()
                examples: dict[str, RejectedEventOnDay] = {}
                batches = 0
                count = partial(self._count, self._redrives(source, date))
                for counted in pool.map(count, self.objects(source, date)):
                    batches += bool(counted.rules)
                    rules += counted.rules
                    sent_again += counted.sent_again
                    examples = {**counted.examples, **examples}
                if batches:
                    yield RejectedDay(
                        source=source,
                        date=date,
                        events=rules.total(),
                        batches=batches,
                        rules=rules,
                        sent_again=sent_again,
                        examples=examples,
                    )

    def _count(self, redrives: Mapping[str, RedriveObjects], item: StoredObject) -> _Counted:
        """Count the rejected events of one object."""
        counted = _Counted(Counter(), Counter(), {})
        for event in self._records(item.uri, redrives):
            counted.rules[event.rule] += event.record.rows
            counted.sent_again[event.rule] += bool(event.sent_again)
            counted.examples.setdefault(event.rule, event)
        return counted

    def events(self, source: str, dates: Iterable[str]) -> Iterator[RejectedEventOnDay]:
        """Yield the rejected events of the days: the latest batch of a day first, each batch in its own order."""
        for date in dates:
            yield from self._events(source, self.objects(source, date))

    def events_of_batch(self, source: str, batch_id: str) -> Iterator[RejectedEventOnDay]:
        """Yield the rejected events of one batch. Lists the objects of all days, because the day is not known."""
        # The object of a pulled file also has the digest of what was read in its name.
        name = re.compile(rf"/{re.escape(batch_id)}(-[0-9a-f]+)?\.jsonl$")
        return self._events(source, [item for item in self.objects(source) if name.search(item.uri)])

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

    def pushed_batches(self, source: str, date: str) -> tuple[list[str], int]:
        """Return the ids of pushed batches of a day with rejected events, and the number of files that have some."""
        objects = self.objects(source, date)
        batches = [name_of(item.uri) for item in objects if not _OF_FILE.search(item.uri)]
        return batches, len(objects) - len(batches)

    def _redrives(self, source: str, date: str = "") -> Mapping[str, RedriveObjects]:
        return objects_by_batch(self.store.list(redrives_prefix(self.raw_bucket, source, date)))

    def _events(self, source: str, objects: Sequence[StoredObject]) -> Iterator[RejectedEventOnDay]:
        dates = {date_of(item.uri) for item in objects}
        redrives = {name: found for date in dates for name, found in self._redrives(source, date).items()}
        for item in sorted(objects, key=lambda item: item.modified, reverse=True):
            yield from self._records(item.uri, redrives)

    def _records(self, uri: str, redrives: Mapping[str, RedriveObjects]) -> Iterator[RejectedEventOnDay]:
        """Yield the events of an object that are not stored since."""
        date = date_of(uri)
        objects = redrives.get(name_of(uri))
        sent = read_sent_again(self.store, objects) if objects else SentAgain()
        for record in read_rejects(uri, self.store.get(uri)):
            if record.index not in sent.stored:
                yield RejectedEventOnDay(date, record, sent.times.get(record.index, 0), sent.newest.get(record.index))


class _Counted(NamedTuple):
    """What `RejectedDay` says, of one object."""

    rules: Counter[str]
    sent_again: Counter[str]
    examples: dict[str, RejectedEventOnDay]


def date_of(uri: str) -> str:
    """Return the UTC day in the URI of an object of rejected events."""
    return uri.rpartition("/date=")[2].partition("/")[0]


def name_of(uri: str) -> str:
    """Return the id of the batch in the URI of its rejected events; of a file, the ids of content and reading."""
    return uri.rpartition("/")[2].removesuffix(".jsonl")
