"""How many events a client has sent, by the windows in which their source counts."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from slackwater.sources.definition import Source
from slackwater.state.reports import can_report, counts_of, window_at, window_end

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SentReport(NamedTuple):
    """What a client has to report after a push."""

    through: datetime
    counts: dict[datetime, dict[str, int]]
    """By the windows of the latest push and the keys of the source, with the events of all pushes. Empty if no window
    can be reported."""
    left_out: dict[datetime, int]
    """The events of the latest push in windows that are too old, or too far in the future, for a report."""


class SentCounts:
    """The events that a client has sent, in all of its pushes.

    The newest report decides about a window, so it has the events of earlier pushes too. A push that is repeated counts
    once.
    """

    def __init__(self) -> None:
        self._pushes: dict[str, dict[str, Mapping[datetime, Counter[str]]]] = {}

    def add(self, source: Source, events: Sequence[bytes], *, now: datetime) -> SentReport | None:
        """Add the events of a push, each as JSON, and return what to report; None if no event has a timestamp.

        All events before the end of the last window of the push count as sent, but no window that has not ended.
        """
        digest = hashlib.sha256(b"\n".join(events)).hexdigest()
        pushes = self._pushes.setdefault(source.source, {})
        sent = pushes[digest] = window_counts(source, events, now=now)
        if not sent:
            return None
        reported = [start for start in sent if can_report(start, now=now)]
        last = window_end(max(reported or sent), counts_of(source).window, source.pull_timezone)
        counts = {
            start: {
                key: sum(push[start][key] for push in pushes.values() if start in push) for key in source.count_keys
            }
            for start in reported
        }
        left_out = {start: sent[start].total() for start in sorted(sent) if start not in counts}
        return SentReport(through=min(last, window_at(now, source)), counts=counts, left_out=left_out)


def window_counts(source: Source, events: Sequence[bytes], *, now: datetime) -> Mapping[datetime, Counter[str]]:
    """Return the number of events by window and key, accepted or not.

    Of several events with one id in an hour, one counts.
    """
    # They import pyarrow, which a push without counts does not need.
    import pyarrow as pa
    import pyarrow.compute as pc

    from slackwater.receiver.parsing.count_keys import KEY_NUMBER, key_numbers
    from slackwater.receiver.parsing.event_checks import check_events
    from slackwater.receiver.parsing.json_lines import read_json_lines
    from slackwater.sources.event_schema import EVENT_TIME

    parsed, _ = read_json_lines(b"\n".join(events), None, max_events=len(events))
    checked = check_events(parsed, source, received_at=now)
    accepted, rejected = checked.table, checked.rejections
    times = pa.table({"at": accepted[EVENT_TIME], "key": key_numbers(accepted, source.count_keys)})
    if source.event_id:
        hours = pc.floor(pc.divide(accepted[EVENT_TIME].cast(pa.int64()).cast(pa.float64(), safe=False), 3.6e9))
        by_id = times.append_column("hour", hours).append_column("id", accepted[source.event_id]).sort_by("at")
        first = by_id.group_by(["hour", "id"], use_threads=False).aggregate([("at", "first"), ("key", "first")])
        times = pa.table({"at": first["at_first"], "key": first["key_first"]})
    # Of a value that is not readable, the receiver counts no event either.
    times = pa.concat_tables([times, pa.table({"at": rejected[EVENT_TIME], "key": rejected[KEY_NUMBER]})]).drop_null()
    counts = defaultdict[datetime, Counter[str]](Counter)
    # By minute, so that few instants are converted.
    minutes = pc.floor(pc.divide(times["at"].cast(pa.int64()).cast(pa.float64(), safe=False), 6e7)).cast(pa.int64())
    groups = pa.table({"minute": minutes, "key": times["key"]}).group_by(["minute", "key"], use_threads=False)
    for item in groups.aggregate([([], "count_all")]).to_pylist():
        start = window_at(_EPOCH + timedelta(minutes=item["minute"]), source)
        counts[start][source.count_keys[item["key"]]] += item["count_all"]
    return counts
