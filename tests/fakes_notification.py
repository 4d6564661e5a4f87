"""Fakes for checks and notifications: inputs, days, a comparison to notify of, and ports that crash at a write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from slackwater.runs.inputs.manifest import InputManifest, InputObject
from slackwater.runs.record import DayRecord, Publication, PublishedRun, Run

PIPELINE, DATE = "daily_delays", "2013-03-10"
FROZEN = datetime(2013, 3, 11, 7, 2, tzinfo=UTC)


class Crashed(Exception):
    """The process ends here; its later calls have no effect."""


class WriteHook:
    """Counts the writes of a process: before write number `at` it calls `action`, or crashes for good without one."""

    def __init__(self, *, at: int | None = None, action: Callable[[], object] | None = None) -> None:
        self.writes, self.at, self.action = 0, at, action
        self.crashed = False

    def before_write(self) -> None:
        if self.crashed:
            raise Crashed
        index, self.writes = self.writes, self.writes + 1
        if index == self.at:
            if self.action is None:
                self.crashed = True
                raise Crashed
            self.action()


class Hooked:
    """A store, a run table or a topic that reports its writes to `hook`, and passes all calls on."""

    def __init__(self, shared: Any, hook: WriteHook) -> None:
        self.shared, self.hook = shared, hook

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.shared, name)
        if name not in {"put", "put_new", "save", "publish"}:
            return method

        def write(*arguments: Any, **named: Any) -> Any:
            self.hook.before_write()
            return method(*arguments, **named)

        return write


class TopicFake:
    """A topic that keeps its messages; it may refuse one, or lose the response after sending it."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.refuses: Exception | None = None
        self.loses: Exception | None = None

    def publish(self, *, subject: str, body: str, document: str, attributes: Mapping[str, str]) -> str:
        if self.refuses:
            raise self.refuses
        self.sent.append({"subject": subject, "body": body, "document": document, "attributes": dict(attributes)})
        if self.loses:
            raise self.loses
        return f"message-{len(self.sent)}"


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


def a_run(attempt: int = 1, **changes: Any) -> Run:
    run = Run(
        pipeline=PIPELINE, date=DATE, run_id=f"{attempt:032x}", attempt=attempt, correlation_id="c", files=1, rows=1,
        bytes=1, manifest=f"s3://exchange/manifests/{PIPELINE}/{DATE}/{attempt}.json",
        prefix=f"s3://exchange/runs/{PIPELINE}/{DATE}/{attempt}/",
    )  # fmt: skip
    return run.model_copy(update=changes)


def published(attempt: int = 1) -> PublishedRun:
    publication = Publication(table="t", snapshot_id=str(attempt), rows=42, replaced=0, seconds=1.0)
    return PublishedRun(run=a_run(attempt), publication=publication, at=FROZEN)


def a_day(attempt: int = 1, **more: Any) -> DayRecord:
    fields = {
        "pipeline": PIPELINE,
        "date": DATE,
        "attempts": attempt,
        "published": published(attempt),
        "notified_attempt": 1,
    }
    return DayRecord(**{**fields, **more})


def a_version(attempt: int) -> PublishedVersion:
    run = a_run(attempt)
    return PublishedVersion(
        attempt=attempt,
        run_id=run.run_id,
        tag=run.tag,
        snapshot_id=str(attempt),
        published_at=FROZEN + timedelta(days=2) * (attempt - 1) + timedelta(minutes=1),
        frozen_at=FROZEN + timedelta(days=2) * (attempt - 1),
        manifest=run.manifest,
    )


def late_flights() -> SourceDifference:
    """An evening's file that arrived a day late, in two hours, and a morning's file that was changed."""

    def added(hour: str, rows: int, hours: int) -> InputChange:
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
        changes=(changed, added("01", 31, 26), added("02", 19, 27)),
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
