"""Fakes for checking and telling: inputs, days, a comparison to tell, and ports that are interrupted or crash."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from slackwater.late.comparison import Comparison, MetricChange, Mover, PublishedVersion, RowChange, RowCounts, Totals
from slackwater.runs.difference import Amount, Change, InputChange, SourceDifference
from slackwater.runs.manifest import InputManifest, InputObject
from slackwater.runs.record import DayRecord, Publication, PublishedRun, Run
from tests.fakes_runs import DictRunTable, DictStore

PIPELINE, DATE = "daily_delays", "2013-03-10"
FROZEN = datetime(2013, 3, 11, 7, 2, tzinfo=UTC)


class Crashed(Exception):
    """The process ends here: whatever it still tries does not happen either."""


class Points:
    """Every write passes here first: at one of them something happens, or the process crashes for good."""

    def __init__(self, *, at: int | None = None, do: Callable[[], object] | None = None) -> None:
        self.passed, self.at, self.do = 0, at, do
        self.crashed = False

    def passing(self) -> None:
        if self.crashed:
            raise Crashed
        here, self.passed = self.passed, self.passed + 1
        if here == self.at:
            if self.do is None:
                self.crashed = True
                raise Crashed
            self.do()


class PointedStore:
    """A store over another one, whose writes pass points."""

    def __init__(self, store: DictStore, points: Points) -> None:
        self.store, self.points = store, points

    def put(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> None:
        self.points.passing()
        self.store.put(uri, body, metadata=metadata)

    def put_new(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> bool:
        self.points.passing()
        return self.store.put_new(uri, body, metadata=metadata)

    def get(self, uri: str) -> bytes:
        return self.store.get(uri)


class PointedTable:
    """A run table over another one, whose writes pass points."""

    def __init__(self, table: DictRunTable, points: Points) -> None:
        self.table, self.points = table, points

    def day(self, pipeline: str, date: str) -> DayRecord:
        return self.table.day(pipeline, date)

    def save_day(self, day: DayRecord) -> None:
        self.points.passing()
        self.table.save_day(day)


class Outbox:
    """A topic that keeps what it sends; it may refuse, or lose the answer after sending."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.refuses: Exception | None = None
        self.loses: Exception | None = None

    def publish(self, *, subject: str, body: str, attributes: Mapping[str, str]) -> str:
        if self.refuses:
            raise self.refuses
        self.sent.append({"subject": subject, "body": body, "attributes": dict(attributes)})
        if self.loses:
            raise self.loses
        return f"message-{len(self.sent)}"


class PointedOutbox:
    """A topic over another one, whose sending passes points."""

    def __init__(self, outbox: Outbox, points: Points) -> None:
        self.outbox, self.points = outbox, points

    def publish(self, *, subject: str, body: str, attributes: Mapping[str, str]) -> str:
        self.points.passing()
        return self.outbox.publish(subject=subject, body=body, attributes=attributes)


def an_object(
    source: str = "flights",
    *,
    date: str = DATE,
    hour: str = "12",
    name: str = "a",
    rows: int = 10,
    file: str | None = None,
    etag: str = "",
    size: int | None = None,
) -> InputObject:
    return InputObject(
        uri=f"s3://raw/raw/source={source}/date={date}/hour={hour}/{name}.parquet",
        source=source,
        date=date,
        hour=hour,
        etag=etag or f"{name}-{rows}",
        bytes=rows * 100 if size is None else size,
        rows=rows,
        arrived=FROZEN + timedelta(hours=26),
        file=file,
    )


def a_manifest(*objects: InputObject) -> InputManifest:
    return InputManifest(pipeline=PIPELINE, date=DATE, frozen_at=FROZEN, objects=objects)


def a_run(attempt: int = 1) -> Run:
    return Run(
        pipeline=PIPELINE,
        date=DATE,
        run_id=f"{attempt:032x}",
        attempt=attempt,
        correlation_id="c",
        manifest=f"s3://exchange/manifests/{PIPELINE}/{DATE}/{attempt}.json",
        prefix=f"s3://exchange/runs/{PIPELINE}/{DATE}/{attempt}/",
        files=1,
        rows=1,
        bytes=1,
    )


def published(attempt: int = 1) -> PublishedRun:
    publication = Publication(table="t", snapshot_id=str(attempt), rows=42, replaced=0, seconds=1.0)
    return PublishedRun(run=a_run(attempt), publication=publication, at=FROZEN)


def a_day(attempt: int = 1, **more: Any) -> DayRecord:
    known = {"pipeline": PIPELINE, "date": DATE, "attempts": attempt, "published": published(attempt), "told": 1}
    return DayRecord(**{**known, **more})


def a_version(attempt: int) -> PublishedVersion:
    run = a_run(attempt)
    return PublishedVersion(
        attempt=attempt,
        run_id=run.run_id,
        tag=run.tag,
        snapshot_id=str(attempt),
        published_at=FROZEN + timedelta(minutes=1),
        frozen_at=FROZEN + timedelta(days=2) * (attempt - 1),
        manifest=run.manifest,
    )


def late_flights() -> SourceDifference:
    """A file of the evening that came a day later, in two hours, and a morning's file that was changed."""

    def come(hour: str, rows: int, hours: int) -> InputChange:
        return InputChange(
            source="flights",
            date="2013-03-11",
            hour=hour,
            file="flights-2013-03-10-20.csv",
            change=Change.ADDED,
            now=Amount(objects=1, rows=rows, bytes=rows * 150),
            arrived=FROZEN + timedelta(hours=hours),
        )

    changed = InputChange(
        source="flights",
        date="2013-03-10",
        hour="12",
        file="flights-2013-03-10-08.csv",
        change=Change.CHANGED,
        before=Amount(objects=1, rows=118, bytes=9_800),
        now=Amount(objects=1, rows=120, bytes=9_950),
        arrived=FROZEN + timedelta(hours=3, minutes=12),
    )
    return SourceDifference(
        source="flights",
        before=Amount(objects=20, rows=831, bytes=80_000),
        now=Amount(objects=22, rows=883, bytes=88_000),
        changes=(changed, come("01", 31, 26), come("02", 19, 27)),
    )


def a_comparison(
    *, before: int = 1, after: int = 2, rows: RowCounts | None = None, inputs: tuple[SourceDifference, ...] = ()
) -> Comparison:
    movers = (
        Mover(key={"origin": "EWR", "carrier": "UA"}, before=120.0, after=131.0),
        Mover(key={"origin": "LGA", "carrier": "OO"}, before=None, after=3.0),
    )
    return Comparison(
        pipeline=PIPELINE,
        date=DATE,
        key=("origin", "carrier"),
        before=a_version(before),
        after=a_version(after),
        rows=rows or RowCounts(before=42, after=43, added=1, removed=0, changed=2),
        metrics=(
            MetricChange(metric="flights", total=Totals.SUM, before=831.0, after=883.0, movers=movers),
            MetricChange(metric="dep_delay_mean", total=Totals.MEAN, before=12.634, after=14.021),
            MetricChange(metric="cancelled", total=Totals.SUM, before=3.0, after=3.0),
        ),
        examples=(
            RowChange(
                change=Change.CHANGED,
                key={"origin": "EWR", "carrier": "UA"},
                values={"flights": (120, 131), "dep_delay_mean": (3.1, 4.25)},
            ),
            RowChange(
                change=Change.ADDED,
                key={"origin": "LGA", "carrier": "OO"},
                values={"flights": (None, 3), "cancelled": (None, 0), "precip_mean": (None, None)},
            ),
        ),
        all_rows=None,
        inputs=inputs or (late_flights(),),
        seconds=1.0,
    )
