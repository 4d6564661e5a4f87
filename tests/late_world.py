"""A pipeline in memory with its monitoring, for models of late data.

The checks, runs, versions, notifications, holds and the ledger are those of the library. Only the jobs are fakes: one
publishes the objects of the run's manifest as the content of its day, another compares two such contents.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import datetime, timedelta
from functools import cache, partial
from hashlib import md5
from typing import Any, TypeVar

import pytest

from slackwater.client.holds import HoldDecisions
from slackwater.costs.cost import RunCost
from slackwater.errors import CloudError, SlackwaterError
from slackwater.late.arrival_messages import ObjectWritten
from slackwater.late.changes.choose_versions import CompareAction, CompareSince, Versions
from slackwater.late.changes.definition_notices import DefinitionNotifier
from slackwater.late.changes.hour_notices import ComparedHour, HourNotifier
from slackwater.late.changes.notify import Notifier
from slackwater.late.changes.outbox import Outbox
from slackwater.late.changes.pairs import VersionPair, comparison_uri, pair_uri
from slackwater.late.changes.table_notices import TableNotifier
from slackwater.late.check.arrival_checks import ArrivalChecks
from slackwater.late.check.checker import Checker
from slackwater.late.check.limits import usage_date
from slackwater.late.check.tasks import DayAction, day_tasks
from slackwater.late.comparison import Comparison, MetricChange, RowCounts, Totals
from slackwater.late.decision import MAX_FAILURES, CheckReport, DecisionRule, LateDecision
from slackwater.late.ledger import Ledger
from slackwater.late.monitor import Monitor
from slackwater.metrics import Metric, PutsMetric
from slackwater.pipeline.definition import Pipeline, Publish, StepUse
from slackwater.pipeline.table_inputs import TableInput
from slackwater.runs.attempt_files import failure_uri, publication_uri
from slackwater.runs.freeze import FreezeAction, Freezer
from slackwater.runs.inputs.manifest import InputManifest, read_manifest
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.pipeline_verdicts import PipelineVerdicts
from slackwater.runs.record import Publication, Run, RunRecord, RunState
from slackwater.sources.partitions import Partition, version_of
from tests.fakes_check import KEPT, PIPELINE, World
from tests.fakes_functions import NoCosts
from tests.fakes_ledger import ArrivalQueueFake, ListTable
from tests.fakes_notification import Crashed, TopicFake
from tests.fakes_receiver import MemoryEventCounts, MemoryFileCache, store_file
from tests.fakes_runs import DictCatalog, DictRunTable, DictStore, SetExecutions
from tests.fakes_state import MemoryState, MemoryVerdicts
from tests.late_processes import Process, Turns

T = TypeVar("T")
Content = dict[tuple[str, str], int]
"""A published day: the rows of each object, by URI and etag."""

USD_PER_ROW = 1e-5
"""What each published run costs for each row that it has read."""
STEPS = {"delays_by_carrier": StepUse(step="sql", depends_on=("flights",))}
"""Steps that every definition of the pipeline's sources can have."""
OUTCOMES = ("published", "refused", "failed", "failed after the commit")


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
        self.pipeline = PIPELINE
        self.store, self.files, self.table = ClockStore(self.now), MemoryFileCache(), DictRunTable()
        self.executions, self.catalog = SetExecutions(), DictCatalog()
        self.state, self.verdicts = MemoryState(), MemoryVerdicts()
        self.warehouse, self.ledger, self.topic = Warehouse(), ListTable(), TopicFake()
        self.late_reruns: set[tuple[str, str, int]] = set()
        """Calendar day, date and attempt of each re-run that a check has decided on; not of repairs without limits."""
        self.fetched: dict[str, str] = {}
        """The object of each file that a pull has fetched, by path."""
        self.messages: dict[str, str] = {}
        """The queue of arrivals: bodies, by id."""
        self.counted = Counter[Metric]()
        """The sums of the metrics of new rows of the ledger."""
        self.alarms: list[tuple[str, int]] = []
        """Date and attempt of each message that may or may not have been sent."""
        self.table_alarms: list[str] = []
        """Date of each such message about changed tables."""
        self.definition_alarms: list[str] = []
        """Date of each such message about a new definition."""
        self.definitions: dict[str, Pipeline] = {}
        """All definitions that were deployed, by digest."""
        self.deployed: list[tuple[datetime, Pipeline]] = []
        """When each definition was deployed, in order."""
        self.wake_source: Callable[..., None] = lambda *_: None
        self.wake_day: Callable[[str, str], None] = lambda *_: None
        """Evaluate the runs that wait for hours of a source, or for a published day."""
        self.on_check: Callable[[CheckReport], None] = lambda _: None
        """Is called after each check, with its report."""
        self.on_frozen: Callable[[Run], None] = lambda _: None
        """Is called after each run was frozen."""
        self.define(steps=STEPS)

    def now(self) -> datetime:
        self.time += timedelta(seconds=1)
        return self.time

    def set_late(self, **late: Any) -> None:
        """Set keys of `late` in the pipeline's definition."""
        definition = self.project.pipelines[self.pipeline]
        definition = definition.model_copy(update={"late": definition.late.model_copy(update=late)})
        self.project = self.project.model_copy(
            update={"pipelines": {**self.project.pipelines, self.pipeline: definition}}
        )

    def define(self, **changes: Any) -> None:
        """Deploy another definition of the pipeline."""
        definition = self.project.pipelines[self.pipeline].model_copy(update=changes)
        self.project = self.project.model_copy(
            update={"pipelines": {**self.project.pipelines, self.pipeline: definition}}
        )
        self.definitions[self.project.written_digest(self.pipeline)] = definition
        self.deployed.append((self.time, definition))

    def reader(self, name: str, table: TableInput, **more: Any) -> LateWorld:
        """Add a pipeline that reads published days of this one; return what happens to it, in the same cloud."""
        definition = self.project.pipelines[self.pipeline]
        fields = {
            "pipeline": name, "timezone": definition.timezone, "tables": {"days": table},
            "steps": {"rows": StepUse(step="select", depends_on=("days",))},
            "publish": Publish(step="rows", key=("date",)),
        }  # fmt: skip
        second = Pipeline(**{**fields, **more})
        pipelines = {**self.project.pipelines, name: second}
        self.project = self.project.model_copy(update={"pipelines": pipelines})
        reader = copy(self)
        reader.pipeline, reader.now = name, self.now
        reader.warehouse, reader.ledger, reader.topic = Warehouse(), ListTable(), TopicFake()
        reader.counted = Counter()
        reader.alarms, reader.table_alarms, reader.definition_alarms, reader.late_reruns = [], [], [], set()
        reader.define()
        return reader

    def fetch(self, source: str, date: str, path: str, rows: int) -> str:
        """Pull a file, which replaces its former content; return the URI of its object."""
        self.withdraw(source, path, is_removed=False)
        (uri,) = store_file(self.files, source, path, f"{path} {rows}", [Partition(date, "19")])
        self.store.delete([self.fetched[path]] if path in self.fetched else [])
        self.store.put(uri, b"x" * rows, metadata={"rows": str(rows), "file": path})
        self.fetched[path] = uri
        return uri

    def arrive(self, uri: str) -> None:
        """Send the queue of arrivals the message about a written object."""
        name, key = f"m{len(self.messages)}-{uri}", uri.removeprefix("s3://raw/")
        self.messages[name] = ObjectWritten(id=name, key=key, time=self.now()).model_dump_json()

    def receive_messages(self, process: Process | None = None) -> None:
        """Handle the messages of the queue. Raises `Crashed` if the process ends: then they are delivered again."""
        checks, later = list[tuple[str, ...]](), ArrivalQueueFake()
        result = ArrivalChecks(
            project=self.project, table=(process or Process()).using(self.table), executions=self.executions,
            start=lambda *, name, payload: checks.append(payload["days"]), send_later=later, now=self.now,
            update_table=lambda *_: None,
            wake_source=self.wake_source,
        ).start_checks(self.messages)  # fmt: skip
        sent_again = {f"again {number}": body for number, body in enumerate(later.bodies)}
        self.messages = {name: self.messages[name] for name in result.failed} | sent_again
        for days in checks:
            self.monitor(dates=days)

    def withdraw(self, source: str, path: str, *, is_removed: bool) -> None:
        """Record that the partner does not list a fetched file any more, or lists it again."""
        version = version_of(self.fetched.get(path, ""))
        for content in self.files.contents(source, [version[0]] if version else []):
            if content.is_removed != is_removed:
                self.files.save(content.with_removed(1 if is_removed else -1))

    @contextmanager
    def execution(self, kind: str, process: Process) -> Iterator[str]:
        """An execution that runs until the end of the block, unless the fault of its process stops it."""
        name = f"arn:aws:states:eu-central-1:0:execution:{kind}:e{len(self.executions.known)}"
        self.executions.known.add(name)
        self.executions.running.add(name)
        outer, process.stop = process.stop, lambda: self.executions.running.discard(name)
        try:
            yield name
        finally:
            process.stop = outer
            self.executions.running.discard(name)

    def begin_state(self, execution: str) -> None:
        """Raise `Crashed` if the execution was stopped: the function that was working goes on, but no other begins."""
        if execution not in self.executions.running:
            raise Crashed

    def run_day(self, date: str, outcome: str = "published", process: Process | None = None, **options: Any) -> bool:
        """Run the day as its state machine does; return whether the day is published. Raises as freezing does."""
        process = process or Process()
        with self.execution("pipeline", process) as name:
            run, restore = self.freeze_day(date, name, process, **options)
            return run is None or self.finish(run, outcome, process, restore)

    def take_over(self, date: str, at: int, order: Sequence[int]) -> None:
        """Run the day twice at once. The first execution is stopped at a write, but its function goes on."""
        run_twice(partial(self.run_day, date, force=True), at, order)
        if published := self.table.day(self.pipeline, date).published:
            record = self.table.run(self.pipeline, date, published.run.attempt)
            assert record.state is RunState.PUBLISHED

    def freeze_day(self, date: str, execution: str, process: Process, **options: Any) -> tuple[Run | None, int]:
        """Freeze the day's inputs; return the run, or None if there is none to do, and the version it restores."""
        table, store = process.using(self.table), process.using(self.store)
        freezer = Freezer(
            project=self.project, store=store, inputs=self.inputs, counts=self.counts, table=table,
            executions=self.executions, exchange_bucket="exchange", keeps=KEPT, now=self.now,
            on_run_lost=lambda pipeline: None,
        )  # fmt: skip
        options |= {"pipeline": self.pipeline, "date": date, "execution": execution, "correlation_id": "c"}
        frozen = _repeated(lambda: freezer.freeze(**options))
        while frozen.action is FreezeAction.WAIT and process.turns and process.turns.can_wait(process.number):
            frozen = _repeated(lambda: freezer.freeze(**options))
        if frozen.action is FreezeAction.RUN:
            self.on_frozen(frozen.run)
        return (frozen.run if frozen.action is FreezeAction.RUN else None), options.get("rollback") or 0

    def finish(self, run: Run, outcome: str, process: Process, restore: int = 0) -> bool:
        """Do the job of a frozen run, and record its outcome; return whether it has published."""
        recorder = self.recorder_of(process)
        try:
            self.job(run, outcome, process, restore)
            _repeated(lambda: recorder.end_published(run))
            record = self.table.run(run.pipeline, run.date, run.attempt)
            self.table.save_cost(
                record.model_copy(update={"cost": RunCost(usd=USD_PER_ROW * record.run.rows, complete=True)})
            )
        except SlackwaterError as error:
            cause = str(error)
            _repeated(lambda: recorder.end_failed(run, error="States.TaskFailed", cause=cause, retried=True))
            return False
        return True

    def recorder_of(self, process: Process) -> RunRecorder:
        return RunRecorder(
            store=process.using(self.store), table=process.using(self.table), now=self.now, wake_day=self.wake_day,
            verdicts=self.pipeline_verdicts_of(process),
        )  # fmt: skip

    def record_again(self, record: RunRecord, process: Process) -> None:
        """Record the outcome of a run again whose end is recorded."""
        recorder = self.recorder_of(process)
        if record.state is RunState.PUBLISHED:
            _repeated(lambda: recorder.end_published(record.run))
        else:
            _repeated(lambda: recorder.end_failed(record.run, error="E", cause="", retried=True))

    def job(self, run: Run, outcome: str, process: Process, restore: int = 0) -> None:
        """Publish the rows of the run's manifest, or of the version that it restores. Raises `CloudError`.

        The outcome `refuses NAME` is that of a rule of severity `invalidate` about this input.
        """
        store, warehouse = process.using(self.store), process.using(self.warehouse)
        if outcome.startswith("refuses "):
            self.refuse(run, outcome.removeprefix("refuses "))
            raise CloudError(outcome)
        if outcome in {"refused", "failed"}:
            store.put(failure_uri(run.prefix), b"AuditFailed: 1 row" if outcome == "refused" else b"SparkException: x")
            raise CloudError(outcome)
        content = dict(self.warehouse.versions[run.date, restore]) if restore else self.manifest_content(run.manifest)
        replaced = len(self.warehouse.days.get(run.date, ()))
        warehouse.commit(run, content)
        if outcome == "failed after the commit":
            raise CloudError(outcome)
        publication = Publication(
            table=run.pipeline, snapshot_id=str(run.attempt), rows=len(content), replaced=replaced, seconds=1,
            content=md5(repr(sorted(content.items())).encode(), usedforsecurity=False).hexdigest(),
        )  # fmt: skip
        store.put(publication_uri(run.prefix), publication.model_dump_json().encode())

    def manifest(self, uri: str) -> InputManifest:
        return read_manifest(self.store, uri)

    def manifest_content(self, uri: str) -> Content:
        return {(item.uri, item.etag): item.rows for item in self.manifest(uri).objects}

    def monitor(
        self,
        *,
        dates: Collection[str] | None = None,
        outcome: str = "published",
        process: Process | None = None,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> CheckReport:
        """Check the days, run the late ones again, notify people, and write the ledger, as the state machine does.

        `meanwhile` is called between the check and the first re-run. Raises `Crashed` if the process ends, or its
        execution is stopped.
        """
        process = process or Process()
        store, table = process.using(self.store), process.using(self.table)
        checker = Checker(
            project=self.project, inputs=self.inputs, counts=self.counts, table=table, executions=self.executions,
            store=store, verdicts=self.verdicts, exchange_bucket="exchange", now=self.now,
        )  # fmt: skip
        ledger = Ledger(
            project=self.project, store=store, runs=self.table, table=process.using(self.ledger),
            executions=self.executions, exchange_bucket="exchange", now=self.now,
            on_unreadable=lambda uri, reason: pytest.fail(f"{uri}: {reason}"), put_metric=self._counter(process),
        )  # fmt: skip
        monitor = self._monitor(checker, process)
        with self.execution("monitor-days", process) as name:
            as_of = {"as_of": None, "days": dates, "correlation_id": ""}
            report, uri = _repeated(lambda: monitor.check(pipeline=self.pipeline, execution=name, **as_of))
            self.on_check(report)
            self.late_reruns |= {
                (usage_date(self.project.pipelines[self.pipeline], report.checked_at), day.date, day.figures.attempt)
                for day in report.days
                if day.decision is LateDecision.RERUN
                and (day.rule is not DecisionRule.OUTCOME_UNKNOWN or day.figures.attempt - day.attempt > MAX_FAILURES)
            }
            meanwhile()
            compared = dict[str, str]()
            for task in day_tasks(report):
                self.begin_state(name)
                # A day that fails does not stop the others.
                try:
                    is_due = task.action is DayAction.NOTIFY or self.run_day(task.date, outcome, process)
                    if is_due and (comparison := self.compare(task.date, name, process)):
                        compared[task.date] = comparison
                        self.notify(task.date, comparison, name, process)
                except SlackwaterError:
                    continue
            self.begin_state(name)
            self.notify_hours(compared, name, process)
            self.begin_state(name)
            _repeated(lambda: ledger.write(pipeline=self.pipeline, report=uri, execution=name))
        return report

    def _counter(self, process: Process) -> PutsMetric:
        """Return what adds to `counted`; a process that has ended puts no metric."""

        def put_metric(metric: Metric, value: float, **_: object) -> None:
            if not process.ended:
                self.counted[metric] += int(value)

        return put_metric

    def _monitor(self, checker: Checker, process: Process) -> Monitor:
        """The monitor of a function that records no costs and sends no messages about arrivals."""
        table = process.using(self.table)
        tables, definitions = (
            self._outbox(process, alarms.append) for alarms in (self.table_alarms, self.definition_alarms)
        )
        return Monitor(
            checker=checker, tables=TableNotifier(table=table, outbox=tables),
            definitions=DefinitionNotifier(project=self.project, table=table, outbox=definitions),
            arrivals=lambda messages: None, event_counts=MemoryEventCounts(), costs=NoCosts(),
            update_table=lambda *_: None, fold_states=lambda *_: None, verdicts=self.pipeline_verdicts_of(process),
            put_metric=lambda *_, **__: None, warn=lambda *_, **__: None,
        )  # fmt: skip

    def _outbox(self, process: Process, report_unknown_outcome: Callable[[str], None]) -> Outbox:
        topic = process.using(self.topic)
        return Outbox(
            executions=self.executions, topic=topic, now=self.now, put_metric=lambda *_, **__: None,
            warn=lambda _message, *, date: report_unknown_outcome(date),
        )  # fmt: skip

    def documents(self, field: str) -> list[dict[str, Any]]:
        """The JSON documents with that field of the messages that were sent, in order."""
        documents = [json.loads(message["document"]) for message in self.topic.sent]
        return [document for document in documents if field in document]

    def compare(self, date: str, execution: str, process: Process) -> str:
        """Compare the published version with the one that people know; return the URI, empty without a comparison."""
        store = process.using(self.store)
        versions = Versions(
            store=store, table=self.table, exchange_bucket="exchange", executions=self.executions, now=self.now,
            put_metric=lambda *_, **__: None,
        )  # fmt: skip
        chosen = versions.choose(
            pipeline=self.pipeline, date=date, since=CompareSince.NOTIFIED, execution=execution, correlation_id="c"
        )
        if chosen.action is CompareAction.NOTHING:
            return ""
        uri = comparison_uri(chosen.prefix)
        if chosen.action is CompareAction.COMPARE:
            pair = VersionPair.model_validate_json(self.store.get(pair_uri(chosen.prefix)))
            self.begin_state(execution)
            store.put(uri, self._compare(pair).model_dump_json().encode())
        return uri

    def notify(self, date: str, uri: str, execution: str, process: Process) -> None:
        """Notify people of what has changed since the version that they know; of hours, when all are compared."""
        if self.project.pipelines[self.pipeline].period == "day":
            self.begin_state(execution)
            self._notifier(process).notify(pipeline=self.pipeline, date=date, comparison=uri, execution=execution)

    def notify_hours(self, compared: Mapping[str, str], execution: str, process: Process) -> None:
        """Notify people of changed hours, by name with the URI of the comparison."""
        definition = self.project.pipelines[self.pipeline]
        if definition.period == "hour" and compared:
            hours = [ComparedHour(date=date, comparison=uri) for date, uri in compared.items()]
            HourNotifier(notifier=self._notifier(process)).notify(
                pipeline=self.pipeline, timezone=definition.timezone, hours=hours, execution=execution
            )

    def _notifier(self, process: Process) -> Notifier:
        store, table = process.using(self.store), process.using(self.table)
        return Notifier(store=store, table=table, outbox=self._outbox(process, self._alarm))

    def pipeline_verdicts_of(self, process: Process) -> PipelineVerdicts:
        """The verdicts of the pipeline, given by a process that may end."""
        return PipelineVerdicts(
            store=process.using(self.store), runs=process.using(self.table), table=process.using(self.verdicts),
            wake=lambda *_: None,
        )  # fmt: skip

    def hold_decisions_of(self, process: Process) -> HoldDecisions:
        """The decisions of a person whose process may end."""
        return self.hold_decisions(process.using(self.table), process.using(self.store))

    def _compare(self, pair: VersionPair) -> Comparison:
        before, after = (self.warehouse.versions[pair.date, version.attempt] for version in (pair.before, pair.after))
        added, removed = len(after.keys() - before.keys()), len(before.keys() - after.keys())
        rows = RowCounts(before=len(before), after=len(after), added=added, removed=removed, changed=0)
        totals = [float(sum(content.values())) for content in (before, after)]
        metric = MetricChange(metric="rows", total=Totals.SUM, before=totals[0], after=totals[1])
        return Comparison(
            pipeline=self.pipeline, date=pair.date, key=("uri",), before=pair.before, after=pair.after, rows=rows,
            metrics=(metric,), examples=(), all_rows=None, inputs=(), seconds=1.0,
        )  # fmt: skip

    def _alarm(self, date: str) -> None:
        claim = self.table.day(self.pipeline, date).notification_claim
        self.alarms.append((date, claim.attempt if claim else 0))


def run_twice(work: Callable[..., object], at: int, order: Sequence[int]) -> None:
    """Do the work in two processes at once. The execution of the first one is stopped at its write number `at`."""
    turns = Turns(order)
    stopped = Process(at=at, fault="is stopped", turns=turns, number=0)
    next_one = Process(turns=turns, number=1)
    turns.run(*(partial(work, process=process) for process in (stopped, next_one)))


def _repeated(call: Callable[[], T]) -> T:
    """Return the result of a call that Step Functions repeats once."""
    try:
        return call()
    except CloudError:
        return call()
