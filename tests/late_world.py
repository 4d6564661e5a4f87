"""A pipeline in memory with its monitoring, for a model of late data: each write of a process can fail or be its last.

The checks, runs, versions, notifications, holds and the ledger are those of the library. Only the jobs are fakes: one
publishes the objects of the run's manifest as the content of its day, another compares two such contents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeVar

from slackwater.client.holds import HoldDecisions
from slackwater.errors import CloudError, ResponseLost, SlackwaterError, Unavailable
from slackwater.late.changes.comparison import Comparison, MetricChange, RowCounts, Totals, comparison_uri
from slackwater.late.changes.notify import Notifier
from slackwater.late.changes.versions import CompareAction, CompareSince, VersionPair, Versions, pair_uri
from slackwater.late.check.checker import Checker
from slackwater.late.check.decision import CheckReport
from slackwater.late.check.tasks import DayAction, day_tasks
from slackwater.late.ledger.ledger import Ledger
from slackwater.late.ledger.pending import save_pending
from slackwater.runs.freeze import FreezeAction, Freezer
from slackwater.runs.inputs.manifest import InputManifest
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.record import Publication, Run, failure_uri, publication_uri
from tests.fakes_check import KEPT, PIPELINE, World
from tests.fakes_notification import Crashed, Outbox
from tests.fakes_receiver import MemoryFileCache
from tests.fakes_runs import DictCatalog, DictRunTable, DictStore, SetExecutions
from tests.unit.late.test_ledger import ListTable

T = TypeVar("T")
Content = dict[tuple[str, str], int]
"""A published day: the rows of each object, by URI and etag."""

FAULTS = ("ends before", "ends after", "fails", "loses the answer")
OUTCOMES = ("published", "refused", "failed", "failed after the commit")
_WRITES = frozenset(
    {"put", "put_new", "delete", "save", "save_day", "save_rerun_usage", "record_late_day", "remove_late_day"}
    | {"publish", "write", "commit"}
)


@dataclass
class Process:
    """Passes calls on to what all processes share, and has its fault at one of its writes, counted from 1.

    A process that has ended writes nothing more. One whose write failed, or whose answer was lost, goes on.
    """

    at: int = 0
    fault: str = ""
    writes: int = 0
    ended: bool = False

    def using(self, shared: Any) -> Any:
        return _Port(self, shared)

    def write(self, call: Callable[[], Any], lost: type[Exception] = Unavailable) -> Any:
        self.writes += 1
        fault = self.fault if self.writes == self.at else ""
        if self.ended or fault == "ends before":
            self.ended = True
            raise Crashed
        if fault == "fails":
            raise Unavailable("fails")
        answer = call()
        if fault == "ends after":
            self.ended = True
            raise Crashed
        if fault == "loses the answer":
            raise lost("loses the answer")
        return answer


class _Port:
    def __init__(self, process: Process, shared: Any) -> None:
        self._process, self._shared = process, shared

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._shared, name)
        if name not in _WRITES:
            return method
        lost = ResponseLost if name == "publish" else Unavailable
        return lambda *arguments, **named: self._process.write(lambda: method(*arguments, **named), lost)


class ClockStore(DictStore):
    """A store whose objects have the time of the world."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__()
        self.now = now

    def put(self, uri: str, body: bytes, *, metadata: Mapping[str, str] | None = None) -> None:
        self.objects[uri] = (body, dict(metadata or {}), self.now())


class Warehouse:
    """The published table: the content of each day, and of each version that a commit has made."""

    def __init__(self) -> None:
        self.days: dict[str, Content] = {}
        self.versions: dict[tuple[str, int], Content] = {}

    def commit(self, run: Run, content: Content) -> None:
        self.days[run.date] = self.versions[run.date, run.attempt] = content


@cache
def _template() -> World:
    return World()


class LateWorld(World):
    """The pipeline, and all that happens to it. Each reading of its clock is a second later than the one before."""

    def __init__(self) -> None:
        self.__dict__ |= _template().__dict__
        self.store, self.files, self.table = ClockStore(self.now), MemoryFileCache(), DictRunTable()
        self.executions, self.catalog = SetExecutions(), DictCatalog()
        self.warehouse, self.ledger, self.topic = Warehouse(), ListTable(), Outbox()
        self.alarms: list[tuple[str, int]] = []
        """Date and attempt of each message that may or may not have been sent."""

    def now(self) -> datetime:
        self.time += timedelta(seconds=1)
        return self.time

    @contextmanager
    def execution(self, kind: str) -> Iterator[str]:
        """An execution that runs until the end of the block."""
        name = f"arn:aws:states:eu-central-1:0:execution:{kind}:e{len(self.executions.known)}"
        self.executions.known.add(name)
        self.executions.running.add(name)
        try:
            yield name
        finally:
            self.executions.running.discard(name)

    def run_day(self, date: str, outcome: str = "published", process: Process | None = None, **options: Any) -> bool:
        """Run the day as its state machine does; return whether the day is published. Raises as freezing does."""
        process = process or Process()
        with self.execution("pipeline") as name:
            run, restore = self.freeze_day(date, name, process, **options)
            return run is None or self.finish(run, outcome, process, restore)

    def freeze_day(self, date: str, execution: str, process: Process, **options: Any) -> tuple[Run | None, int]:
        """Freeze the day's inputs; return the run, or None if there is none to do, and the version it restores."""
        table, store = process.using(self.table), process.using(self.store)
        freezer = Freezer(
            project=self.project, store=store, inputs=self.inputs, table=table, executions=self.executions,
            exchange_bucket="exchange", keeps=KEPT, now=self.now, on_run_lost=lambda pipeline: None,
        )  # fmt: skip
        frozen = _repeated(
            lambda: freezer.freeze(pipeline=PIPELINE, date=date, execution=execution, correlation_id="c", **options)
        )
        return (frozen.run if frozen.action is FreezeAction.RUN else None), options.get("rollback") or 0

    def finish(self, run: Run, outcome: str, process: Process, restore: int = 0) -> bool:
        """Do the job of a frozen run, and record its outcome; return whether it has published."""
        recorder = RunRecorder(store=process.using(self.store), table=process.using(self.table), now=self.now)
        try:
            self.job(run, outcome, process, restore)
            _repeated(lambda: recorder.record_published(run))
        except SlackwaterError as error:
            cause = str(error)
            _repeated(lambda: recorder.record_failure(run, error="States.TaskFailed", cause=cause))
            return False
        return True

    def job(self, run: Run, outcome: str, process: Process, restore: int = 0) -> None:
        """Publish the rows of the run's manifest, or of the version that it restores. Raises `CloudError`."""
        store, warehouse = process.using(self.store), process.using(self.warehouse)
        if outcome in {"refused", "failed"}:
            store.put(failure_uri(run.prefix), b"AuditFailed: 1 row" if outcome == "refused" else b"SparkException: x")
            raise CloudError(outcome)
        content = dict(self.warehouse.versions[run.date, restore]) if restore else self.manifest_content(run.manifest)
        replaced = len(self.warehouse.days.get(run.date, ()))
        warehouse.commit(run, content)
        if outcome == "failed after the commit":
            raise CloudError(outcome)
        publication = Publication(
            table="t", snapshot_id=str(run.attempt), rows=len(content), replaced=replaced, seconds=1
        )
        store.put(publication_uri(run.prefix), publication.model_dump_json().encode())

    def manifest_content(self, uri: str) -> Content:
        manifest = InputManifest.model_validate_json(self.store.get(uri))
        return {(item.uri, item.etag): item.rows for item in manifest.objects}

    def monitor(
        self,
        *,
        dates: Collection[str] | None = None,
        outcome: str = "published",
        process: Process | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> CheckReport:
        """Check the days, run the late ones again, notify people, and write the ledger, as the state machine does.

        `meanwhile` is called between the check and the first re-run. Raises `Crashed` if the process ends.
        """
        process = process or Process()
        store, table = process.using(self.store), process.using(self.table)
        checker = Checker(
            project=self.project, inputs=self.inputs, table=table, executions=self.executions, store=store,
            exchange_bucket="exchange", now=self.now,
        )  # fmt: skip
        ledger = Ledger(
            project=self.project, store=store, runs=self.table, table=process.using(self.ledger),
            executions=self.executions, exchange_bucket="exchange", now=self.now,
        )  # fmt: skip
        with self.execution("monitor-days") as name:

            def check() -> tuple[CheckReport, str]:
                report = checker.check(pipeline=PIPELINE, as_of=None, dates=dates, execution=name)
                save_pending(report, store=store, exchange_bucket="exchange", execution=name)
                return report, checker.save(report, execution=name)

            report, uri = _repeated(check)
            meanwhile()
            for task in day_tasks(report):
                # A day that fails does not stop the others.
                try:
                    if task.action is DayAction.NOTIFY or self.run_day(task.date, outcome, process):
                        self.notify(task.date, name, process)
                except SlackwaterError:
                    continue
            _repeated(lambda: ledger.write(pipeline=PIPELINE, report=uri, execution=name))
        return report

    def notify(self, date: str, execution: str, process: Process) -> None:
        """Compare the published version with the one that people know, and notify them."""
        store, table = process.using(self.store), process.using(self.table)
        versions = Versions(
            store=store, table=self.table, exchange_bucket="exchange", executions=self.executions, now=self.now
        )
        notifier = Notifier(
            store=store, table=table, executions=self.executions, topic=process.using(self.topic), now=self.now,
            on_outcome_unknown=lambda pipeline: self._alarm(date),
        )  # fmt: skip
        chosen = versions.choose(
            pipeline=PIPELINE, date=date, since=CompareSince.NOTIFIED, execution=execution, correlation_id="c"
        )
        if chosen.action is CompareAction.NOTHING:
            return
        uri = comparison_uri(chosen.prefix)
        if chosen.action is CompareAction.COMPARE:
            pair = VersionPair.model_validate_json(self.store.get(pair_uri(chosen.prefix)))
            store.put(uri, self._compare(pair).model_dump_json().encode())
        notifier.notify(pipeline=PIPELINE, date=date, comparison=uri, execution=execution)

    @property
    def holds(self) -> HoldDecisions:
        return HoldDecisions(
            project=self.project, table=self.table, store=self.store, inputs=self.inputs, executions=self.executions,
            principal=lambda: "arn:aws:iam::1:user/ana", now=self.now,
        )  # fmt: skip

    def _compare(self, pair: VersionPair) -> Comparison:
        before, after = (self.warehouse.versions[pair.date, version.attempt] for version in (pair.before, pair.after))
        added, removed = len(after.keys() - before.keys()), len(before.keys() - after.keys())
        rows = RowCounts(before=len(before), after=len(after), added=added, removed=removed, changed=0)
        totals = [float(sum(content.values())) for content in (before, after)]
        metric = MetricChange(metric="rows", total=Totals.SUM, before=totals[0], after=totals[1])
        return Comparison(
            pipeline=PIPELINE, date=pair.date, key=("uri",), before=pair.before, after=pair.after, rows=rows,
            metrics=(metric,), examples=(), all_rows=None, inputs=(), seconds=1.0,
        )  # fmt: skip

    def _alarm(self, date: str) -> None:
        claim = self.table.day(PIPELINE, date).notification_claim
        self.alarms.append((date, claim.attempt if claim else 0))


def _repeated(call: Callable[[], T]) -> T:
    """Return the result of a call that Step Functions repeats once."""
    try:
        return call()
    except CloudError:
        return call()
