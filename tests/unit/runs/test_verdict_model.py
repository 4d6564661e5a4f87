"""Verdicts travel through a chain of five pipelines over three sources, as a closure over what was read says."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from slackwater.pipeline.definition import StepUse
from slackwater.pipeline.table_inputs import TableInput
from slackwater.pipeline.when import When
from slackwater.runs.period import day_of
from slackwater.runs.waits.days import ProjectDays
from slackwater.runs.waits.verdicts import VerdictReader
from slackwater.state.verdicts import Subject, new_verdict
from slackwater.state.waits import DayKey
from tests.fakes_check import PIPELINE, PUBLICATION, World
from tests.models import model_settings

pytestmark = pytest.mark.unit

Node = tuple[str, str, str, int]
"""`source`, source, hour, 0; or `pipeline`, pipeline, day, version."""
NEW_YORK = "America/New_York"
READS: dict[str, tuple[str, tuple[str, ...], dict[str, tuple[int, int]]]] = {
    "a": (NEW_YORK, ("flights", "weather"), {}),
    "b": ("UTC", ("third",), {"a": (-1, 0)}),
    "c": (NEW_YORK, (), {"b": (0, 0), "a": (-2, 0)}),
    "d": (NEW_YORK, (), {"c": (0, 0)}),
    "e": ("UTC", ("flights",), {"d": (-1, 0)}),
}
"""Timezone, sources, and days of tables of each pipeline."""
DATES = ("2013-03-08", "2013-03-09", "2013-03-10")
HOURS = ("2013-03-08T03", "2013-03-08T12", "2013-03-09T03", "2013-03-09T12", "2013-03-10T23")
NOW = datetime(2013, 3, 11, 6, tzinfo=UTC)

names, dates, hours = st.sampled_from(sorted(READS)), st.sampled_from(DATES), st.sampled_from(HOURS)
sources = st.sampled_from(("flights", "weather", "third"))
qualities = st.sampled_from(("fail", "fail", "pass"))


class Travel(RuleBasedStateMachine):
    """The model knows what each version has read when it was published, and who says that each node has failed."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.time = NOW
        weather, daily = self.world.project.sources["weather"], self.world.project.pipelines[PIPELINE]
        pipelines = {
            name: daily.model_copy(
                update={
                    "pipeline": name,
                    "timezone": timezone,
                    "sources": of_sources,
                    "tables": {
                        f"of_{table}": TableInput(table=table, days=days, missing="empty")
                        for table, days in tables.items()
                    },
                    "steps": {
                        "rows": StepUse(step="sql", depends_on=(*of_sources, *(f"of_{table}" for table in tables)))
                    },
                    "publish": daily.publish.model_copy(update={"step": "rows"}),
                    "when": When.model_validate({"quality": {f"of_{table}": "pass" for table in tables}}),
                }
            )
            for name, (timezone, of_sources, tables) in READS.items()
        }
        self.world.project = self.world.project.model_copy(
            update={
                "sources": {**self.world.project.sources, "third": weather.model_copy(update={"source": "third"})},
                "pipelines": pipelines,
            }
        )
        self.objects: set[tuple[str, str]] = set()
        self.current: dict[tuple[str, str], int] = {}
        self.content: dict[Node, str] = {}
        self.manifests: dict[Node, str] = {}
        self.read: dict[str, set[Node]] = {}
        """By manifest. Rows identify what was read: a later run that reads the same names the newest versions in it."""
        self.failed: dict[Node, set[str]] = {}
        """By whom: a pipeline and its day, or `""` for people."""
        self.given = 0

    # What happens.

    @rule(source=sources, hour=hours, name=st.sampled_from("xyz"))
    def deliver(self, source: str, hour: str, name: str) -> None:
        """Events come, also late ones."""
        self.world.add(source, hour[:10], hour[11:], name=name)
        self.objects.add((source, hour))

    @rule(name=names, of=dates, content=st.sampled_from("pq"))
    def publish(self, name: str, of: str, content: str) -> None:
        """A run, a re-run or a back-fill publishes a version, sometimes with the rows of an earlier one."""
        read = self.present(name, of)
        before = self.waited_for()
        self.world.time += timedelta(seconds=1)
        run = self.world.freeze(of, pipeline=name, force=True)
        publication = PUBLICATION.model_copy(update={"table": name, "content": content})
        self.world.store.put(f"{run.prefix}publication.json", publication.model_dump_json().encode())
        self.world.recorder.end_published(run)
        version: Node = ("pipeline", name, of, run.attempt)
        self.current[name, of], self.content[version] = run.attempt, content
        self.manifests[version], self.read[run.manifest] = run.manifest, read
        for node in read:
            self.failed.get(node, set()).discard(f"{name} {of}")
        days = ProjectDays(project=self.world.project, now=self.world.now)
        self.check_woken(before, set(days.of_day(name, of)))

    @rule(name=names, of=dates, number=st.integers(0, 3))
    def refuse(self, name: str, of: str, number: int) -> None:
        """A rule of severity `invalidate` fails, about one of the inputs. The outcome is recorded twice."""
        _, of_sources, tables = READS[name]
        inputs = [*of_sources, *(f"of_{table}" for table in tables)]
        refused = inputs[number % len(inputs)]
        read = self.present(name, of)
        self.world.time += timedelta(seconds=1)
        run = self.world.freeze(of, pipeline=name, force=True)
        self.world.refuse(run, refused)
        self.read[run.manifest] = read
        before = self.waited_for()
        for _ in range(2):
            self.world.recorder.end_failed(run, error="E", cause="", retried=False)
        self.check_woken(before, set())
        for node in read:
            if node[1] == refused.removeprefix("of_"):
                self.failed.setdefault(node, set()).add(f"{name} {of}")

    @rule(name=st.sampled_from("abcde"), start=dates)
    def back_fill(self, name: str, start: str) -> None:
        """All days from one on are published again, in this pipeline and all after it."""
        for each in sorted(READS):
            for of in DATES:
                if each >= name and of >= start:
                    self.publish(each, of, "q")

    @rule(source=sources, hour=hours, quality=qualities)
    def judge_an_hour(self, source: str, hour: str, quality: Any) -> None:
        self.give(("source", source, hour, 0), quality)

    @rule(name=names, of=dates, quality=qualities)
    def judge_a_day(self, name: str, of: str, quality: Any) -> None:
        if (name, of) in self.current:
            self.give(("pipeline", name, of, self.current[name, of]), quality)

    @rule(name=names, of=dates, is_same=st.booleans())
    def judge_a_day_and_run_it_again(self, name: str, of: str, is_same: bool) -> None:
        """The new version, which nobody has judged, has the same rows or others. Versions that have read it stay."""
        self.judge_a_day(name, of, "fail")
        if version := self.current.get((name, of)):
            content = self.content["pipeline", name, of, version]
            self.publish(name, of, content if is_same else f"{content}!")

    def give(self, node: Node, quality: Any) -> None:
        before = self.waited_for()
        kind, name, period, version = node
        self.given += 1
        self.world.time += timedelta(seconds=1)
        subject = Subject("source" if kind == "source" else "pipeline", name)
        verdict = new_verdict(
            subject, period, quality, version=version or None, reason="r", principal="ana",
            at=self.world.time + timedelta(seconds=self.given),
        )  # fmt: skip
        self.world.verdicts.put_verdicts([verdict, verdict])
        self.failed[node] = {*self.failed.get(node, ()), ""} if quality == "fail" else set()
        self.world.woken.append((subject, [period], verdict.at))
        self.check_woken(before, set())

    def check_woken(self, before: dict[DayKey, set[str]], woken: set[DayKey]) -> None:
        """The runs that verdicts concern are among those that these wake, or that the version has woken."""
        days = ProjectDays(project=self.world.project, now=self.world.now)
        for subject, periods, _ in self.world.woken:
            woken |= set(days.of_verdict(subject, periods))
        self.world.woken.clear()
        assert {key for key, found in self.waited_for().items() if found != before[key]} <= woken

    # What must be.

    @invariant()
    def what_has_failed_is_the_closure(self) -> None:
        reader = self.reader()
        for (name, of), version in self.current.items():
            found = {(item.of, item.name, item.period, item.version or 0) for item in reader.of_published(name, of)}
            assert found == self.closure(("pipeline", name, of, version)), (name, of)

    def closure(self, version: Node) -> set[Node]:
        reached, found = [version], set[Node]()
        for node in reached:
            if self.failed.get(node):
                found.add(node)
            for read in self.read[self.manifests[node]] if node in self.manifests else ():
                kind, name, period, attempt = read
                if kind == "pipeline":
                    # The same rows as those of the present version: no run would read anything else.
                    present: Node = (kind, name, period, self.current[name, period])
                    read = present if self.content[present] == self.content[kind, name, period, attempt] else read  # noqa: PLW2901
                if read not in reached:
                    reached.append(read)
        return found

    def present(self, name: str, of: str) -> set[Node]:
        """What a run of the day would read now."""
        timezone, of_sources, tables = READS[name]
        read: set[Node] = {
            ("source", source, hour, 0)
            for source, hour in self.objects
            if source in of_sources and local_date(hour, timezone) == of
        }
        for table, (first, last) in tables.items():
            days = [(date.fromisoformat(of) + timedelta(days=each)).isoformat() for each in range(first, last + 1)]
            read |= {("pipeline", table, day, self.current[table, day]) for day in days if (table, day) in self.current}
        return read

    def waited_for(self) -> dict[DayKey, set[str]]:
        reader, found = self.reader(), dict[DayKey, set[str]]()
        for name, pipeline in self.world.project.pipelines.items():
            for of in DATES:
                day = day_of(date.fromisoformat(of), pipeline.timezone)
                of_inputs = (
                    reader.of_input(pipeline, each, day, pipelines=self.world.project.pipelines)
                    for each in pipeline.when.quality
                )
                failed = [item for found_in in of_inputs for item in found_in]
                found[DayKey(name, of)] = {item.id for item in failed}
        return {key: ids for key, ids in found.items() if key.date >= "2013-03-09"}  # those that may still wait

    def reader(self) -> VerdictReader:
        world = self.world
        return VerdictReader(table=world.table, store=world.store, verdicts=world.verdicts)


def local_date(hour: str, timezone: str) -> str:
    return datetime.fromisoformat(f"{hour}:00:00+00:00").astimezone(ZoneInfo(timezone)).date().isoformat()


TestTravel = Travel.TestCase
TestTravel.settings = model_settings(examples=60, steps=20)
