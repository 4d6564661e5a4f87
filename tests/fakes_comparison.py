"""Comparisons for tests: a day of the example whose second version has one flight more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from slackwater.late.comparison import (
    Comparison,
    MetricChange,
    Mover,
    PublishedVersion,
    RowChange,
    RowCounts,
    Totals,
)
from slackwater.runs.inputs.difference import Amount, Change, InputChange, SourceDifference

FROZEN = datetime(2013, 3, 11, 6, 0, 12, tzinfo=UTC)


def version(attempt: int, frozen_at: datetime = FROZEN) -> PublishedVersion:
    """A version that was published 70 seconds after it had listed its inputs."""
    return PublishedVersion(
        attempt=attempt, run_id="ab" * 16, tag=f"2013-03-10-abababababab-{attempt}", snapshot_id=str(attempt),
        published_at=frozen_at + timedelta(seconds=70), frozen_at=frozen_at, manifest=f"s3://exchange/{attempt}.json",
    )  # fmt: skip


def comparison(**changes: Any) -> Comparison:
    """The comparison of the second version of a day with the first: one flight of EWR arrived two days late."""
    key = {"origin": "EWR", "carrier": "UA"}
    arrived = FROZEN + timedelta(days=2, hours=3)
    late = InputChange(
        source="flights", date="2013-03-10", hour="12", file="flights-2013-03-10-08.csv", change=Change.ADDED,
        now=Amount(objects=1, rows=1, bytes=900), arrived=arrived,
    )  # fmt: skip
    content = Comparison(
        pipeline="daily_delays",
        date="2013-03-10",
        key=("origin", "carrier"),
        before=version(1),
        after=version(2, arrived + timedelta(hours=1)),
        rows=RowCounts(before=29, after=29, added=0, removed=0, changed=1),
        metrics=(
            MetricChange(
                metric="flights", total=Totals.SUM, before=831, after=832, movers=(Mover(key=key, before=12, after=13),)
            ),
        ),
        examples=(RowChange(change=Change.CHANGED, key=key, values={"flights": (12, 13)}),),
        all_rows=None,
        inputs=(SourceDifference(source="flights", before=Amount(), now=Amount(), changes=(late,)),),
        seconds=3.0,
    )
    return content.model_copy(update=changes)
