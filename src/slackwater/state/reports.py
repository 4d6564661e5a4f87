"""Read reports: JSON documents with the number of events that a partner has sent, by the time of the events.

```json
{"as_of": "2026-01-01T16:05:00Z", "through": "2026-01-01T16:00:00Z", "counts": {"2026-01-01T15:00Z": 83211}}
```
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from slackwater.errors import DataError
from slackwater.formatting import check_iso_date, counted, shortened, timestamp
from slackwater.sources.counts import ALL, OTHER, WINDOW_MINUTES, Counts, value_of
from slackwater.sources.definition import Source
from slackwater.state.facts import Report

MAX_BYTES = 256 * 1024
MAX_WINDOWS = 3_000
"""Ten days of windows of five minutes. Each hour of a report is an item to write."""
MAX_EVENTS = 10**15
"""In one window. A larger number is a mistake."""
MAX_AGE = timedelta(days=366)
AHEAD = timedelta(days=1)
"""Timestamps of events, and so windows, may be in the future."""
SKEW = timedelta(minutes=15)
"""How far the reporter's time may be ahead of ours. A report of the future would decide over all others until then."""
Numbers = int | Mapping[str, int]
"""The number of events of a window; of a source that counts by a column, those of its values."""
REPORT_KEYS = {"as_of", "through", "counts"}
"""The keys of the JSON document of a report."""
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:?\d\d)?")
_EXAMPLE = (
    '{"as_of": "2026-01-01T16:05:00Z", "through": "2026-01-01T16:00:00Z", "counts": {"2026-01-01T15:00Z": 83211}}'
)


class ReportRefused(DataError):
    """The report is refused as a whole; none of it is stored."""

    status, code = 400, "unreadable_report"


class ReportTooLarge(ReportRefused):
    """The report exceeds a limit; the message names it."""

    status, code = 413, "too_large"


def counts_of(source: Source) -> Counts:
    """Return how the partner of the source counts. Raises `DataError` for a source without `counts`."""
    if source.counts is None:
        raise DataError(
            f"source {source.source!r} takes no counts: add `counts: {{window: 1h}}` to sources/{source.source}.yaml"
        )
    return source.counts


def read_report(body: bytes, source: Source, *, principal: str, now: datetime) -> Report:
    """Return the report in a JSON document about a source with `counts`; `now` is the present instant.

    Raises `ReportRefused`, which names the field.
    """
    if len(body) > MAX_BYTES:
        raise ReportTooLarge(f"the report has {len(body):,} bytes, the limit is {MAX_BYTES:,}: split it")
    try:
        document = json.loads(body, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise ReportRefused(f"the report is not JSON ({error}): send {_EXAMPLE}") from error
    if not isinstance(document, dict) or document.keys() != REPORT_KEYS or not isinstance(document["counts"], dict):
        raise ReportRefused(f"a report has the keys as_of, through and counts, and no others: send {_EXAMPLE}")
    counts: Mapping[str, Any] = document["counts"]
    if len(counts) > MAX_WINDOWS:
        raise ReportTooLarge(
            f"counts: {counted(len(counts), 'window')}, the limit is {MAX_WINDOWS:,}: split the report"
        )
    as_of = _near(_instant("as_of", document["as_of"], source), now, "as_of", ahead=SKEW)
    through = _near(_instant("through", document["through"], source), now, "through", ahead=AHEAD)
    windows: dict[datetime, Numbers] = {}
    for key, value in counts.items():
        start = _near(_window_start(key, source), now, f"counts: {key}", ahead=AHEAD)
        if start in windows:
            raise ReportRefused(f"counts: {key}: another key is the same window: remove one")
        windows[start] = _numbers(f"counts: {key}", value, source)
    return new_report(source, as_of=as_of, through=through, counts=windows, principal=principal)


def new_report(
    source: Source,
    *,
    as_of: datetime,
    through: datetime,
    counts: Mapping[datetime, Numbers],
    principal: str,
) -> Report:
    """Return the report with these windows, UTC, which begin as the windows of the source do.

    The numbers are by the keys of the source, if it counts by a column.
    """
    window, keys = counts_of(source).window, counts_of(source).keys
    ordered = {start: _by_key(counts[start]) for start in sorted(counts)}
    of = (source.source, as_of.isoformat(), through.isoformat(), window, principal, keys)
    content = (*of, {start.isoformat(): sorted(numbers.items()) for start, numbers in ordered.items()})
    return Report(
        source=source.source,
        as_of=as_of,
        through=through,
        window=window,
        counts=ordered,
        keys=keys,
        covers_from=min(ordered, default=window_before(through, source)),
        principal=principal,
        id=hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16],
    )


def _by_key(numbers: Numbers) -> Mapping[str, int]:
    return {ALL: numbers} if isinstance(numbers, int) else numbers


def by_value(numbers: Mapping[str, int]) -> Numbers:
    """Return numbers by key as a report has them: by value, or the number of a source that counts without values."""
    if ALL in numbers:
        return numbers[ALL]
    return {value_of(key) or OTHER: number for key, number in numbers.items()}


def report_document(*, as_of: datetime, through: datetime, counts: Mapping[str, Numbers]) -> bytes:
    """Return the JSON document of a report."""
    return json.dumps({"as_of": as_of.isoformat(), "through": through.isoformat(), "counts": {**counts}}).encode()


def _numbers(label: str, value: object, source: Source) -> Numbers:
    """Return the number of events of a window, or those by the keys of the source. Raises `ReportRefused`."""
    counts = counts_of(source)
    if counts.by is None:
        if isinstance(value, dict):
            raise ReportRefused(
                f"{label}: {source.source} counts without values: send one number, or add `by` to its `counts`"
            )
        return _number(label, value)
    names = {value_of(key): key for key in counts.keys}
    if not isinstance(value, dict):
        example = json.dumps(dict.fromkeys(names, 0), ensure_ascii=False)
        raise ReportRefused(f"{label}: {source.source} counts by {counts.by}: send the number of each value, {example}")
    if unknown := sorted(value.keys() - names.keys()):
        listed = ", ".join(filter(None, names))
        raise ReportRefused(
            f"{label}: {shortened(unknown[0], 40)!r} is not a value of {counts.by} that counts: send it as {OTHER}, or "
            f"add it to `counts.values` ({listed})"
        )
    return {names[name]: _number(f"{label}: {name}", number) for name, number in value.items()}


def _number(label: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_EVENTS:
        raise ReportRefused(f"{label}: {shortened(json.dumps(value), 40)} is not a number of events (0 or more)")
    return value


def window_at(instant: datetime, source: Source) -> datetime:
    """Return the start, UTC, of the source's window that contains an aware instant."""
    window = counts_of(source).window
    if window == "day":
        return _day_start(instant.astimezone(ZoneInfo(source.pull_timezone)).date(), source)
    instant = instant.astimezone(UTC).replace(second=0, microsecond=0)
    return instant - timedelta(minutes=instant.minute % WINDOW_MINUTES[window])


def window_end(start: datetime, window: str, timezone: str) -> datetime:
    """Return the end, UTC, of the window that begins at `start`; `timezone` is that of days."""
    if window != "day":
        return start + timedelta(minutes=WINDOW_MINUTES[window])
    # Not 24 hours later: the clocks may change in between.
    local = start.astimezone(ZoneInfo(timezone))
    return datetime.combine(local.date() + timedelta(days=1), time(), ZoneInfo(timezone)).astimezone(UTC)


def window_before(through: datetime, source: Source) -> datetime:
    """Return the start, UTC, of the last window that has ended at `through`."""
    start = window_at(through, source)
    return window_at(start - timedelta(microseconds=1), source)


def window_key(start: datetime, source: Source) -> str:
    """Return the key of a window in a report: an instant, or the date of a day."""
    if counts_of(source).window == "day":
        return start.astimezone(ZoneInfo(source.pull_timezone)).date().isoformat()
    return f"{start.astimezone(UTC):%Y-%m-%dT%H:%MZ}"


def _window_start(key: str, source: Source) -> datetime:
    window = counts_of(source).window
    if window == "day":
        try:
            return _day_start(date.fromisoformat(check_iso_date(key)), source)
        except (ValueError, OverflowError) as error:
            raise ReportRefused(
                f"counts: {shortened(key, 40)!r} is not a date such as 2026-01-01, and the windows are days"
            ) from error
    start = _instant("counts", key, source)
    if start != window_at(start, source):
        of = "a UTC hour (in other timezones, hours may begin within one: then use windows of 5m or 10m)"
        minutes = of if window == "1h" else f"a multiple of {WINDOW_MINUTES[window]} minutes"
        raise ReportRefused(f"counts: {key}: windows of {window} begin with {minutes}")
    return start


def _day_start(day: date, source: Source) -> datetime:
    return datetime.combine(day, time(), ZoneInfo(source.pull_timezone)).astimezone(UTC)


def _instant(field: str, value: object, source: Source) -> datetime:
    """Return the instant of a string in UTC. One without an offset is in the timezone of the source's timestamps."""
    label = f"{field}: {shortened(json.dumps(value), 40)}"
    try:
        if not isinstance(value, str) or not _INSTANT.fullmatch(value):
            raise ValueError
        instant = datetime.fromisoformat(value)
        if instant.tzinfo is None:
            instant = _local(instant, label, source)
        return instant.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ReportRefused(f"{label} is not a time such as 2026-01-01T15:00Z") from error


def _local(instant: datetime, label: str, source: Source) -> datetime:
    zone = source.timezone
    if zone is None:
        raise ReportRefused(f"{label} has no offset: add Z for UTC, or set timestamp.timezone of the source")
    local = instant.replace(tzinfo=zone)
    # In the hour before the clocks go back a local time occurs twice, and when they go forward some do not occur.
    if local.utcoffset() != local.replace(fold=1).utcoffset():
        raise ReportRefused(f"{label}: the clocks change at this time in {zone.key}: add the offset, such as +01:00")
    return local


def can_report(start: datetime, *, now: datetime, ahead: timedelta = AHEAD) -> bool:
    """Return whether a report may name a window with this start: neither too old nor too far in the future."""
    return now - MAX_AGE <= start <= now + ahead


def _near(instant: datetime, now: datetime, label: str, *, ahead: timedelta) -> datetime:
    if not can_report(instant, now=now, ahead=ahead):
        which = f"more than {MAX_AGE.days} days ago" if instant < now else "too far in the future"
        raise ReportRefused(f"{label}: {timestamp(instant)} is {which}: the time here is {timestamp(now)}")
    return instant


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a key occurs twice")
    return document
