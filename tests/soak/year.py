"""A generated year: a partner, deployments, crashes, outages, and pulls of the real code over fakes of AWS."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import Any

from slackwater.aws.dynamodb.file_cache import DynamoFileCache
from slackwater.aws.objects import S3ObjectStore
from slackwater.errors import InputError, SlackwaterError
from slackwater.pipeline.definition import Pipeline
from slackwater.project.project import Project
from slackwater.receiver.pull.fetch import LEASE, FileFetcher
from slackwater.receiver.pull.fetch_result import FetchState
from slackwater.receiver.pull.file_cache import FileCounts
from slackwater.receiver.pull.give_up import give_up
from slackwater.receiver.pull.plan import WorkItem, plan_pull
from slackwater.receiver.pull.stale_objects import StaleObjects
from slackwater.receiver.writing.raw_writer import RawWriter
from slackwater.runs.inputs.listing import InputListing
from slackwater.runs.inputs.manifest import InputManifest
from slackwater.runs.period import day_of
from tests.fakes_crashes import FAULT_TYPES, Process, WriteFault
from tests.fakes_interleaving import take_turns
from tests.fakes_receiver import Clock
from tests.fakes_runs import NO_FOREIGN_TABLES, DictRunTable
from tests.fakes_state import MemoryState
from tests.soak.account import Account, Belief
from tests.soak.aws import TABLE, Faults, MemoryDynamoDB, MemoryS3, Meter, seeded
from tests.soak.partner import BASE, DEFINITIONS, INTERVAL, WRONG, Definition, Delivery, Partner

START = datetime(2013, 1, 1, tzinfo=UTC)
PAUSE = timedelta(hours=4)
"""Time between two pulls, on average."""
PATIENCE = timedelta(days=5)
"""After this time a person gives a file up, at the latest."""
PIPELINE = Pipeline.model_validate(
    {
        "pipeline": "totals",
        "sources": ["things"],
        "steps": {"all": {"step": "sql", "depends_on": ["things"], "with": {"query": "SELECT * FROM things"}}},
        "publish": {"step": "all", "key": ["date", "id"]},
    }
)

Using = Callable[[Any], Any]


class Year:
    """The partner, the account's AWS, and what the soak believes that readers see."""

    def __init__(self, *, days: int, seed: int, interval: timedelta = INTERVAL) -> None:
        self.random = seeded(seed)
        self.clock = Clock(START)
        self.end = START + timedelta(days=days)
        self.partner = Partner(self.clock, seeded(seed + 1), start=START, end=self.end, interval=interval)
        self.faults, self.meter = Faults(self.clock, seeded(seed + 2)), Meter()
        self.dynamodb = MemoryDynamoDB(self.clock, seeded(seed + 3), self.faults, self.meter)
        self.s3 = MemoryS3(self.clock, self.faults, self.meter)
        self.cache, self.store = DynamoFileCache(self.dynamodb, TABLE), S3ObjectStore(self.s3)
        self.definition: Definition = BASE
        self.belief = Belief(self.partner)
        self.account = Account(self.belief, s3=self.s3, dynamodb=self.dynamodb, cache=self.cache, store=self.store)
        self.counted = FileCounts()
        """The sums of the metrics."""
        self.done = Counter[str]()
        """What has happened, by its name."""
        self.pulls = 0
        self.attempts = 0
        self._overlapping = 0
        self._schedule: list[tuple[datetime, Callable[[], object]]] = []
        self._plan_operations()

    @property
    def last_date(self) -> date:
        return (self.end - timedelta(seconds=1)).date()

    # ----- what happens to the source and to AWS

    def _plan_operations(self) -> None:
        """Draw deployments and outages of the whole time."""
        at = START + timedelta(days=self.random.uniform(4, 20) if self.end - START > timedelta(days=20) else 1)
        while at < self.end:
            self._schedule.append((at, self._deploy))
            at += timedelta(days=self.random.uniform(15, 45))
        at = START + timedelta(days=1.3)
        while at < self.end:
            self._schedule.append((at, self._begin_outage))
            at += timedelta(days=self.random.uniform(4, 25))
        self._schedule.sort(key=lambda operation: operation[0])

    def _deploy(self) -> None:
        """Change the definition. A wrong one reads no file, and is corrected after some hours."""
        before = self.definition
        if self.random.random() < 0.25:
            self.definition = WRONG
            self._do_later(timedelta(hours=self.random.uniform(2, 8)), lambda: self._return_to(before))
        else:
            self.definition = self.random.choice([other for other in DEFINITIONS if other != before])
        self.done["definition changed"] += 1

    def _return_to(self, definition: Definition) -> None:
        self.definition = definition
        self.done["definition changed back"] += 1

    def _begin_outage(self) -> None:
        service = self.random.choice(["s3", "dynamodb"])
        self.faults.outages[service] = self.clock() + timedelta(hours=self.random.uniform(1, 6))
        self.done[f"outage of {service}"] += 1

    def _do_later(self, after: timedelta, act: Callable[[], object]) -> None:
        self._schedule.append((self.clock() + after, act))
        self._schedule.sort(key=lambda operation: operation[0])

    def go_to(self, instant: datetime) -> None:
        """Let the time pass, with what happens meanwhile."""
        self.clock.time = max(self.clock.time, instant)
        while self._schedule and self._schedule[0][0] <= self.clock():
            self._schedule.pop(0)[1]()
        self.partner.go_on()

    # ----- pulls

    def pull(self, using: Using = lambda port: port, **plan: Any) -> int:
        """Pull like the state machine: a file that fails does not stop the others. Return the number of files."""
        items = self.plan(**plan)
        for item in items:
            self.fetch(item, using)
        return len(items)

    def plan(self, **plan: Any) -> Sequence[WorkItem]:
        """Return the work list; none if the plan fails."""
        self.pulls += 1
        try:
            return plan_pull(
                self.definition.source,
                as_of=plan.get("as_of"),
                partner=self.partner,
                cache=self.cache,
                now=self.clock(),
            ).items
        except SlackwaterError:
            self.done["plan failed"] += 1
            return []

    def fetch(self, item: WorkItem, using: Using = lambda port: port) -> None:
        """Fetch one file in a process of its own, and note what the partner has delivered and how it ended."""
        self.attempts += 1
        definition, overlapping = self.definition, self._overlapping
        self.clock.pass_by(seconds=self.random.uniform(0.1, 1.5))
        delivery = Delivery(self.partner)
        fetcher = FileFetcher(
            source=definition.source,
            partner=delivery,
            cache=using(self.cache),
            raw_writer=RawWriter(store=using(self.store), raw_bucket="raw"),
            now=self.clock,
            owner=f"attempt-{self.attempts}",
            put_rejected=MemoryState().put_rejected,
        )
        try:
            fetched = fetcher.fetch(item)
            state = fetched.state
            # A result reaches the function that puts its metrics: processes end at writes only.
            self.counted = self.counted.plus(fetched.counts)
        except SlackwaterError:
            state = None
        self.done[f"file {state or 'failed'}"] += 1
        self.belief.attempted(
            item.path,
            delivery.bodies,
            definition,
            is_stored=state in {FetchState.STORED, FetchState.DUPLICATE, FetchState.UNCHANGED},
            # Another attempt may have changed the same content meanwhile.
            is_alone=self._overlapping == overlapping and not self._overlapping % 2,
        )

    def pull_with_faults(self) -> None:
        """Pull once; some processes crash, overlap, or outlive their leases."""
        chance = self.random.random()
        if chance < 0.02:
            self._two_pulls()
        elif chance < 0.03:
            self._files_in_parallel()
        else:
            for item in self.plan():
                if self.random.random() < 0.02:
                    self._fetch_with_fault(item)
                else:
                    self.fetch(item)

    def _fetch_with_fault(self, item: WorkItem) -> None:
        fault = WriteFault(self.random.randint(1, 10), self.random.choice(FAULT_TYPES))
        outlives = self.random.random() < 0.5

        def meanwhile() -> None:
            if outlives:
                self.go_to(self.clock() + LEASE + timedelta(minutes=1))
                self.done["lease expired"] += 1
            with self._overlap():
                self.pull()

        process = Process(fault, meanwhile=meanwhile)
        self.fetch(item, process.using)
        if process.is_fault_reached:
            self.done[f"process {fault.type}"] += 1

    def _two_pulls(self) -> None:
        """Two pulls at the same time, one call at a time, and sometimes a deployment in between."""
        self.done["two pulls at once"] += 1
        calls, deployment = count(), self.random.randint(20, 300) if self.random.random() < 0.15 else None

        def after_each() -> None:
            if next(calls) == deployment:
                self._deploy()

        with self._overlap():
            take_turns([self.pull, self.pull], self._turns(), after_each=after_each)

    def _files_in_parallel(self) -> None:
        """The state machine runs several functions at the same time."""
        self.done["files in parallel"] += 1
        items = self.plan()

        def work(part: Sequence[WorkItem], using: Using) -> None:
            for item in part:
                self.fetch(item, using)

        parts = [items[number::3] for number in range(3)]
        with self._overlap():
            take_turns(
                [lambda using, part=part: work(part, using) for part in parts], self._turns(), after_each=lambda: None
            )

    def _turns(self) -> Iterator[int]:
        while True:
            yield from [self.random.randrange(3)] * self.random.randint(1, 12)

    @contextmanager
    def _overlap(self) -> Iterator[None]:
        """While attempts overlap, the number is odd; it is another one after they did."""
        is_outermost = not self._overlapping % 2
        self._overlapping += is_outermost
        try:
            yield
        finally:
            self._overlapping += is_outermost

    def give_up_old_files(self) -> None:
        """A person gives up files that could not be taken for a long time; sometimes too early."""
        patience = self.random.choice([timedelta(hours=8), PATIENCE])
        try:
            for entry in list(self.cache.not_taken("things")):
                if entry.not_taken_since and entry.not_taken_since < self.clock() - patience:
                    self._give_up(entry.path)
        except SlackwaterError:
            self.done["give-up failed"] += 1

    def _give_up(self, path: str) -> None:
        try:
            (entry,) = give_up("things", [path], reason="too old", cache=self.cache, now=self.clock())
        except InputError:
            return  # A pull is fetching it.
        self.belief.given_up[path] = entry.attempted
        self.done["file given up"] += 1

    def remove_stale(self) -> None:
        """Delete stale objects, as the weekly function does. Each of them has a record."""
        objects = StaleObjects(
            store=self.store,
            cache=self.cache,
            raw_bucket="raw",
            exchange_bucket="x",
            update_table=lambda *_: None,
            now=self.clock,
        )
        removal = objects.remove(["things"], limit=timedelta(minutes=13))
        assert not removal.unrecorded
        self.done["stale object deleted"] += removal.deleted

    # ----- readers

    def freeze(self, day: date) -> InputManifest:
        """Freeze the inputs of a day."""
        project = Project(sources={"things": self.definition.source}, pipelines={"totals": PIPELINE})
        inputs = InputListing(
            project=project,
            store=self.store,
            files=self.cache,
            table=DictRunTable(),
            foreign=NO_FOREIGN_TABLES,
            raw_bucket="raw",
            now=self.clock,
        )
        return inputs.manifest("totals", day_of(day, "UTC"))

    def finish(self) -> int:
        """Pull the last window without faults until no work is left. Return the number of pulls."""
        as_of = self.last_date
        self.faults.outages.clear()
        self.faults.throttled = 0
        if self.definition is WRONG:
            self._return_to(BASE)
        idle = pulls = 0
        while idle < 2:
            assert pulls < 30, "work is left after 30 pulls without faults"
            self.clock.pass_by(days=1.1)
            self.partner.go_on()
            self.give_up_old_files()
            pulls += 1
            idle = 0 if self.pull(as_of=as_of) else idle + 1
        self.clock.pass_by(days=4)
        self.remove_stale()
        return pulls
