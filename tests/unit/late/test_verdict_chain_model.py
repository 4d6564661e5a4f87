"""Five pipelines over three sources, with verdicts, back-fills, late data, and processes that end at any write.

What has failed is what reaches a failed period in a graph that networkx makes of the stored manifests.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import product
from typing import Any

import networkx as nx
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from slackwater.errors import SlackwaterError
from slackwater.pipeline.definition import StepUse
from slackwater.pipeline.table_inputs import TableInput
from slackwater.runs.record import Run, RunState
from slackwater.runs.waits.verdicts import VerdictReader
from slackwater.state.verdicts import Quality, Subject, Verdict, new_verdict
from tests.fakes_check import NOW
from tests.fakes_notification import Crashed
from tests.late_processes import FAULTS, Process
from tests.late_world import LateWorld, run_twice
from tests.models import model_settings

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("one_thread")]

Node = tuple[str, str, str, int]
"""`source`, source, hour, 0; or `pipeline`, pipeline, day, version."""
NEW_YORK = "America/New_York"
READS: dict[str, tuple[str, tuple[str, ...], dict[str, tuple[int, int]]]] = {
    "a": (NEW_YORK, ("flights", "weather"), {}),
    "b": ("UTC", ("third",), {"a": (-1, 0)}),
    "c": (NEW_YORK, (), {"b": (0, 0), "a": (-1, 0)}),
    "d": (NEW_YORK, ("weather",), {"c": (0, 0)}),
    "e": ("UTC", ("flights",), {"d": (-1, 0)}),
}
"""Timezone, sources, and days of tables of each pipeline."""
JUDGED: tuple[dict[str, tuple[str, ...]], ...] = (
    {"a": ("flights",), "d": ("weather",)},
    {"a": ("flights",), "e": ("flights", "of_d")},
    {"b": ("of_a",), "d": ("weather",)},
    {"c": ("of_b",), "e": ("flights",)},
)
"""Deployments of pipelines that judge inputs. In each of them, some would wait for each other."""
DATES = ("2013-03-11", "2013-03-12")
SOURCES = ("flights", "weather", "third")
HOURS, FILES = ("03", "17"), "abcd"
"""At 03:00 UTC it is still the day before in New York."""

names, dates, hours = st.sampled_from(sorted(READS)), st.sampled_from(DATES), st.sampled_from(HOURS)
sources, numbers = st.sampled_from(SOURCES), st.integers(0, 2)
orders = st.lists(st.integers(0, 1), min_size=1, max_size=50)
qualities = st.sampled_from(("fail", "fail", "pass"))
outcomes = st.sampled_from(("published", "published", "failed", "failed after the commit"))
faults = st.one_of(st.builds(Process), st.builds(Process, at=st.integers(1, 24), fault=st.sampled_from(FAULTS)))


class FivePipelines(RuleBasedStateMachine):
    """The processes are those of the library. The oracle reads only what they have stored."""

    def __init__(self) -> None:
        super().__init__()
        base = LateWorld()
        third = base.project.sources["weather"].model_copy(update={"source": "third"})
        base.project = base.project.model_copy(update={"sources": {**base.project.sources, "third": third}})
        self.worlds: dict[str, LateWorld] = {}
        for name, (timezone, of_sources, tables) in READS.items():
            inputs = {
                f"of_{table}": TableInput(table=table, days=days, missing="empty") for table, days in tables.items()
            }
            steps = steps_of((*of_sources, *inputs), ())
            table = TableInput(table="a", days=(0, 0))
            world = base.reader(name, table, timezone=timezone, sources=of_sources, tables=inputs, steps=steps)
            base.project, world.on_frozen, self.worlds[name] = world.project, self.check_input, world
        self.base, self.is_checking = base, False
        """Whether the checks run days, not people."""
        self.judged: list[tuple[str, str]] = []
        """Pipelines and the inputs that they judge."""

    @initialize(
        on_invalid=st.tuples(*[st.sampled_from(("hold", "hold", "rerun", "ignore"))] * len(READS)),
        judged=st.sampled_from(JUDGED),
    )
    def publish(self, on_invalid: tuple[str, ...], judged: dict[str, tuple[str, ...]]) -> None:
        self.judged = [(name, each) for name, inputs in judged.items() for each in inputs]
        for world, action in zip(self.worlds.values(), on_invalid, strict=True):
            world.project = self.base.project
            inputs = inputs_of(world.pipeline)
            world.set_late(on_invalid=dict.fromkeys(inputs, action))
            world.define(steps=steps_of(inputs, judged.get(world.pipeline, ())))
        # All are one deployment.
        pipelines = {name: world.project.pipelines[name] for name, world in self.worlds.items()}
        for world in self.worlds.values():
            world.project = world.project.model_copy(update={"pipelines": pipelines})
            world.define()
        for source in SOURCES:
            for date in DATES:
                self.deliver(source, date, "17", "a", 100)
        for world in self.worlds.values():
            for date in DATES:
                world.run_day(date)

    # What happens.

    @rule(source=sources, date=dates, hour=hours, name=st.sampled_from(FILES), rows=st.integers(1, 30))
    def deliver(self, source: str, date: str, hour: str, name: str, rows: int) -> None:
        self.base.add(source, date, hour, name=name, rows=rows)

    @rule(name=names, date=dates, outcome=outcomes, force=st.booleans(), process=faults)
    def run(self, name: str, date: str, outcome: str, force: bool, process: Process) -> None:
        with suppress(SlackwaterError, Crashed):
            self.worlds[name].run_day(date, outcome, process, force=force)

    @rule(number=numbers, date=dates, process=faults)
    def refuse(self, number: int, date: str, process: Process) -> None:
        """A rule of severity `invalidate` fails."""
        name, refused = self.judged[number % len(self.judged)]
        with suppress(SlackwaterError, Crashed):
            self.worlds[name].run_day(date, f"refuses {refused}", process, force=True)

    @rule(number=numbers, date=dates, process=faults)
    def refuse_late_data(self, number: int, date: str, process: Process) -> None:
        for source in SOURCES:
            self.deliver(source, date, "17", "d", 40)
        self.refuse(number, date, process)

    @rule(name=names, date=dates, number=st.integers(1, 5), process=faults)
    def record_again(self, name: str, date: str, number: int, process: Process) -> None:
        """Step Functions repeats the record of an end, although later runs have ended since."""
        records = [each for each in self.base.table.runs(name, date) if each.state is not RunState.RUNNING]
        again, later = records[-number:][0], records[-number:][1:]
        before = {item.id: item for item in self.standing()}
        with suppress(SlackwaterError, Crashed):
            self.worlds[name].record_again(again, process)
        after = {item.id for item in self.standing()}
        lost = {before[each].principal for each in before.keys() - after}
        assert not lost & {giver_of(each.run) for each in later}, "what a later run has said is lost"
        if not process.ended and any(each.state is RunState.PUBLISHED for each in later):
            assert after <= before.keys(), "nothing clears what is said now"

    @rule(name=names, start=dates, process=faults)
    def back_fill(self, name: str, start: str, process: Process) -> None:
        """All days from one on are published again, in this pipeline and all after it, until a process ends."""
        with suppress(Crashed):
            for each in sorted(READS):
                for date in DATES:
                    if each >= name and date >= start:
                        with suppress(SlackwaterError):
                            self.worlds[each].run_day(date, "published", process, force=True)

    @rule(name=names, date=dates, at=st.integers(1, 8), order=orders)
    def take_over_a_stopped_execution(self, name: str, date: str, at: int, order: list[int]) -> None:
        self.worlds[name].take_over(date, at, order)

    @rule(source=sources, date=dates, hour=hours, quality=qualities)
    def judge_an_hour(self, source: str, date: str, hour: str, quality: Quality) -> None:
        self.give(("source", source, f"{date}T{hour}", 0), quality)

    @rule(name=names, date=dates, quality=qualities)
    def judge_a_version(self, name: str, date: str, quality: Quality) -> None:
        version = self.base.table.day(name, date).published.run.attempt
        self.give(("pipeline", name, date, version), quality)

    @rule(name=names, date=dates, process=faults)
    def judge_a_version_and_run_it_again(self, name: str, date: str, process: Process) -> None:
        """Nobody has judged the new version, which has the same rows. Versions that have read the first one stay."""
        self.judge_a_version(name, date, "fail")
        self.run(name, date, "published", True, process)

    @rule(number=numbers, date=dates, at=st.integers(1, 12))
    def record_a_refusal_again(self, number: int, date: str, at: int) -> None:
        """The process that records it ends, perhaps before it gives a verdict. The next run publishes first."""
        name, _ = self.judged[number % len(self.judged)]
        self.refuse(number, date, Process(at=at, fault="ends before"))
        self.run(name, date, "published", True, Process())
        self.record_again(name, date, 2, Process())

    @rule(number=numbers, date=dates)
    def record_a_publication_again(self, number: int, date: str) -> None:
        """The next run refuses its input first."""
        name, _ = self.judged[number % len(self.judged)]
        self.run(name, date, "published", True, Process())
        self.refuse(number, date, Process())
        self.record_again(name, date, 2, Process())

    @rule(number=numbers, date=dates, at=st.integers(1, 12), order=orders)
    def take_over_a_refusal(self, number: int, date: str, at: int, order: list[int]) -> None:
        """The function that records it goes on while the next run publishes."""
        name, refused = self.judged[number % len(self.judged)]

        def work(process: Process) -> None:
            outcome = "published" if process.number else f"refuses {refused}"
            self.worlds[name].run_day(date, outcome, process, force=True)

        run_twice(work, at, order)

    @rule(date=dates, first=numbers, second=numbers, process=faults)
    def refuse_two_inputs(self, date: str, first: int, second: int, process: Process) -> None:
        """One of the pipelines publishes its day again."""
        for number in (first, second):
            self.refuse(number, date, Process())
        self.run(self.judged[second % len(self.judged)][0], date, "published", True, process)

    def give(self, node: Node, quality: Quality) -> None:
        """Give a verdict twice: it is newer than those that it replaces, as the command makes it."""
        kind, name, period, version = node
        subject = Subject("source" if kind == "source" else "pipeline", name)
        newest = [item.at for item in self.base.verdicts.verdicts(subject, period, period)]
        verdict = new_verdict(
            subject, period, quality, version=version or None, reason="r", principal="ana",
            at=max([self.base.now(), *(at + timedelta(microseconds=1) for at in newest)]),
        )  # fmt: skip
        self.base.verdicts.put_verdicts([verdict, verdict])

    @rule(hours=st.sampled_from((0.2, 2, 20)))
    def wait(self, hours: float) -> None:
        if self.base.time + timedelta(hours=hours) < NOW + timedelta(days=2):
            self.base.time += timedelta(hours=hours)

    @rule(name=names, outcome=outcomes, process=faults)
    def monitor(self, name: str, outcome: str, process: Process) -> None:
        self.check(name, outcome, process)

    @rule(name=names, at=st.integers(1, 24), order=orders)
    def take_over_a_stopped_monitoring(self, name: str, at: int, order: list[int]) -> None:
        self.is_checking = True
        run_twice(self.worlds[name].monitor, at, order)
        self.is_checking = False

    @rule()
    def monitor_all(self) -> None:
        for name in self.worlds:
            self.check(name, "published", Process())
            self.days_of_failed_data_are_on_hold(name)

    def check(self, name: str, outcome: str, process: Process) -> None:
        self.is_checking = True
        with suppress(SlackwaterError, Crashed):
            self.worlds[name].monitor(outcome=outcome, process=process)
        self.is_checking = False

    # What must be.

    def check_input(self, run: Run) -> None:
        """A check runs a day only with another input than that of the published version, unless its outcome is open."""
        day = self.base.table.day(run.pipeline, run.date)
        if self.is_checking and day.published and not day.outcome_unknown:
            ran, published = (
                {(item.uri, item.etag) for item in self.base.manifest(each.manifest).objects}
                for each in (run, day.published.run)
            )
            assert ran != published, (run.pipeline, run.date, "has run twice")

    @invariant()
    def what_has_failed_reaches_a_failed_period(self) -> None:
        world = self.base
        graph, found = self.graph(), VerdictReader(table=world.table, store=world.store, verdicts=world.verdicts)
        failed = {node_of(item) for item in self.standing()}
        for name, date, version in self.published():
            node: Node = ("pipeline", name, date, version)
            expected = failed & {node, *nx.descendants(graph, node)}
            assert {node_of(item) for item in found.of_published(name, date)} == expected, node

    def days_of_failed_data_are_on_hold(self, name: str) -> None:
        """After a check with nothing in its way: a pipeline obeys people, and pipelines that do not wait for it."""
        graph, pipeline = self.graph(), self.base.project.pipelines[name]
        waiting = {name, *nx.ancestors(self.waits(), name)}
        failed = {node_of(item) for item in self.standing() if item.pipeline not in waiting}
        action = self.worlds[name].project.pipelines[name].late.on_invalid
        for date in DATES:
            day = self.base.table.day(name, date)
            node: Node = ("pipeline", name, date, day.published.run.attempt)
            if set(action.values()) == {"hold"} and failed & nx.descendants(graph, node):
                assert day.hold, (name, date, "is not on hold")
            elif day.hold and day.hold.rule == "invalid":
                assert failed, (pipeline.pipeline, date, "is on hold without a verdict")

    def waits(self) -> nx.DiGraph:
        """Return the pipelines, with an edge to each that one may wait for."""
        reads, waits = nx.DiGraph(), nx.DiGraph()
        reads.add_edges_from((name, each.removeprefix("of_")) for name in READS for each in inputs_of(name))
        for name, judged in self.judged:
            about = judged.removeprefix("of_")
            waits.add_edges_from((reader, name) for reader in nx.ancestors(reads, about))
            waits.add_edges_from((name, each) for each in {about, *nx.descendants(reads, about)} & READS.keys())
        waits.add_nodes_from(READS)
        return waits

    def graph(self) -> nx.DiGraph:
        """Return the published versions and hours, with an edge to each that a version has read.

        A version has read the present one if that has the same rows.
        """
        graph, table = nx.DiGraph(), self.base.table
        contents = {key: table.by_day[key[:2]].published for key in self.published()}
        present = {key[:2]: (item.publication.content, key[2]) for key, item in contents.items()}
        for (name, date, version), record in table.records.items():
            node: Node = ("pipeline", name, date, version)
            graph.add_node(node)
            for item in json.loads(self.base.store.get(record.run.manifest))["objects"]:
                if not item["tag"]:
                    graph.add_edge(node, ("source", item["source"], f"{item['date']}T{item['hour']}", 0))
                    continue
                read, _, day = item["file"].partition(" ")
                content, newest = present[read, day]
                attempt = newest if item["etag"] == content else int(item["tag"].rpartition("-")[2])
                graph.add_edge(node, ("pipeline", read, day, attempt))
        graph.add_nodes_from(node_of(item) for item in self.base.verdicts.stored.values())
        return graph

    def published(self) -> Iterator[tuple[str, str, int]]:
        for (name, date), day in self.base.table.by_day.items():
            if day.published:
                yield name, date, day.published.run.attempt

    def standing(self) -> list[Verdict]:
        """The verdicts that nobody has cleared who may: whoever gave them, or a person."""
        stored = list(self.base.verdicts.stored.values())

        def is_cleared(failed: Verdict) -> bool:
            return any(
                item.quality == "pass"
                and node_of(item) == node_of(failed)
                and item.giver in {"", failed.giver}
                and (item.at, item.id) > (failed.at, failed.id)
                for item in stored
            )

        return [item for item in stored if item.quality == "fail" and not is_cleared(item)]

    def teardown(self) -> None:
        if not self.base.table.by_day:
            return
        # A `pass` of a person would clear those of pipelines about the same period: no more than these.
        for verdict in self.standing():
            if not verdict.pipeline:
                self.give(node_of(verdict), "pass")
        for source, date, hour, name in product(SOURCES, DATES, HOURS, FILES):
            # Each file has more rows than before: people do not have to look at it.
            self.deliver(source, date, hour, name, 500)
        self.check_until_rest()
        present = {("pipeline", *key) for key in self.published()}
        # One about a version that was replaced stays, and concerns nobody.
        left = [item for item in self.standing() if item.of == "source" or node_of(item) in present]
        assert not left, "nothing clears them"
        for name, world in self.worlds.items():
            sent = [(document["date"], document["attempt_after"]) for document in world.documents("attempt_after")]
            assert len(sent) == len(set(sent)), "a message was sent twice"
            for date in DATES:
                day = self.base.table.day(name, date)
                assert not (day.hold and day.hold.rule == "invalid"), "a verdict stays behind"
                run = self.base.table.run(name, date, day.published.run.attempt)
                assert run.state is RunState.PUBLISHED

    def check_until_rest(self) -> None:
        for _ in range(24):
            before = self.state()
            for name in self.worlds:
                self.check(name, "published", Process())
            self.base.time += timedelta(hours=4)
            if self.state() == before:
                return
        raise AssertionError("the checks do not come to rest")

    def state(self) -> tuple[Any, ...]:
        days = [day.model_copy(update={"version": 0}) for day in self.base.table.by_day.values()]
        return days, [(dict(w.warehouse.days), len(w.topic.sent), len(w.ledger.rows)) for w in self.worlds.values()]


def inputs_of(name: str) -> tuple[str, ...]:
    _, of_sources, tables = READS[name]
    return (*of_sources, *(f"of_{table}" for table in tables))


def steps_of(inputs: Iterable[str], judged: Collection[str]) -> dict[str, StepUse]:
    rules = [{"rule": "row_count", "min": 1, "severity": "invalidate"}]
    checked = {"step": "data_quality", "with": {"rules": rules}}
    steps = {f"checked_{name}": StepUse.model_validate({**checked, "depends_on": [name]}) for name in judged}
    read = tuple(f"checked_{name}" if name in judged else name for name in inputs)
    return {**steps, "rows": StepUse(step="sql", depends_on=read)}


def giver_of(run: Run) -> str:
    return f"pipeline {run.pipeline} of {run.date}, attempt {run.attempt}"


def node_of(verdict: Verdict) -> Node:
    return verdict.of, verdict.name, verdict.period, verdict.version or 0


TestFivePipelines = FivePipelines.TestCase
TestFivePipelines.settings = model_settings(examples=24, steps=12)
