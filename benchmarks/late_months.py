"""Generated months of late data, and a day of them under a rule: what has arrived, and what its version has read."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from slackwater.late.check.facts import DayFacts

DAYS, FILES = 30, 24
RUN_AFTER = 3.0
"""Hours after a day's end of its first run."""
BYTES_PER_ROW = 100
"""A file's bytes: the byte rule sees nothing else."""
BEHAVIOURS = {
    "on time": 50,
    "trickle": 20,
    "bulk late": 8,
    "resend": 8,
    "changed files": 8,
    "removed files": 2,
    "whole day late": 4,
}
"""How often a day of a history is of each type, in percent."""


class Event(NamedTuple):
    """What happens to one file of a day."""

    hours: float
    """After the day's end; negative before it."""
    file: int
    rows: int
    """Of the file from then on; 0 removes it."""
    new_rows: int
    """Rows that readers of the day have not seen before."""
    resent_bytes: int = 0
    """Bytes of another copy of the file, with the same rows."""


class DayHistory(NamedTuple):
    """What happens to one day."""

    files: Mapping[int, int]
    """Rows of the files that the first run reads."""
    events: Sequence[Event]
    """All later events, in order of time."""
    facts: dict[tuple[float, ...], DayFacts]
    """What the library decides from, by what that depends on, so that rules with equal inputs do not build it again."""


@dataclass
class DayState:
    """A published day under one rule: what has arrived, and what the published version has read."""

    number: int
    """Of the day in its month, from 0."""
    history: DayHistory
    passed: int = 0
    """How many events have happened."""
    read_passed: int = 0
    """How many of them the published version has read."""
    hours: float = RUN_AFTER
    """After the day's end: until when its staleness is counted."""
    run_hours: float = RUN_AFTER
    """After the day's end: when it ran last."""
    reruns: int = 0
    resent_bytes: int = 0
    unread_rows: int = 0
    """Rows that really differ from the published version."""
    on_hold: bool = False

    def __post_init__(self) -> None:
        self.files = {file: (rows, 1) for file, rows in self.history.files.items()}
        """Rows and number of the version, by file."""
        self.rows = sum(self.history.files.values())
        self.read, self.read_bytes = dict(self.files), self.bytes

    @property
    def key(self) -> tuple[float, ...]:
        """Identifies the present files, those of the published version, and the day's last run."""
        return self.passed, self.read_passed, self.reruns, self.run_hours

    @property
    def bytes(self) -> int:
        return self.rows * BYTES_PER_ROW + self.resent_bytes

    def advance(self, hours: float, outcome: Outcome) -> None:
        """Let everything happen until so many hours after the day's end, and count the staleness."""
        events = self.history.events
        while self.passed < len(events) and events[self.passed].hours <= hours:
            event = events[self.passed]
            self._let_pass(event.hours, outcome)
            self._apply(event)
            self.passed += 1
        self._let_pass(hours, outcome)

    def run_again(self) -> None:
        """Run the day: the published version has everything that has arrived."""
        self.read, self.read_bytes, self.unread_rows = dict(self.files), self.bytes, 0
        self.read_passed, self.run_hours, self.on_hold = self.passed, self.hours, False
        self.reruns += 1

    def _let_pass(self, hours: float, outcome: Outcome) -> None:
        if self.unread_rows:
            share = min(1.0, self.unread_rows / max(1, self.rows, self.unread_rows))
            outcome.staleness += (hours - self.hours) * share
        self.hours = hours

    def _apply(self, event: Event) -> None:
        self.resent_bytes += event.resent_bytes
        if event.resent_bytes:
            return
        before, version = self.files.get(event.file, (0, 0))
        self.rows += event.rows - before
        if event.rows:
            self.files[event.file] = (event.rows, version + 1)
        else:
            self.files.pop(event.file, None)
        self.unread_rows += event.new_rows


@dataclass
class Outcome:
    """What one rule did with one history, or the sum of several."""

    reruns: int = 0
    in_vain: int = 0
    missed: int = 0
    held: int = 0
    staleness: float = 0.0

    def add(self, other: Outcome) -> None:
        """Add the numbers of another outcome."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def history(seed: int) -> list[DayHistory]:
    """Return the days of a month."""
    chance = random.Random(seed)  # noqa: S311 - no secrets
    names, weights = list(BEHAVIOURS), list(BEHAVIOURS.values())
    days = []
    for behaviour in chance.choices(names, weights, k=DAYS):
        rows = [max(1, round(chance.lognormvariate(4.5, 0.8))) for _ in range(FILES)]
        arrivals = [file - FILES + 1 + chance.random() for file in range(FILES)]
        late = chance.sample(range(FILES), _late_files(behaviour, chance))
        events = list[Event]()
        if behaviour in {"trickle", "bulk late", "whole day late"}:
            # A delivery comes as a whole; a trickle file by file. Some of it comes after the window.
            delay = chance.expovariate(1 / 40)
            for file in late:
                wait = chance.expovariate(1 / 40) if behaviour == "trickle" else delay
                arrivals[file] = RUN_AFTER + 0.1 + wait
        events += [Event(arrivals[file], file, rows[file], rows[file]) for file in range(FILES)]
        for file in late:
            after = RUN_AFTER + 0.1 + chance.expovariate(1 / 40)
            if behaviour == "resend":
                events.append(Event(after, file, rows[file], 0, resent_bytes=rows[file] * BYTES_PER_ROW))
            elif behaviour == "changed files":
                # Most corrections concern few rows, and some only the form of the file.
                really = round(rows[file] * chance.choice([0, 0.02, 0.2, 1]))
                events.append(Event(after, file, rows[file] + chance.choice([0, 0, 1]), really))
            elif behaviour == "removed files":
                events.append(Event(after, file, 0, rows[file]))
        on_time = {event.file: event.rows for event in events if event.hours <= RUN_AFTER}
        days.append(DayHistory(on_time, sorted(event for event in events if event.hours > RUN_AFTER), {}))
    return days


def _late_files(behaviour: str, chance: random.Random) -> int:
    """Return how many files of a day are late, resent, changed or removed."""
    few = {"trickle": (1, 4), "bulk late": (4, 12), "resend": (1, 12), "changed files": (1, 3), "removed files": (1, 2)}
    if behaviour == "whole day late":
        return FILES
    return chance.randint(*few[behaviour]) if behaviour in few else 0
