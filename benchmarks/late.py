"""10,000 generated months of late data: our policy, the byte rule that it replaces, and a nightly re-run of a week.

Each history is a month of one source with 24 files a day. A day runs 3 hours after its end. Every night after that,
each rule looks at the 7 days before and decides which of them run again. Our policy is the library's `evaluate_day`
with the threshold of 1 percent. The histories depend only on their seeds.

A day is *missed* if, in the end, rows of at least 1 percent of the day are not in the published version although no
person was asked (the day is not on hold). A re-run is *in vain* if it reads less than 0.1 percent of new rows. A row of
a changed file counts as new only if it really differs, which no rule can see. *Staleness* is the share of a day's rows
that the published version lacks, in hours, summed over the month: an hour without a whole day counts 1.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from slackwater.late.check.decision import LateDecision
from slackwater.late.check.evaluate_day import SourceThresholds, evaluate_day
from slackwater.pipeline.prices import REFERENCE_ARCHITECTURE, REFERENCE_REGION, Workers, read_prices
from slackwater.pipeline.spark_workers import SparkSizes
from slackwater.runs.inputs.difference import Amount, Change, InputChange, SourceDifference
from slackwater.runs.record import DayRecord, Publication, PublishedRun, Run
from slackwater.sources.late_thresholds import LateThresholds

HISTORIES, DAYS, FILES, WINDOW_DAYS = 10_000, 30, 24, 7
RUN_AFTER, CHECK_AFTER = 3.0, 6.0
"""Hours after a day's end of its first run and of the nightly check."""
HORIZON_DAYS = 14
"""Days after the month during which checks go on."""
MISSED, IN_VAIN = 0.01, 0.001
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
JOB_SECONDS = 60
"""Of the job of a small day; EMR Serverless bills at least a minute."""


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


@dataclass
class DayState:
    """A day under one rule: what has arrived, and what the published version has read."""

    record: DayRecord
    files: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Rows and number of the version, by file."""
    read: dict[int, tuple[int, int]] = field(default_factory=dict)
    resent_bytes: int = 0
    read_bytes: int = 0
    unread_rows: int = 0
    """Rows that really differ from the published version."""
    on_hold: bool = False
    published: bool = False

    @property
    def rows(self) -> int:
        return sum(rows for rows, _ in self.files.values())

    @property
    def bytes(self) -> int:
        return self.rows * BYTES_PER_ROW + self.resent_bytes

    def apply(self, event: Event) -> None:
        """Let the event happen."""
        self.resent_bytes += event.resent_bytes
        if event.resent_bytes:
            return
        _, version = self.files.get(event.file, (0, 0))
        if event.rows:
            self.files[event.file] = (event.rows, version + 1)
        else:
            self.files.pop(event.file, None)
        self.unread_rows += event.new_rows

    def publish(self) -> None:
        """Run the day: the published version has everything that has arrived."""
        self.read, self.read_bytes, self.unread_rows = dict(self.files), self.bytes, 0
        self.published, self.on_hold = True, False


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


def percent_rule(day: DayState, *, thresholds: Mapping[str, SourceThresholds]) -> LateDecision:
    """Decide with the library, as a check does. A day with equal inputs is not late and needs no call."""
    if day.files == day.read:
        return LateDecision.IGNORE
    decision = evaluate_day(day.record, (source_difference(day),), thresholds=thresholds)
    return decision.decision


def bytes_rule(day: DayState) -> LateDecision:
    """Decide as the original system did: run again if the day's bytes have grown by more than 5 percent."""
    return LateDecision.RERUN if day.bytes > 1.05 * day.read_bytes else LateDecision.IGNORE


def nightly_rule(_day: DayState) -> LateDecision:
    """Run every day of the window again, every night."""
    return LateDecision.RERUN


def source_difference(day: DayState) -> SourceDifference:
    """Return the difference between the inputs now and those that were read, as the library's `difference` does."""

    def change(file: int) -> InputChange:
        before, now = day.read.get(file), day.files.get(file)
        types = {(True, False): Change.REMOVED, (False, True): Change.ADDED, (True, True): Change.CHANGED}
        return InputChange.model_construct(
            source="s", date="2013-03-10", hour=f"{file:02}", file=f"{file}.csv",
            change=types[before is not None, now is not None],
            before=_amount(before), now=_amount(now),
        )  # fmt: skip

    files = sorted(file for file in day.read.keys() | day.files.keys() if day.read.get(file) != day.files.get(file))
    return SourceDifference.model_construct(
        source="s",
        before=Amount.model_construct(
            objects=len(day.read),
            rows=sum(rows for rows, _ in day.read.values()),
            bytes=BYTES_PER_ROW * sum(rows for rows, _ in day.read.values()),
        ),
        now=Amount.model_construct(objects=len(day.files), rows=day.rows, bytes=BYTES_PER_ROW * day.rows),
        changes=tuple(change(file) for file in files),
    )


def _amount(file: tuple[int, int] | None) -> Amount:
    rows = file[0] if file else 0
    return Amount.model_construct(objects=1 if file else 0, rows=rows, bytes=rows * BYTES_PER_ROW)


def history(seed: int) -> list[list[Event]]:
    """Return the events of each day of a month, in order of time."""
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
        days.append(sorted(events))
    return days


def _late_files(behaviour: str, chance: random.Random) -> int:
    """Return how many files of a day are late, resent, changed or removed."""
    few = {"trickle": (1, 4), "bulk late": (4, 12), "resend": (1, 12), "changed files": (1, 3), "removed files": (1, 2)}
    if behaviour == "whole day late":
        return FILES
    return chance.randint(*few[behaviour]) if behaviour in few else 0


def simulate(days: Sequence[Sequence[Event]], rule: str) -> Outcome:
    """Return what a rule does with a history. Days do not influence each other."""
    outcome, decide = Outcome(), RULES[rule]
    record = _published_record()
    for events in days:
        day = DayState(record)
        waiting = iter([*events, None])
        event = next(waiting)
        last = 0.0
        for now, is_check in _visits():
            while event is not None and event.hours <= now:
                _let_pass(outcome, day, last, event.hours)
                last = max(last, event.hours)
                day.apply(event)
                event = next(waiting)
            _let_pass(outcome, day, last, now)
            last = now
            if is_check:
                _check(outcome, day, decide(day))
            elif not day.published:
                day.publish()
        outcome.missed += not day.on_hold and day.unread_rows >= MISSED * max(1, day.rows)
        outcome.held += day.on_hold
    return outcome


def _visits() -> Iterator[tuple[float, bool]]:
    """Yield the hours after a day's end at which something looks at it, and whether that is a check."""
    yield RUN_AFTER, False
    for number in range(WINDOW_DAYS):
        yield CHECK_AFTER + 24 * number, True
    yield 24.0 * HORIZON_DAYS, False


def _check(outcome: Outcome, day: DayState, decision: LateDecision) -> None:
    """Do what a rule has decided about a published day."""
    day.on_hold = decision is LateDecision.HOLD
    if decision is LateDecision.RERUN:
        outcome.reruns += 1
        outcome.in_vain += day.unread_rows < IN_VAIN * max(1, day.rows)
        day.publish()


def _let_pass(outcome: Outcome, day: DayState, start: float, end: float) -> None:
    """Count the time during which the published version differs from the inputs."""
    if day.published and end > start and day.unread_rows:
        outcome.staleness += (end - start) * min(1.0, day.unread_rows / max(1, day.rows, day.unread_rows))


@cache
def _published_record() -> DayRecord:
    run = Run(
        pipeline="p", date="2013-03-10", run_id="0" * 32, attempt=1, correlation_id="c", manifest="s3://b/m",
        prefix="s3://b/r/", files=FILES, rows=1, bytes=1,
    )  # fmt: skip
    publication = Publication(table="t", snapshot_id="1", rows=1, replaced=0, seconds=1.0)
    published = PublishedRun(run=run, publication=publication, at=datetime(2013, 3, 11, 3, tzinfo=UTC))
    return DayRecord(pipeline="p", date="2013-03-10", attempts=1, published=published, notified_attempt=1)


_THRESHOLDS = {"s": SourceThresholds(LateThresholds(percent=1), "its source")}
RULES: dict[str, Callable[[DayState], LateDecision]] = {
    "slackwater, 1 %": partial(percent_rule, thresholds=_THRESHOLDS),
    "bytes, 5 %": bytes_rule,
    "nightly, 7 days": nightly_rule,
}


def _outcomes(seeds: range) -> dict[str, Outcome]:
    """Return the sum of the outcomes of these histories, by rule."""
    totals = {rule: Outcome() for rule in RULES}
    for seed in seeds:
        days = history(seed)
        for rule, total in totals.items():
            total.add(simulate(days, rule))
    return totals


def rerun_usd() -> float:
    """Return the price of one re-run of a small day with the default workers: a driver and an executor."""
    sizes = {"driver": {"vcpu": 1, "memory_gb": 4}, "executor": {"vcpu": 2, "memory_gb": 7}, "max_executors": 1}
    workers = Workers.of(SparkSizes(), SparkSizes.model_validate(sizes))
    prices = read_prices(REFERENCE_REGION)
    if prices is None:
        raise LookupError(f"there are no prices of {REFERENCE_REGION}")
    return prices.architectures[REFERENCE_ARCHITECTURE].job_usd(workers, JOB_SECONDS, executors=1)


def run(_rounds: int, histories: int = HISTORIES) -> dict[str, Any]:
    """Return the means per history of each rule, and how long it took."""
    start, usd = time.perf_counter(), rerun_usd()
    totals = {rule: Outcome() for rule in RULES}
    parts = [range(first, min(first + 100, histories)) for first in range(0, histories, 100)]
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for part in pool.map(_outcomes, parts):
            for rule, outcome in part.items():
                totals[rule].add(outcome)
    rules = {
        rule: {name: getattr(total, name) / histories for name in Outcome.__dataclass_fields__}
        | {"usd": total.reruns / histories * usd}
        for rule, total in totals.items()
    }
    return {"histories": histories, "rerun_usd": usd, "seconds": time.perf_counter() - start, "rules": rules}


def show(result: Mapping[str, Any], console: Console) -> None:
    """Print what `run` returned."""
    table = Table(title=f"{result['histories']:,} months of late data, means for a month of one pipeline")
    for column in ("rule", "missed days", "days on hold", "re-runs", "in vain", "staleness, h", "cost, USD"):
        table.add_column(column, justify="left" if column == "rule" else "right")
    for rule, means in result["rules"].items():
        values = (means[name] for name in ("missed", "held", "reruns", "in_vain", "staleness", "usd"))
        table.add_row(rule, *(f"{value:.2f}" for value in values))
    console.print(table)
    console.print(f"a re-run costs {result['rerun_usd']:.4f} USD; computed in {result['seconds']:.0f} s")
