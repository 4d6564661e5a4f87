"""How many events a client has sent, by the windows in which their source counts."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from slackwater.sources.definition import Source
from slackwater.state.reports import can_report, counts_of, window_at, window_end

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SentReport(NamedTuple):
    """What a client has to report after a push."""

    through: datetime
    counts: dict[datetime, int]
    """By the windows of the latest push, with the events of all pushes. Empty if no window can be reported."""
    left_out: dict[datetime, int]
    """The events of the latest push in windows that are too old, or too far in the future, for a report."""


class SentCounts:
    """The events that a client has sent, in all of its pushes.

    The newest report decides about a window, so it has the events of earlier pushes too. A push that is repeated counts
    once.
    """

    def __init__(self) -> None:
        self._pushes: dict[str, dict[str, Counter[datetime]]] = {}

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
        counts = {start: sum(push[start] for push in pushes.values()) for start in reported}
        left_out = {start: sent[start] for start in sorted(sent) if start not in counts}
        return SentReport(through=min(last, window_at(now, source)), counts=counts, left_out=left_out)


def window_counts(source: Source, events: Sequence[bytes], *, now: datetime) -> Counter[datetime]:
    """Return the number of events by window, accepted or not; of several events with one id in an hour, one counts."""
    # They import pyarrow, which a push without counts does not need.
    import pyarrow as pa
    import pyarrow.compute as pc

    from slackwater.receiver.parsing.event_checks import check_events
    from slackwater.receiver.parsing.json_lines import read_json_lines
    from slackwater.sources.event_schema import EVENT_TIME

    parsed, _ = read_json_lines(b"\n".join(events), None, max_events=len(events))
    checked = check_events(parsed, source, received_at=now)
    times = [checked.table[EVENT_TIME], checked.rejections[EVENT_TIME]]
    if source.event_id:
        hours = pc.floor(pc.divide(checked.table[EVENT_TIME].cast(pa.int64()).cast(pa.float64(), safe=False), 3.6e9))
        keys = pa.table({"hour": hours, "id": checked.table[source.event_id], "at": checked.table[EVENT_TIME]})
        times[0] = keys.group_by(["hour", "id"], use_threads=False).aggregate([("at", "min")])["at_min"]
    counts = Counter[datetime]()
    for column in times:
        # By minute, so that few instants are converted.
        minutes = pc.floor(pc.divide(column.drop_null().cast(pa.int64()).cast(pa.float64(), safe=False), 6e7))
        for item in pc.value_counts(minutes.cast(pa.int64())).to_pylist():
            counts[window_at(_EPOCH + timedelta(minutes=item["values"]), source)] += item["counts"]
    return counts
