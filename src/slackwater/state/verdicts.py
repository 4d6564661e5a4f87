"""Verdicts about the quality of a UTC hour of a source, or of a published day of a pipeline.

People give them, partners about what they have sent, and pipelines whose rules of severity `invalidate` have failed. A
verdict never changes, and its key is its content. A `pass` of a person clears every earlier `fail`; that of a partner
only its own, and that of a pipeline only those that a run of the same day has given. A verdict about a day is about the
version that was published then, and says nothing about another one. Without a verdict, a period passes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Literal, NamedTuple, Protocol

from slackwater.formatting import timestamp
from slackwater.model import Record

Quality = Literal["fail", "pass"]
_MOST_LISTED = 3
_KINDS = {"source": "hours", "pipeline": "versions"}


class Subject(NamedTuple):
    """What a verdict is about."""

    of: Literal["source", "pipeline"]
    name: str
    """Of a pipeline: its stored name."""


class Verdict(Record):
    """What a person, a partner or a pipeline says about a period."""

    of: Literal["source", "pipeline"]
    name: str
    period: str
    """A UTC hour of a source, such as 2026-01-01T15, or a day of a pipeline."""
    version: int | None
    """The published attempt of the day; None for an hour."""
    quality: Quality
    reason: str
    principal: str
    """ARN of the identity that gave it, `push:PARTNER`, or the pipeline and its day."""
    giver: str = ""
    """Whose later `pass` clears it, besides that of a person: stored name of a pipeline and a day, or `push:PARTNER`;
    empty for people."""
    at: datetime
    """UTC."""
    id: str
    """Digest of all other fields."""

    @property
    def is_failure(self) -> bool:
        """Whether the data of the period should not be used."""
        return self.quality == "fail"

    @property
    def pipeline(self) -> str:
        """The stored name of the pipeline that gave it; empty for people and partners."""
        name, _, day = self.giver.partition(" ")
        return name if day else ""

    @property
    def document(self) -> dict[str, object]:
        """As commands print it in JSON."""
        period = {"hour": self.period} if self.of == "source" else {"date": self.period, "version": self.version}
        return {self.of: self.name, **period, **self.model_dump(include={"quality", "reason", "principal", "at", "id"})}


class VerdictTable(Protocol):
    """Stores verdicts. All methods raise `CloudError`; a call that is repeated changes nothing."""

    def put_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """Store verdicts."""

    def verdicts(self, subject: Subject, first: str, last: str) -> list[Verdict]:
        """Return all verdicts about the periods from `first` to `last`. The read is consistent."""

    def subjects(self) -> list[Subject]:
        """Return all sources and pipelines that have verdicts. The read is consistent."""


def new_verdict(
    subject: Subject,
    period: str,
    quality: Quality,
    *,
    version: int | None,
    reason: str,
    principal: str,
    at: datetime,
    giver: str = "",
) -> Verdict:
    """Return the verdict with these fields; `at` is in UTC."""
    content = (*subject, period, version, quality, reason, principal, at.astimezone(UTC).isoformat(), giver)
    return Verdict(
        of=subject.of,
        name=subject.name,
        period=period,
        version=version,
        quality=quality,
        reason=reason,
        principal=principal,
        giver=giver,
        at=at,
        id=hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16],
    )


def failures(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the verdicts by which periods have failed, and versions of days: the newest `fail` of each giver.

    They are in order of the periods. A later `pass` of the same giver clears one, and so does that of a person.
    """
    standing: dict[tuple[str, int], dict[str, Verdict]] = {}
    for verdict in sorted(verdicts, key=lambda each: (each.at, each.id)):
        by_giver = standing.setdefault((verdict.period, verdict.version or 0), {})
        if verdict.is_failure:
            by_giver[verdict.giver] = verdict
        elif verdict.giver:
            by_giver.pop(verdict.giver, None)
        else:
            by_giver.clear()
    return [verdict for key in sorted(standing) for verdict in standing[key].values()]


def in_order(verdicts: Iterable[Verdict]) -> tuple[Verdict, ...]:
    """Return verdicts by source, pipeline and period, each once."""
    by_id = {verdict.id: verdict for verdict in verdicts}
    return tuple(sorted(by_id.values(), key=lambda item: (item.of, item.name, item.period, item.version or 0)))


def period_label(verdict: Verdict) -> str:
    """Return the period for people: `2026-01-01 15:00 UTC`, or `2026-01-01, version 3`."""
    if verdict.of == "source":
        return f"{verdict.period.replace('T', ' ')}:00 UTC"
    return f"{verdict.period}, version {verdict.version}"


def describe_verdicts(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Yield a line for verdicts that were given together: periods, quality, who has given it, since when, and why.

    `clicks 2026-01-01 15:00 UTC: fail, by arn:aws:iam::1:user/ana since 2026-01-02 09:00 UTC: bots`
    """

    def given(verdict: Verdict) -> tuple[datetime, str, str, str, str]:
        return verdict.at, verdict.name, verdict.principal, verdict.quality, verdict.reason

    for (at, name, principal, quality, reason), group in groupby(sorted(verdicts, key=given), key=given):
        together = sorted(group, key=lambda each: each.period)
        periods, kind = [period_label(verdict) for verdict in together], _KINDS[together[0].of]
        more = f" and {len(periods) - 1} more {kind}" if len(periods) > _MOST_LISTED else ""
        listed = f"{periods[0]}{more}" if more else ", ".join(periods)
        yield f"{name} {listed}: {quality}, by {principal} since {timestamp(at)}: {reason}"
