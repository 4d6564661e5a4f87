"""10,000 generated months of late data: our policy, the byte rule that it replaces, and a nightly re-run of a week.

Each history is a month of one source with 24 files a day. A day runs 3 hours after its end. Every night after that,
each rule looks at the 7 days before and decides which of them run again. Our policy is the library's list of
rules with the threshold of 1 percent, and with a cool-down, a budget, or what late data is worth.
The histories depend only on their seeds.

A day is *missed* if, in the end, rows of at least 1 percent of the day are not in the published version although no
person was asked (the day is not on hold). A re-run is *in vain* if it reads less than 0.1 percent of new rows. A row of
a changed file counts as new only if it really differs, which no rule can see. *Staleness* is the share of a day's rows
that the published version lacks, in hours, summed over the month: an hour without a whole day counts 1.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.late_months import BYTES_PER_ROW, FILES, DayHistory, DayState, Outcome, history
from slackwater.costs.prices import read_prices
from slackwater.late.check.facts import DayFacts, DayInputs, SourceThresholds
from slackwater.late.check.limits import decide_with_limits, usage_date
from slackwater.late.check.rules import decide
from slackwater.late.decision import LateDecision
from slackwater.pipeline.definition import Late, Pipeline, Publish, StepUse
from slackwater.runs.inputs.difference import Amount, Change, InputChange, SourceDifference
from slackwater.runs.period import day_of
from slackwater.runs.pipeline_records import RerunUsage
from slackwater.runs.record import DayRecord, Publication, PublishedRun, Run
from slackwater.sources.late_thresholds import LateThresholds

HISTORIES, WINDOW_DAYS = 10_000, 7
CHECK_AFTER = 6.0
"""Hours after a day's end of the nightly check."""
HORIZON_DAYS = 14
"""Days after the month during which checks go on."""
MISSED, IN_VAIN = 0.01, 0.001
_FIRST_DAY = datetime(2013, 3, 1, tzinfo=UTC)
JOB_SECONDS = 60
"""Of the job of a small day; EMR Serverless bills at least a minute."""


def policy_rule(days: Sequence[DayState], now: datetime, *, definition: Pipeline) -> list[LateDecision]:
    """Decide with the library, as a check does. A day with equal inputs is not late and needs no call."""
    late = [_facts(day) for day in days if day.files != day.read]
    # One check decides on each calendar day, so none before it has counted a re-run.
    usage = RerunUsage(pipeline=definition.pipeline, date=usage_date(definition, now))
    decisions = [decide(facts) for facts in late]
    limited = decide_with_limits(definition, late, decisions, usage=usage, estimate=lambda _: rerun_usd(), now=now)
    by_date = {decision.date: decision.decision for decision in limited.days}
    return [by_date.get(_date(day.number), LateDecision.IGNORE) for day in days]


def _facts(day: DayState) -> DayFacts:
    """Return what a check knows about a day without the limits of a pipeline."""
    known = day.history.facts
    if day.key not in known:
        run_at = _end_of(day.number) + timedelta(hours=day.run_hours)
        known[day.key] = DayFacts(
            day=day_of(_end_of(day.number - 1).date(), "UTC"),
            record=_record(day.number, day.reruns),
            is_published=True,
            frozen_at=run_at,
            compared=DayInputs(
                digest="",
                differences=(source_difference(day),),
                thresholds=_THRESHOLDS,
                last_rerun_at=run_at if day.reruns else None,
            ),
        )
    return known[day.key]


def bytes_rule(days: Sequence[DayState], _now: datetime) -> list[LateDecision]:
    """Decide as the original system did: run again if a day's bytes have grown by more than 5 percent."""
    return [LateDecision.RERUN if day.bytes > 1.05 * day.read_bytes else LateDecision.IGNORE for day in days]


def nightly_rule(days: Sequence[DayState], _now: datetime) -> list[LateDecision]:
    """Run every day of the window again, every night."""
    return [LateDecision.RERUN] * len(days)


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


def simulate(days: Sequence[DayHistory], rule: str) -> Outcome:
    """Return what a rule does with a history."""
    outcome, decide = Outcome(), RULES[rule]
    states = [DayState(number, day) for number, day in enumerate(days)]
    for night in range(len(days) + WINDOW_DAYS - 1):
        window = states[max(0, night - WINDOW_DAYS + 1) : night + 1]
        for day in window:
            day.advance(CHECK_AFTER + 24 * (night - day.number), outcome)
        decisions = decide(window, _end_of(night) + timedelta(hours=CHECK_AFTER))
        for day, decision in zip(window, decisions, strict=True):
            _handle(outcome, day, decision)
    for day in states:
        day.advance(24.0 * HORIZON_DAYS, outcome)
        outcome.missed += not day.on_hold and day.unread_rows >= MISSED * max(1, day.rows)
        outcome.held += day.on_hold
    return outcome


def _handle(outcome: Outcome, day: DayState, decision: LateDecision) -> None:
    """Do what a rule has decided about a day."""
    day.on_hold = decision is LateDecision.HOLD
    if decision is LateDecision.RERUN:
        outcome.reruns += 1
        outcome.in_vain += day.unread_rows < IN_VAIN * max(1, day.rows)
        day.run_again()


@cache
def _end_of(number: int) -> datetime:
    return _FIRST_DAY + timedelta(days=number + 1)


@cache
def _date(number: int) -> str:
    return f"{_FIRST_DAY + timedelta(days=number):%Y-%m-%d}"


@cache
def _record(number: int, reruns: int) -> DayRecord:
    """Return the record of a day that was published, and run again so many times."""
    run = Run(
        pipeline="p", date=_date(number), run_id="0" * 32, attempt=reruns + 1, correlation_id="c", manifest="s3://b/m",
        prefix="s3://b/r/", files=FILES, rows=1, bytes=1,
    )  # fmt: skip
    publication = Publication(table="t", snapshot_id="1", rows=1, replaced=min(reruns, 1), seconds=1.0)
    published = PublishedRun(run=run, publication=publication, at=_end_of(number))
    return DayRecord(
        pipeline="p", date=_date(number), attempts=reruns + 1, published=published, notified_attempt=reruns + 1
    )


def _policy(**late: Any) -> partial[list[LateDecision]]:
    """Return our policy with these keys of `late`."""
    definition = Pipeline(
        pipeline="p", sources=("s",), steps={"rows": StepUse(step="select", depends_on=("s",))},
        publish=Publish(step="rows", key=("date",)), late=Late(**late),
    )  # fmt: skip
    return partial(policy_rule, definition=definition)


_THRESHOLDS = {"s": SourceThresholds(LateThresholds(percent=1), "its source")}
RULES: dict[str, Callable[[Sequence[DayState], datetime], list[LateDecision]]] = {
    "slackwater, 1 %": _policy(),
    "and a cool-down of 48 h": _policy(cool_down_hours=48),
    "and 0.004 USD a day": _policy(budget_per_day=0.004),
    "and 0.001 USD a percent": _policy(worth_per_percent=0.001),
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


@cache
def rerun_usd() -> float:
    """Return the price of one re-run of a small day with the default workers: 3 vCPU and 11 GB, of both together."""
    region = read_prices("us-east-1")
    prices = region.architectures["x86_64"] if region else None
    if prices is None:
        raise FileNotFoundError("slackwater/costs/us-east-1.json: missing in this package")
    return JOB_SECONDS / 3600 * (3 * prices.usd_per_vcpu_hour + 11 * prices.usd_per_gb_hour)


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
