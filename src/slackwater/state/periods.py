"""The table that holds the states of periods beside the facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from slackwater.state.facts import Coverage, HourFacts, Part
from slackwater.state.fold import PeriodState


class Covered(NamedTuple):
    """What the reports of a source cover; None without a report."""

    now: Coverage | None
    folded: Coverage | None
    """The last `put_folded`."""


class PeriodTable(Protocol):
    """Stores objects and states. All methods raise `CloudError`."""

    def put_parts(self, source: str, parts: Mapping[datetime, Sequence[Part]]) -> None:
        """Store objects by their UTC hour. A call that is repeated changes nothing."""

    def all_facts(self, source: str, hours: Iterable[datetime]) -> Mapping[datetime, HourFacts]:
        """Return the facts about UTC hours with their objects. The reads are consistent."""

    def coverage(self, source: str) -> Coverage | None:
        """Return what the reports of the source cover; None without a report."""

    def states(self, source: str, starts: Iterable[datetime], *, newest: bool = True) -> list[PeriodState]:
        """Return the stored states of the periods that begin then, in order; without `newest`, perhaps earlier ones."""

    def put_state(self, state: PeriodState) -> bool:
        """Store a state if the stored one has the version before; return whether it was stored."""

    def put_announced(self, state: PeriodState) -> None:
        """Record that the message about this version was sent."""

    def covered(self, source: str) -> Covered:
        """Return what the reports of the source cover, and covered at the last `put_folded`. The read is consistent."""

    def put_folded(self, source: str, coverage: Coverage) -> None:
        """Record that the states of all hours follow from what the reports cover."""
