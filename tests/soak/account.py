"""The account: what readers must see, computed from what the partner has delivered, and not from our records."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

from slackwater.receiver.connectors.connector import ListedFile
from slackwater.receiver.pull.file_cache import Content, ContentVersion, FileCache, FileEntry, FileState
from slackwater.receiver.pull.rejects_reader import RejectsReader
from slackwater.receiver.pull.stale_objects import KEPT
from slackwater.runs.inputs.consistent_listing import consistent_listing
from slackwater.storage import ObjectStore, StoredObject
from tests.reading import read_parquet
from tests.soak.aws import MemoryDynamoDB, MemoryS3
from tests.soak.partner import BASE, Body, Definition, Hour, Partner, date_of

_BUCKET = "s3://raw/"
_CONTENT_DIGITS = 32
"""The name of an object begins with the id of its content."""


class Reading(NamedTuple):
    """A content as a definition reads it."""

    hours: Mapping[Hour, Mapping[str, str | None]]
    """Count of each event by its id: of the events with one id in one hour, the first."""
    accepted: int
    rejected: Sequence[int]
    """Indexes of the rejected rows."""


class LastRead(NamedTuple):
    """The definition of the last pull, and the first date of its window."""

    definition: Definition
    since: date


class Belief:
    """The content of each file, and the definition that reads each content, as the outcomes of all attempts tell."""

    def __init__(self, partner: Partner) -> None:
        self.partner = partner
        self.contents: dict[str, frozenset[str | None]] = {}
        """Possible contents of each file. There are several after an attempt of which nobody knows the outcome."""
        self.definitions: dict[str, frozenset[Definition]] = {}
        """Possible definitions of each content."""
        self.given_up: dict[str, ListedFile | None] = {}
        """The files that a person has given up, as they were listed before."""

    def attempted(
        self, path: str, delivered: Sequence[Body], definition: Definition, *, is_stored: bool, is_alone: bool
    ) -> None:
        """Note an attempt: what the partner delivered to it, and whether it has ended with stored rows."""
        before = self.contents.get(path, frozenset([None]))
        for body in delivered:
            if not body.is_readable(definition):
                assert not is_stored, f"{path} cannot be read with the definition {definition.name!r}, and is stored"
                continue
            self.contents[path] = frozenset([body.id]) if is_stored else before | {body.id}
            known = self.definitions.get(body.id, frozenset())
            self.definitions[body.id] = frozenset([definition]) | (frozenset() if is_stored and is_alone else known)


class Account:
    """Compares what readers see with what the partner has delivered."""

    def __init__(
        self, belief: Belief, *, s3: MemoryS3, dynamodb: MemoryDynamoDB, cache: FileCache, store: ObjectStore
    ) -> None:
        self.belief, self.partner = belief, belief.partner
        self.s3, self.dynamodb, self.cache, self.store = s3, dynamodb, cache, store
        self.checks = 0
        self._readings: dict[tuple[str, Definition], Reading] = {}
        self._verified: dict[str, str] = {}
        """ETags of objects that were equal to what they must hold."""

    def check(self, *, now: datetime, since: date | None = None, last_read: LastRead | None = None) -> dict[str, int]:
        """Check all hours since the date, or all hours ever; return the sums of all hours.

        With `last_read`, after the last pull, no work is left, and nothing that nobody needs.
        """
        self.checks += 1
        # Rows may be up to two days older, and up to a day newer, than the date in the name of their file.
        scope = [path for path in self.belief.contents if not since or date_of(path) >= since - timedelta(days=1)]
        files = {path: content for path in scope if (content := self._content(path))}
        read_by = {content: self._definition(content) for content in dict.fromkeys(files.values())}
        readings = {content: self._reading(content, definition) for content, definition in read_by.items()}
        expected = {
            f"raw/source=things/date={day}/hour={hour}/{content}": events
            for content, reading in readings.items()
            for (day, hour), events in reading.hours.items()
            if not since or day >= since.isoformat()
        }
        objects = self._check_objects(expected, now, since)
        digests = {content: self._committed(content).digest for content in readings}
        self._check_rejects(
            {f"{content}-{digests[content]}": reading.rejected for content, reading in readings.items()},
            is_complete=since is None,
        )
        if since:
            return {}
        self._check_nothing_is_left(objects, now=None if last_read else now)
        records = self._check_records(files, read_by, last_read) if last_read else {}
        hours = defaultdict[Hour, set[str]](set)
        for reading in readings.values():
            for hour, events in reading.hours.items():
                hours[hour] |= events.keys()
        sent = sum(self._rows(content) for content in files.values())
        stored, rejected = sum(map(len, hours.values())), sum(len(reading.rejected) for reading in readings.values())
        shared = sent - sum(self._rows(content) for content in readings)
        repeated = sum(reading.accepted for reading in readings.values()) - stored
        assert sent == stored + rejected + shared + repeated
        return {
            "files with rows": len(files),
            "sent": sent,
            "stored": stored,
            "duplicates": shared + repeated,
            "of these, in files with the content of another one": shared,
            "rejected": rejected,
            "objects": len(expected),
            "objects of rejects": sum(bool(reading.rejected) for reading in readings.values()),
            "objects that nobody needs": 0,
            **records,
        }

    def events_of(self, day: date) -> int:
        """Return the number of events of a UTC day that count: those with one id in one hour count once."""
        dates = {(day + timedelta(days=days)).isoformat() for days in range(-1, 4)}
        events = set[tuple[str, str]]()
        for path in [path for path in self.belief.contents if path[7:17] in dates]:
            if content := self._content(path):
                hours = self._reading(content, self._definition(content)).hours
                events |= {(hour, name) for (at, hour), ids in hours.items() if at == day.isoformat() for name in ids}
        return len(events)

    def _check_objects(
        self, expected: Mapping[str, Mapping[str, str | None]], now: datetime, since: date | None
    ) -> Sequence[str]:
        """Readers see exactly the expected objects, and each has exactly the expected events. Return their keys.

        `expected` are the events of an object by its key without version.
        """

        def objects() -> Iterator[StoredObject]:
            if since is None:
                yield from self.store.list(f"{_BUCKET}raw/source=things/")
                return
            for days in range((now.date() - since).days + 3):
                yield from self.store.list(f"{_BUCKET}raw/source=things/date={since + timedelta(days=days)}/")

        listing = consistent_listing(BASE.source, objects, files=self.cache)
        etags = {item.uri.removeprefix(_BUCKET): item.etag for item in listing.objects}
        keys = {key[: key.rindex("/") + 1 + _CONTENT_DIGITS]: key for key in etags}
        assert len(keys) == len(listing.objects), f"{now}: a content is read twice in one hour"
        assert keys.keys() == expected.keys(), (
            f"{now}: missing: {sorted(expected.keys() - keys.keys())[:5]}, "
            f"not expected: {sorted(keys.keys() - expected.keys())[:5]}"
        )
        for name, key in keys.items():
            if self._verified.get(key) != etags[key]:
                events = sorted(expected[name].items())
                assert self._events(key) == events, f"{now}: {key}: {self._events(key)}, not {events}"
                assert key.endswith(f"-{len(events)}.parquet"), f"{now}: {key} has {len(events)} events"
                self._verified[key] = etags[key]
        return list(etags)

    def _events(self, key: str) -> list[tuple[str, str | None]]:
        stored = self.s3.find(key)
        assert stored is not None
        assert stored.body is not None
        rows = read_parquet(stored.body, ["id", "count"]).to_pylist()
        return sorted((row["id"], None if row["count"] is None else str(row["count"])) for row in rows)

    def _check_rejects(self, expected: Mapping[str, Sequence[int]], *, is_complete: bool) -> None:
        """Each rejected row is shown once. With `is_complete`, no other one is."""
        keys = defaultdict[str, list[str]](list)
        for item in RejectsReader(store=self.store, files=self.cache, raw_bucket="raw").objects("things"):
            key = item.uri.removeprefix(_BUCKET)
            keys[key.rpartition("/")[2].removesuffix(".jsonl")].append(key)
        assert not is_complete or keys.keys() <= expected.keys()
        for name, indexes in expected.items():
            assert len(keys[name]) == (1 if indexes else 0), f"{name} has rejects in {keys[name]}"
            for key in keys[name]:
                stored = self.s3.find(key)
                assert stored is not None
                if self._verified.get(key) != stored.etag:
                    assert stored.body is not None
                    lines = stored.body.decode().splitlines()
                    assert [json.loads(line)["index"] for line in lines] == list(indexes), key
                    self._verified[key] = stored.etag

    def _check_nothing_is_left(self, needed: Iterable[str], *, now: datetime | None) -> None:
        """After stale objects were removed, others than the needed ones are younger than `KEPT`, or their content is.

        At the end, with `now` None, there are none.
        """
        left = set(self.s3.keys("raw/")).difference(needed)
        garbage = {key for key in left if now is None or self._last_needed(key) < now - KEPT}
        assert not garbage, f"{len(garbage)} objects are left over, such as {sorted(garbage)[:3]}"

    def _last_needed(self, key: str) -> datetime:
        """Return when an object was written, or when readers saw something else of its content since then."""
        stored, record = self.s3.find(key), self._record(("things#contents", key.rpartition("/")[2].partition("-")[0]))
        assert stored is not None
        return max(stored.modified, Content.model_validate(record).changed_at or stored.modified)

    def _check_records(self, files: Mapping[str, str], read_by: Mapping[str, Definition], last_read: LastRead) -> None:
        """No work is left, each content knows the number of its files, and each file has its current content."""
        records = [stored.item for stored in self.dynamodb.table.values()]
        entries = [
            FileEntry.model_validate_json(item["record"]["S"]) for item in records if item["source"]["S"] == "things"
        ]
        contents = [
            Content.model_validate_json(item["record"]["S"]) for item in records if item["source"]["S"] != "things"
        ]
        for entry in entries:
            assert (entry.lease, entry.changed) == (None, ()), entry
            assert entry.is_taken, entry
        assert {entry.path: entry.content for entry in entries if entry.content} == files
        numbers = Counter(files.values())
        for content in contents:
            assert content.files == numbers[content.id], content
        given_up = {entry.path for entry in entries if entry.state is FileState.GIVEN_UP}
        for current in (file for of_day in self.partner.files.values() for file in of_day.values()):
            path = current.listed.name
            if path in given_up:
                # The partner has not changed it since.
                assert self.belief.given_up[path] == current.listed, path
            else:
                assert files.get(path) == current.body.id, f"{path}: {files.get(path)}, not {current.body.id}"
                if date_of(path) >= last_read.since:
                    assert read_by[current.body.id] == last_read.definition, f"{path} is read with an old definition"
        return {
            "records of files": len(entries),
            "files given up": len(given_up),
            "records of contents": len(contents),
            "of these, without a file": sum(not content.files for content in contents),
        }

    def _content(self, path: str) -> str | None:
        """Return the content of a file. Only if its last attempt was interrupted, its record decides."""
        possible = self.belief.contents[path]
        if len(possible) > 1:
            content = self._record(("things", path)).get("content")
            assert content in possible, f"{path} has the content {content}, which is none of {possible}"
            self.belief.contents[path] = possible = frozenset([content])
        (content,) = possible
        return content

    def _definition(self, content: str) -> Definition:
        possible = self.belief.definitions[content]
        if len(possible) > 1:
            digest = self._committed(content).definition
            possible = frozenset(definition for definition in possible if definition.digest == digest)
            assert len(possible) == 1, f"{content} was read with another definition than those of its attempts"
            self.belief.definitions[content] = possible
        (definition,) = possible
        return definition

    def _committed(self, content: str) -> ContentVersion:
        committed = Content.model_validate(self._record(("things#contents", content))).committed
        assert committed is not None
        return committed

    def _record(self, key: tuple[str, str]) -> dict[str, Any]:
        stored = self.dynamodb.stored(key)
        record: dict[str, Any] = json.loads(stored.item["record"]["S"]) if stored else {}
        return record

    def _rows(self, content: str) -> int:
        return len(self.partner.bodies[content].rows or ())

    def _reading(self, content: str, definition: Definition) -> Reading:
        key = (content, definition)
        if key not in self._readings:
            self._readings[key] = read(self.partner.bodies[content], definition)
        return self._readings[key]


def read(body: Body, definition: Definition) -> Reading:
    """Read a content in plain Python."""
    hours, accepted, rejected = dict[Hour, dict[str, str | None]](), 0, list[int]()
    for index, row in enumerate(body.rows or ()):
        hour = row.hour(definition)
        if hour is None:
            rejected.append(index)
            continue
        accepted += 1
        hours.setdefault(hour, {}).setdefault(row.id, None if row.count in definition.null_values else row.count)
    return Reading(hours, accepted, rejected)
