"""What has happened to a pipeline in a model of late data, and what follows from it for the inputs of its days."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from datetime import datetime
from typing import TypeVar
from zoneinfo import ZoneInfo

from slackwater.late.decision import CheckReport
from slackwater.pipeline.definition import Pipeline
from tests.fakes_check import PIPELINE
from tests.late_world import USD_PER_ROW, LateWorld

DATES = ("2013-03-11", "2013-03-12", "2013-03-13")
"""Two finished days, and the current one."""

Key = TypeVar("Key", str, tuple[str, str])
Value = TypeVar("Value")
Inputs = Mapping[tuple[str, str], tuple[str | None, int]]
"""The partner's file and the rows of each object, by URI and etag."""


class LateHistory:
    """A pipeline, and what its sources, people and processes have done to it."""

    on_removed: str
    limits: dict[str, float]
    on_definition: str
    report: CheckReport
    """Of the last check."""

    def __init__(self) -> None:
        super().__init__()
        self.world = LateWorld()
        self.removed: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.withdrawn: set[str | None] = set()
        """Objects of files that the partner does not list any more."""
        self.ever_withdrawn: set[str] = set()
        """Paths of files that the partner has not listed for some time."""
        self.rejected: dict[str, tuple[str, int, datetime]] = {}
        """Objects of rejected events: the UTC date of these, their number, and when they were rejected."""
        self.files: dict[str, str] = {}
        """Paths of fetched files, by object."""
        self.recorded: set[tuple[str, int]] = set()
        """The versions that were ever the published one."""
        self.started: dict[str, tuple] = {}
        """The executions that are running a day."""
        self.is_interrupted = False
        """Whether a monitoring had a fault."""
        self.decided: set[tuple[str, int]] = set()
        """The published versions, by date and attempt, about which a person has made a decision."""
        self.released: set[tuple[str, frozenset[str]]] = set()
        """The inputs with which a person has released a day."""

    def observe(self) -> None:
        days = self.world.table.by_day.values()
        self.recorded |= {(day.date, day.published.run.attempt) for day in days if day.published}

    def decide(self, date: str) -> None:
        published = self.world.table.day(PIPELINE, date).published
        self.decided.add((date, published.run.attempt if published else 0))
        if made := self.world.table.day(PIPELINE, date).resolution:
            self.decided.add((date, made.attempt))

    def rows_of(self, manifest: str) -> dict[str, int]:
        """The rows of a manifest's objects, by URI."""
        return {uri: rows for (uri, _), rows in self.world.manifest_content(manifest).items()}

    def definition(self, digest: str | None = None) -> Pipeline:
        """Return the definition with this digest, by default the present one."""
        return self.world.definitions[digest or self.world.project.written_digest(PIPELINE)]

    def shared(self, date: str, objects: Mapping[Key, Value], *digests: str) -> dict[Key, Value]:
        """Return the objects, by URI or by URI and etag, that a day has by all of these definitions."""
        definitions = [self.definition(each) for each in digests]
        return {
            key: value
            for key, value in objects.items()
            if all(is_read(each, date, key if isinstance(key, str) else key[0]) for each in definitions)
        }

    def digests(self, date: str) -> tuple[str, str]:
        """Return the digests of the definition of the published version and of the present one."""
        published = self.world.table.day(PIPELINE, date).published
        record = self.world.table.run(PIPELINE, date, published.run.attempt)
        return record.definition, self.world.project.written_digest(PIPELINE)

    def runs_for_its_definition(self, date: str) -> bool:
        """Whether checks run the day again because of its definition, once it is in the window."""
        before, now = self.digests(date)
        return self.on_definition == "rerun" and before != now

    def published_rows(self, date: str) -> dict[str, int]:
        """The rows of the published version, by URI."""
        return {uri: rows for (uri, _), rows in self.world.warehouse.days[date].items()}

    def new_objects(self, date: str) -> set[str]:
        return self.shared(date, self.raw(date), *self.digests(date)).keys() - self.published_rows(date).keys()

    def is_kept(self, date: str, *, is_older: bool) -> bool:
        """Whether the published version stays as it is: its late data is ignored, or a person has rejected it.

        Nobody notices what a day before the window, `is_older`, has lost.
        """
        digests = self.digests(date)
        content, present = (self.shared(date, each, *digests) for each in (self.published_rows(date), self.raw(date)))
        if is_older:
            present = {uri: rows for uri, rows in present.items() if uri in content or self.is_always_read(date, uri)}
        is_known = bool(present.keys() - content.keys()) if is_older else content != present
        is_ignored = self.is_below(content, present, rows_to_read=sum(self.raw(date).values())) and (
            is_older or not self.has_lost(content, present)
        )
        if (not is_known or is_ignored) and (is_older or not self.runs_for_its_definition(date)):
            return True
        day = self.world.table.day(PIPELINE, date)
        made, attempt = day.resolution, day.published.run.attempt
        return made is not None and (made.action, made.attempt) == ("rejected", attempt)

    def is_always_read(self, date: str, uri: str) -> bool:
        """Whether a run of the day reads the object by each definition since the object was written.

        While a definition does not read it, its message lists no day, and a check takes its day off the list.
        """
        *_, written = self.world.store.objects[uri]
        before = [definition for at, definition in self.world.deployed if at < written]
        since = [definition for at, definition in self.world.deployed if at >= written]
        return all(is_read(each, date, uri) for each in (before[-1], *since))

    def raw(self, date: str) -> dict[str, int]:
        """The present inputs of a day by the present definition: their rows, by URI."""
        left_out, definition = () if self.on_removed == "keep" else self.withdrawn, self.definition()
        return {
            uri: int(item[1]["rows"])
            for uri, item in self.world.store.objects.items()
            if uri.startswith("s3://raw/raw/") and is_read(definition, date, uri) and uri not in left_out
        }

    def lost(self, before: Mapping[str, int], now: Mapping[str, int], dropped: Container[str | None]) -> list[str]:
        """Return the objects that are gone, unless they are dropped or their file has other ones with as many rows."""

        def rows_of_file(uri: str) -> int:
            file = self.file(uri)
            return sum(rows for each, rows in now.items() if "source=flights" in uri and self.file(each) == file)

        gone = before.keys() - now.keys()
        return [uri for uri in gone if uri not in dropped and rows_of_file(uri) < before[uri]]

    def has_lost(self, before: Mapping[str, int], now: Mapping[str, int]) -> bool:
        return bool(self.lost(before, now, self.dropped()))

    def dropped(self) -> set[str]:
        """Return the objects of files that the partner has removed, also of former contents, if they are dropped."""
        withdrawn = {self.files[uri] for uri in self.withdrawn if uri in self.world.store.objects}
        return {uri for uri, file in self.files.items() if self.on_removed == "drop" and file in withdrawn}

    def file(self, uri: str) -> str:
        return self.files.get(uri) or uri.rpartition("-")[0]

    def is_below(self, content: Mapping[str, int], present: Mapping[str, int], *, rows_to_read: int) -> bool:
        """Whether late and dropped rows are below the thresholds, or not worth a run, which reads `rows_to_read`."""
        dropped = self.dropped()
        changed = {uri: content[uri] for uri in content.keys() - present.keys() if uri in dropped}
        changed |= {uri: present[uri] for uri in present.keys() - content.keys()}

        def rows(source: str, objects: Mapping[str, int]) -> int:
            return sum(rows for uri, rows in objects.items() if f"source={source}/" in uri)

        late = {source: rows(source, changed) for source in ("flights", "weather") if rows(source, changed)}
        before = {source: rows(source, content) for source in late}
        if changed.keys() & present.keys() and "max_age_hours" in self.limits:
            return False  # All late data has waited that long by now.
        is_below = "weather" not in late and late.get("flights", 0) < min(10, before.get("flights", 1000) / 100)
        worth = self.limits.get("worth_per_percent", 0)
        price = round(USD_PER_ROW * rows_to_read, 8)
        is_worthless = all(before[source] and 100 * late[source] / before[source] * worth < price for source in late)
        return is_below or bool(worth and is_worthless)

    def manifest_inputs(self, uri: str) -> Inputs:
        return {(item.uri, item.etag): (item.file, item.rows) for item in self.world.manifest(uri).objects}


def is_read(definition: Pipeline, date: str, uri: str) -> bool:
    """Whether a run of the day reads the object, by the definition of a day alone."""
    source, day, hour = re.search(r"source=(\w+)/date=([-0-9]+)/hour=(\d\d)/", uri).groups()
    local = datetime.fromisoformat(f"{day}T{hour}:00+00:00").astimezone(ZoneInfo(definition.timezone))
    return source in definition.sources and local.date().isoformat() == date


def changes(old: Inputs, new: Inputs) -> list[tuple[str, str, str, int]]:
    """Return the late inputs between two lists: URI and etag, how each has changed, and its rows."""
    gone, come = old.keys() - new.keys(), new.keys() - old.keys()
    changed = {old[key][0] for key in gone} & {new[key][0] for key in come} - {None}
    return [(*key, "changed" if new[key][0] in changed else "added", new[key][1]) for key in come] + [
        (*key, "removed", old[key][1]) for key in gone if old[key][0] not in changed
    ]


def new_definition(before: str, now: str) -> list[tuple[str, str, str, int]]:
    """Return the line of the ledger for a definition with the digest `now`, as `changes` does, if it is another one."""
    return [("", now, "definition", 0)] if before != now else []
