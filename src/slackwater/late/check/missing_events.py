"""Events of the window that sources have reported and that are missing for too long, for the alarm about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from slackwater.errors import SlackwaterError
from slackwater.late.check.facts import DayFacts
from slackwater.late.check.silences import CheckedDay
from slackwater.pipeline.definition import Pipeline
from slackwater.runs.inputs.listing import DayListing
from slackwater.runs.inputs.source_counts import CountsReader
from slackwater.runs.period import start_of
from slackwater.sources.definition import Source
from slackwater.sources.partitions import named_rows, object_partition
from slackwater.state.completeness import PeriodCounts


def missing_events(
    definition: Pipeline, facts: DayFacts, listed: DayListing | None, *, counts: CountsReader, now: datetime
) -> dict[str, int]:
    """Return the missing events of a day by source with `counts`, of periods that have ended before its `within`.

    `listed` is a listing of the day. A source whose stored events are not known exactly is left out: one with event
    ids, of a day whose inputs were not compared. So is one whose facts cannot be read. Its alarm keeps its state.
    """
    missing = dict[str, int]()
    for name in sorted(definition.sources):
        source = counts.project.source(name)
        if source.counts is None:
            continue
        compared = facts.compared.periods.get(name) if facts.compared else None
        periods = compared or _listed_periods(source, facts, listed, counts=counts, now=now)
        if periods is not None:
            ended = (period for period in periods if period.end + source.counts.wait <= now)
            missing[name] = sum(period.missing for period in ended if period.is_short)
    return missing


def total_missing(checked: Iterable[CheckedDay]) -> dict[str, int]:
    """Return the missing events of all checked days by source."""
    total = Counter[str]()
    for day in checked:
        # Not `+=`, which would drop the sources that lack nothing: their alarms have to end.
        total.update(day.missing)
    return dict(total)


def _listed_periods(
    source: Source, facts: DayFacts, listed: DayListing | None, *, counts: CountsReader, now: datetime
) -> Sequence[PeriodCounts] | None:
    """Return the periods by the listed objects; None if the number of events is not known exactly."""
    listing = listed.sources.get(source.source) if listed else None
    if listing is None or source.id_column:
        return None
    rows = Counter[datetime]()
    for item in listing.objects:
        if listing.is_removed(item.uri):
            continue
        count = named_rows(item.uri)
        if count is None:  # its metadata has it, which the check of a published day reads
            return None
        rows[start_of(object_partition(item.uri))] += count
    hours = [hour for partition in facts.day.partitions() if (hour := start_of(partition)) < now]
    try:
        return counts.periods(source, hours, rows)
    except SlackwaterError:
        return None
