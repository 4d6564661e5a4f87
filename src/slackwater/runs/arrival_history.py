"""In which hours each source of a pipeline has delivered: what the usual silence of a source is computed from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

from slackwater.model import Record

HISTORY_DAYS = 28
_HOURS = 24 * HISTORY_DAYS
_MASK = (1 << _HOURS) - 1


class ArrivalHistory(Record):
    """The hours of the last 28 days in which objects of a pipeline's sources were written, as its checks saw them.

    About 170 bytes for each source, however much it delivers.
    """

    pipeline: str
    last_hour: int = 0
    """The latest hour that it can have, in hours since 1970, UTC."""
    sources: dict[str, str] = {}
    """By source: a hexadecimal number, of which bit N is 1 if an object was written in the hour `last_hour - N`."""

    def with_arrivals(self, arrivals: Mapping[str, Iterable[datetime]], *, now: datetime) -> ArrivalHistory:
        """Return the history up to `now` of the sources of `arrivals`, with these times. Others are forgotten."""
        # Never back: two checks may write one after the other in the wrong order.
        last = max(self.last_hour, _hour(now))
        return self.model_copy(
            update={"last_hour": last, "sources": {name: self._merged(name, at, last) for name, at in arrivals.items()}}
        )

    def _merged(self, source: str, arrivals: Iterable[datetime], last: int) -> str:
        bits = int(self.sources.get(source, "0"), 16) << (last - self.last_hour)
        for hour in {_hour(at) for at in arrivals}:
            if hour <= last:
                bits |= 1 << (last - hour)
        return f"{bits & _MASK:x}"

    def hours(self, source: str) -> Collection[int]:
        """Return the hours in which the source has delivered, in hours since 1970, UTC, the latest first."""
        bits = int(self.sources.get(source, "0"), 16)
        return [self.last_hour - index for index in range(bits.bit_length()) if bits >> index & 1]


def _hour(at: datetime) -> int:
    return int(at.astimezone(UTC).timestamp() // 3600)
