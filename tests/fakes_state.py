"""A table of facts in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from slackwater.state.facts import Coverage, HourFacts, HourReport, Part, RejectedEvents, Report, moved_ends
from slackwater.state.fold import PeriodState
from slackwater.state.periods import Covered
from slackwater.state.verdicts import Subject, Verdict
from tests.fakes_receiver import Fuse


class MemoryState:
    """A `StateTable` in dictionaries: like DynamoDB's, it keeps one item for each key."""

    def __init__(self, fuse: Fuse | None = None) -> None:
        self.reports: dict[tuple[str, datetime, datetime, str], HourReport] = {}
        self.rejected: dict[tuple[str, datetime, str], RejectedEvents] = {}
        self.ends: dict[str, dict[str, datetime]] = {}
        self.files: dict[tuple[str, str], str] = {}
        self.fuse = fuse or Fuse()

    def put_report(self, report: Report) -> None:
        by_hour: dict[datetime, dict[int, Mapping[str, int]]] = {}
        for start, numbers in report.counts.items():
            by_hour.setdefault(start.replace(minute=0), {})[start.minute] = numbers
        for hour, counts in by_hour.items():
            self.fuse.burn("put_report")
            self.reports[report.source, hour, report.as_of, report.id] = HourReport(
                report.as_of, report.id, report.through, report.window, counts, report.keys, report.principal
            )
        for name, instant in moved_ends(report, self.coverage(report.source)).items():
            self.fuse.burn("put_report")
            ends = self.ends.setdefault(report.source, {})
            ends[name] = (min if name == "first" else max)(instant, ends.get(name, instant))

    def put_rejected(self, source: str, rejected: Mapping[datetime, RejectedEvents]) -> None:
        for hour, events in rejected.items():
            self.fuse.burn("put_rejected")
            self.rejected[source, hour, events.origin] = events

    def facts(self, source: str, hours: Iterable[datetime]) -> Mapping[datetime, HourFacts]:
        return {
            hour: HourFacts(
                tuple(item for key, item in self.reports.items() if key[:2] == (source, hour)),
                tuple(item for key, item in self.rejected.items() if key[:2] == (source, hour)),
            )
            for hour in hours
        }

    def coverage(self, source: str) -> Coverage | None:
        ends = self.ends.get(source, {})
        return Coverage(ends["first"], ends["through"]) if len(ends) == len(Coverage._fields) else None

    def states(self, source: str, starts: Iterable[datetime]) -> list[PeriodState]:
        return []

    def read_files(self, source: str, paths: Iterable[str]) -> dict[str, str]:
        return {path: self.files[source, path] for path in paths if (source, path) in self.files}

    def put_file(self, source: str, path: str, listed: str, *, at: datetime) -> None:
        self.files[source, path] = listed


class MemoryPeriods(MemoryState):
    """A `PeriodTable` in dictionaries, with the same condition on versions."""

    def __init__(self, fuse: Fuse | None = None) -> None:
        super().__init__(fuse)
        self.parts: dict[tuple[str, datetime, str], Part] = {}
        self.stored: dict[tuple[str, datetime], PeriodState] = {}
        self.earlier: dict[tuple[str, datetime], PeriodState] = {}
        self.is_behind = False
        """Whether a read that is not consistent returns the state before the newest one."""
        self.covered_when_folded: dict[str, Coverage] = {}

    def put_parts(self, source: str, parts: Mapping[datetime, Sequence[Part]]) -> None:
        for hour, of_hour in parts.items():
            for part in of_hour:
                self.fuse.burn("put_parts")
                self.parts[source, hour, part.name] = part

    def all_facts(self, source: str, hours: Iterable[datetime]) -> Mapping[datetime, HourFacts]:
        return {
            hour: facts._replace(parts=tuple(item for key, item in self.parts.items() if key[:2] == (source, hour)))
            for hour, facts in self.facts(source, hours).items()
        }

    def states(self, source: str, starts: Iterable[datetime], *, newest: bool = True) -> list[PeriodState]:
        found = self.earlier if self.is_behind and not newest else self.stored
        return [found[source, start] for start in sorted(set(starts)) if (source, start) in found]

    def put_state(self, state: PeriodState) -> bool:
        self.fuse.burn("put_state")
        before = self.stored.get((state.source, state.start))
        if (before.version if before else 0) != state.version - 1:
            return False
        if before:
            self.earlier[state.source, state.start] = before
        self.stored[state.source, state.start] = state
        return True

    def put_announced(self, state: PeriodState) -> None:
        self.fuse.burn("put_announced")
        stored = self.stored[state.source, state.start]
        self.stored[state.source, state.start] = stored._replace(announced=max(stored.announced, state.version))

    def covered(self, source: str) -> Covered:
        return Covered(self.coverage(source), self.covered_when_folded.get(source))

    def put_folded(self, source: str, coverage: Coverage) -> None:
        self.fuse.burn("put_folded")
        self.covered_when_folded[source] = coverage


class MemoryVerdicts:
    """A `VerdictTable` in a dictionary."""

    def __init__(self) -> None:
        self.stored: dict[str, Verdict] = {}

    def put_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        self.stored.update({verdict.id: verdict for verdict in verdicts})

    def verdicts(self, subject: Subject, first: str, last: str) -> list[Verdict]:
        found = [item for item in self.stored.values() if (item.of, item.name) == subject]
        return [item for item in found if first <= item.period <= last]

    def subjects(self) -> list[Subject]:
        return sorted({Subject(item.of, item.name) for item in self.stored.values()})


STATE_TABLE: dict[str, Any] = {
    "AttributeDefinitions": [{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
    "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
}
"""Keys of the state table, as CreateTable and CloudFormation name them."""
