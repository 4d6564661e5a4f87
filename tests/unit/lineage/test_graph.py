"""The lineage of generated chains is that of a graph which networkx makes of the stored manifests."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import date, timedelta
from typing import Any

import msgspec
import networkx as nx
import pytest

from slackwater.arrow.reference import StepRecord
from slackwater.client.lineage import LineageReader
from slackwater.errors import InputError
from slackwater.lineage import downstream, upstream
from slackwater.lineage.graph import Lineage
from slackwater.pipeline.definition import StepUse
from slackwater.pipeline.table_inputs import TableInput
from slackwater.runs.attempt_files import loads_uri
from slackwater.runs.inputs.manifest import InputObject
from slackwater.runs.record import Loads
from slackwater.state.facts import HOUR
from slackwater.state.verdicts import Subject, new_verdict
from tests.fakes_check import NOW, PIPELINE, PUBLICATION, World
from tests.fakes_runs import DictRunTable, DictStore

pytestmark = pytest.mark.unit

READS: dict[str, tuple[tuple[str, ...], dict[str, tuple[int, int]]]] = {
    "a": (("flights", "weather"), {}),
    "b": (("weather",), {"a": (-1, 0)}),
    "c": ((), {"b": (0, 0), "a": (-2, -1)}),
    "d": ((), {"c": (-1, 0)}),
    "e": (("flights",), {"d": (-1, 0), "b": (0, 0)}),
}
"""Sources, and days of tables, of each pipeline."""
DATES = tuple((date(2013, 3, 6) + timedelta(days=number)).isoformat() for number in range(5))


class Chain(World):
    """Pipelines that read each other's days."""

    def __init__(self) -> None:
        super().__init__()
        daily = self.project.pipelines[PIPELINE]
        pipelines = {
            name: daily.model_copy(
                update={
                    "pipeline": name,
                    "timezone": "UTC",
                    "sources": sources,
                    "tables": {
                        f"of_{table}": TableInput(table=table, days=days, missing="empty")
                        for table, days in tables.items()
                    },
                    "steps": {"rows": StepUse(step="sql", depends_on=(*sources, *(f"of_{name}" for name in tables)))},
                    "publish": daily.publish.model_copy(update={"step": "rows"}),
                }
            )
            for name, (sources, tables) in READS.items()
        }
        self.project = self.project.model_copy(update={"pipelines": pipelines})

    def publish_day(self, pipeline: str, of: str, content: str) -> int:
        run = self.freeze(of, pipeline=pipeline, force=True)
        publication = PUBLICATION.model_copy(update={"table": f"w.d.{pipeline}", "content": content})
        self.store.put(f"{run.prefix}publication.json", publication.model_dump_json().encode())
        self.recorder.record_published(run)
        return run.attempt

    def publish_all(self, content: str = "p") -> None:
        for name in READS:
            for of in DATES:
                self.publish_day(name, of, content)

    def lineage(self, pipeline: str, of: str, version: int | None = None, **options: Any) -> Lineage:
        options = {"up": True, "down": True, "lists_objects": False, **options}
        reader = LineageReader(project=self.project, table=self.table, store=self.store, verdicts=self.verdicts)
        return reader.read(pipeline, of, version=version, **options)


@pytest.fixture
def chain() -> Chain:
    chain = Chain()
    for source in ("flights", "weather"):
        for of in DATES:
            chain.add(source, of, "12")
    return chain


def generated(seed: int) -> Chain:
    chance, chain = random.Random(seed), Chain()  # noqa: S311 - reproducible examples
    for number in range(60):
        for source in chance.sample(("flights", "weather"), chance.randrange(3)):
            chain.add(source, chance.choice(DATES), f"{chance.randrange(24):02}", name=f"n{number}", rows=number + 1)
        chain.publish_day(chance.choice(sorted(READS)), chance.choice(DATES), chance.choice("pq"))
    return chain


def graph_of(chain: Chain) -> nx.DiGraph:
    """Return all published versions and objects, with an edge to each that a version has read."""
    graph = nx.DiGraph()
    for (pipeline, of, version), record in chain.table.records.items():
        graph.add_node((pipeline, of, version))
        for item in json.loads(chain.store.get(record.run.manifest))["objects"]:
            read: tuple[Any, ...] = (item["uri"], item["rows"])
            if item["tag"]:
                table, _, day = item["file"].partition(" ")
                read = (table, day, int(item["tag"].rpartition("-")[2]))
            graph.add_edge((pipeline, of, version), read)
    return graph


@pytest.mark.parametrize("seed", range(6))
def test_up_is_what_the_stored_manifests_reach(seed):
    chain = generated(seed)
    graph = graph_of(chain)
    for key in chain.table.records:
        found = chain.lineage(*key, down=False, lists_objects=True)
        assert (found.down, found.is_complete) == ((), True)
        reached = {key, *nx.descendants(graph, key)}
        versions = [(each.pipeline, each.date, each.version) for each in found.up]
        assert versions[0] == key
        assert sorted(versions) == sorted(node for node in reached if len(node) == 3)
        for each in found.up:
            node = each.pipeline, each.date, each.version
            read = {(item.uri, item.rows) for source in each.sources for item in source.inputs}
            read |= {(day.pipeline, day.date, day.version) for day in each.days}
            assert read == set(graph.successors(node))
            newest = chain.table.by_day[each.pipeline, each.date].published.run.attempt
            assert each.is_newest == (each.version == newest)
            for source in each.sources:
                hours = Counter((item.date, item.hour) for item in source.inputs)
                assert {(hour.date, hour.hour): hour.objects for hour in source.hours} == hours
                assert sum(hour.rows for hour in source.hours) == source.rows == sum(i.rows for i in source.inputs)


@pytest.mark.parametrize("seed", range(6))
def test_down_is_which_published_versions_reach_it(seed):
    chain = generated(seed)
    graph = graph_of(chain)
    current = {key: day.published.run.attempt for key, day in chain.table.by_day.items()}
    # An edge from each published version to the days that it has read, whatever their version.
    read = nx.DiGraph()
    read.add_nodes_from(current)
    for key, version in current.items():
        read.add_edges_from((key, node[:2]) for node in graph.successors((*key, version)) if len(node) == 3)
    for key, newest in current.items():
        found = chain.lineage(*key, up=False)
        reached = {(each.pipeline, each.date) for each in found.down if each.read.version is not None}
        assert reached == nx.ancestors(read, key)
        for each in found.down:
            of_day = each.read.pipeline, each.read.date
            versions = [
                node[2] for node in graph.successors((each.pipeline, each.date, each.version)) if node[:2] == of_day
            ]
            assert (versions or [None]) == [each.read.version]
            assert each.read.newest == current[of_day]
            if each.read.version is not None:
                contents = {
                    chain.table.records[(*of_day, of)].publication.content
                    for of in (each.read.version, each.read.newest)
                }
                assert each.read.is_newest == (len(contents) == 1)
        for version in range(1, newest + 1):
            of_version = chain.lineage(*key, version=version, up=False).down
            direct = [each for each in of_version if (each.read.pipeline, each.read.date) == key]
            assert all(each.read.version == version for each in direct)


def test_each_direction_has_a_limit_and_says_so(chain, monkeypatch):
    chain.publish_all()
    assert chain.lineage("a", DATES[2]).is_complete
    monkeypatch.setattr(upstream, "MOST_VERSIONS", 3)
    cut = chain.lineage("e", DATES[-1], down=False)
    assert (len(cut.up), cut.is_complete) == (3, False)
    monkeypatch.setattr(downstream, "MOST_VERSIONS", 2)
    cut = chain.lineage("a", DATES[2], up=False)
    assert (len(cut.down), cut.is_complete) == (2, False)


class CountingTable(DictRunTable):
    """Counts reads."""

    reads = 0

    def day(self, *key):
        self.reads += 1
        return super().day(*key)

    def days(self, pipeline, first, last, **options):
        days = super().days(pipeline, first, last, **options)
        self.reads += 1 + len(days)
        return days

    def run(self, *key):
        self.reads += 1
        return super().run(*key)


class CountingStore(DictStore):
    """Counts reads, and refuses listings."""

    reads = 0

    def get(self, uri):
        self.reads += 1
        return super().get(uri)

    def list(self, *_, **__):
        raise AssertionError("lineage lists nothing")


def reads_of(chain: Chain) -> int:
    table, store = CountingTable(), CountingStore()
    vars(table).update(vars(chain.table))
    vars(store).update(vars(chain.store))
    LineageReader(project=chain.project, table=table, store=store, verdicts=chain.verdicts).read(
        "c", DATES[-1], version=None, up=True, down=True, lists_objects=True
    )
    return table.reads + store.reads


def test_older_data_and_older_runs_cost_no_request(chain):
    chain.publish_all()
    before = reads_of(chain)
    for number in range(1, 40):
        of = (date.fromisoformat(DATES[0]) - timedelta(days=number)).isoformat()
        chain.add("flights", of, "12")
        for name in ("a", "b", "c"):
            chain.publish_day(name, of, "p")
    # Days before the first one are read as well now, by windows that begin there.
    assert reads_of(chain) <= before + 20
    bound = reads_of(chain)
    for number in range(40, 60):
        chain.publish_day("a", (date.fromisoformat(DATES[0]) - timedelta(days=number)).isoformat(), "p")
    assert reads_of(chain) == bound


def test_a_verdict_marks_the_hour_and_all_that_has_read_it(chain):
    chain.publish_all()
    verdict = new_verdict(
        Subject("source", "weather"), f"{DATES[1]}T12", "fail", version=None, reason="Kelvin", principal="ana", at=NOW
    )
    chain.verdicts.put_verdicts([verdict])
    found = chain.lineage("c", DATES[2])
    marked = {(each.pipeline, each.date) for each in found.up if each.verdicts}
    assert {("c", DATES[2]), ("b", DATES[2]), ("a", DATES[1])} <= marked
    assert ("a", DATES[0]) not in marked
    [of_source] = [source for each in found.up for source in each.sources if source.verdicts and each.pipeline == "a"]
    assert (of_source.name, of_source.verdicts) == ("weather", (verdict,))
    assert {(each.pipeline, each.date) for each in found.down if each.verdicts} == {
        (name, of) for name in "de" for of in (DATES[2], DATES[3], DATES[4]) if (name, of) != ("d", DATES[4])
    }


def test_a_manifest_that_is_gone_is_said(chain):
    chain.publish_all()
    chain.store.delete([chain.table.records["b", DATES[2], 1].run.manifest])
    found = chain.lineage("c", DATES[2])
    [gone] = [each for each in found.up if not each.is_known]
    assert (gone.pipeline, gone.date, gone.days, gone.sources) == ("b", DATES[2], (), ())
    [reader] = [each for each in chain.lineage("a", DATES[2]).down if (each.pipeline, each.date) == ("b", DATES[2])]
    assert (reader.read.version, reader.read.is_newest) == (None, False)


def test_tables_of_other_systems_and_written_files_are_shown(chain):
    chain.publish_all()
    run = chain.table.records["a", DATES[0], 1].run
    table = InputObject(
        uri="s3://lake/t", source="rates", date=DATES[0], hour="", etag="7", bytes=1, rows=5, arrived=NOW - HOUR,
        file="lake.rates", tag="7",
    )  # fmt: skip
    manifest = json.loads(chain.store.get(run.manifest))
    manifest["objects"].append(msgspec.to_builtins(table))
    chain.store.put(run.manifest, json.dumps(manifest).encode())
    effects: list[tuple[str, str, dict[str, Any]]] = [
        ("out", "write_csv", {"path": "x.csv", "rows": 3}),
        ("both", "write_csv", {"path.p": "p.csv", "rows.p": 1, "path.q": "q.csv", "rows.q": 2}),
        ("dwh", "write_table", {"table": "s.t", "rows_deleted": 0, "rows_inserted": 3}),
    ]
    steps = [
        StepRecord(name=name, step=step, parameters={}, rows_in={"x": 3}, rows_out=3, effect=effect, seconds=1.0)
        for name, step, effect in effects
    ]
    chain.store.put(loads_uri(run.prefix), Loads(steps=tuple(steps)).model_dump_json().encode())
    [version] = chain.lineage("a", DATES[0], down=False).up
    [read] = version.tables
    assert (read.name, read.table, read.snapshot, read.rows) == ("rates", "lake.rates", "7", 5)
    assert [(each.name, each.target, each.rows) for each in version.loads] == [
        ("out", "x.csv", 3), ("both", "p.csv", 1), ("both", "q.csv", 2), ("dwh", "s.t", 3),
    ]  # fmt: skip


def test_a_version_that_was_not_published_is_refused(chain):
    with pytest.raises(InputError, match=r"date: a has published nothing for 2013-03-06 \(slackwater run a --date"):
        chain.lineage("a", DATES[0])
    chain.publish_day("a", DATES[0], "p")
    chain.fail(chain.freeze(DATES[0], pipeline="a", force=True))
    with pytest.raises(InputError, match=r"version: a has no published version 2 of 2013-03-06 \(published: 1\)"):
        chain.lineage("a", DATES[0], 2)
