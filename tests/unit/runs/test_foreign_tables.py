"""Runs that read an Iceberg table of another system: which snapshot, and what a change of the table does."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from slackwater.errors import AccessDenied, InputError, ObjectInvalid, ObjectMissing, SlackwaterError
from slackwater.late.decision import DecisionRule, LateDecision
from slackwater.late.report.sections import describe_inputs
from slackwater.pipeline.definition import Pipeline
from slackwater.pipeline.graph import pipeline_order
from slackwater.runs.inputs import foreign_tables
from slackwater.runs.inputs.difference import Amount, difference
from slackwater.runs.inputs.foreign_tables import TableMetadata
from slackwater.runs.inputs.manifest import InputManifest, read_manifest
from slackwater.runs.period import day_of, parse_date
from tests.fakes_check import PIPELINE, World

pytestmark = pytest.mark.unit

DAY, AS_OF = "2013-03-10", "2013-03-12"
COMMITTED = datetime(2013, 3, 1, 12, 30, tzinfo=UTC)
LARGE_ID = 2**63 - 1
RATES = {"iceberg": "finance.rates", "location": "s3://lake/finance"}


def pipeline(**late: object) -> Pipeline:
    definition = {
        "pipeline": PIPELINE,
        "timezone": "America/New_York",
        "tables": {"rates": RATES},
        "steps": {"end": {"step": "sql", "depends_on": ["rates"], "with": {"query": "SELECT 1"}}},
        "publish": {"step": "end", "key": ["date"]},
        "late": late,
    }
    return Pipeline.model_validate(definition)


@dataclass(frozen=True)
class Commit:
    """A snapshot of the table, as its metadata describes it."""

    id: int
    parent: int | None = None
    operation: str = "append"
    rows: int = 10
    deletes: int = 0

    def snapshot(self) -> dict[str, object]:
        totals = {"total-records": str(self.rows), "total-files-size": str(100 * self.rows)}
        totals |= {"total-position-deletes": str(self.deletes)} if self.deletes else {}
        committed = COMMITTED + timedelta(minutes=self.id % 1000)
        return {
            "snapshot-id": self.id,
            **({"parent-snapshot-id": self.parent} if self.parent else {}),
            "sequence-number": 1,
            "timestamp-ms": round(committed.timestamp() * 1000),
            "summary": {"operation": self.operation, **totals},
            "manifest-list": "s3://lake/finance/metadata/m.avro",
        }


def metadata(*commits: Commit, current: int | None) -> bytes:
    content = {"format-version": 2, "location": "s3://lake/finance", "snapshots": [one.snapshot() for one in commits]}
    return json.dumps({**content, "current-snapshot-id": current}).encode()


class Lake(World):
    """A pipeline whose only input is the table `finance.rates`."""

    def __init__(self, *commits: Commit, **late: object) -> None:
        super().__init__()
        self.project = self.project.model_copy(update={"pipelines": {PIPELINE: pipeline(**late)}})
        if commits:
            self.commit(*commits)

    def commit(self, *commits: Commit, current: int | None = None) -> None:
        """Replace the table's metadata: the last commit is the current snapshot, unless `current` names another."""
        self.store_metadata(metadata(*commits, current=current or commits[-1].id))

    def store_metadata(self, body: bytes, uri: str = "s3://lake/finance/metadata/{}.json") -> None:
        self.catalog.tables["finance.rates"] = uri.format(len(self.store.objects))
        self.store.put(self.catalog.tables["finance.rates"].replace("s3a://", "s3://"), body)

    def frozen(self) -> InputManifest:
        return read_manifest(self.store, self.freeze(DAY).manifest)

    def rule(self) -> DecisionRule:
        return self.rules(AS_OF)[DAY]


def test_a_run_freezes_the_current_snapshot_with_its_totals():
    world = Lake(Commit(1), Commit(LARGE_ID, 1, rows=12))
    (item,) = world.frozen().objects
    assert (item.uri, item.source, item.etag, item.tag, item.file) == (
        "warehouse.finance.rates",
        "rates",
        str(LARGE_ID),
        str(LARGE_ID),
        "finance.rates",
    )
    assert (item.rows, item.bytes, item.arrived) == (12, 1200, COMMITTED + timedelta(minutes=LARGE_ID % 1000))


R = "replace"


@pytest.mark.parametrize(
    ("commits", "current", "chosen"),
    [
        ([Commit(1)], 1, 1),
        ([Commit(1), Commit(2, 1, R)], 2, 1),
        ([Commit(1), Commit(2, 1, R), Commit(3, 2, R)], 3, 1),
        ([Commit(1), Commit(2, 1, R), Commit(3, 2, "delete"), Commit(4, 3, R)], 4, 3),
        # A rollback, and a snapshot of another branch, which is newer.
        ([Commit(1), Commit(2, 1), Commit(3, 2)], 1, 1),
        ([Commit(1), Commit(2, 1, R), Commit(3, 1)], 2, 1),
        # All ancestors that are left only replaced files; the older ones are expired.
        ([Commit(2, 1, R), Commit(3, 2, R)], 3, 3),
        ([Commit(3, None, R)], 3, 3),
        # A table without rows of any commit, as Iceberg 1 and 0.x write it.
        ([], None, None),
        ([], -1, None),
    ],
)
def test_the_newest_snapshot_that_changed_rows_is_the_content_and_the_current_one_is_read(commits, current, chosen):
    rows = TableMetadata.model_validate_json(metadata(*commits, current=current)).current_rows()
    expected = (chosen, current) if chosen else None
    assert (rows and (rows.content.snapshot_id, rows.current.snapshot_id)) == expected


def test_the_maintenance_of_another_deployment_changes_no_rows():
    """pyiceberg cannot commit the operation `replace`: the name says what an `overwrite` was."""
    summaries = [{"operation": "append"}, {"operation": "overwrite", "slackwater.maintenance": "rewrite"}]
    snapshots = [
        {"snapshot-id": number, "parent-snapshot-id": number - 1, "timestamp-ms": 0, "summary": summary}
        for number, summary in enumerate(summaries, 1)
    ]
    document = json.dumps({"current-snapshot-id": 2, "snapshots": snapshots})
    rows = TableMetadata.model_validate_json(document).current_rows()
    assert (rows.content.snapshot_id, rows.current.snapshot_id) == (1, 2)


def test_a_summary_is_not_required_and_its_totals_neither():
    snapshots = [{"snapshot-id": 1, "timestamp-ms": 0}]
    world = Lake()
    world.store_metadata(json.dumps({"current-snapshot-id": 1, "snapshots": snapshots}).encode())
    (item,) = world.frozen().objects
    assert (item.etag, item.rows, item.bytes) == ("1", 0, 0)


def test_a_new_snapshot_is_a_changed_file_of_the_input():
    world = Lake(Commit(1))
    before = world.frozen()
    world.commit(Commit(1), Commit(2, 1, rows=15))
    (found,) = difference(
        before, world.inputs.manifest(PIPELINE, day_of(parse_date(DAY), "America/New_York")), sources=["rates"]
    )
    (change,) = found.changes
    assert (change.file, change.change, change.before, change.now) == (
        "finance.rates",
        "changed",
        Amount(objects=1, rows=10, bytes=1000),
        Amount(objects=1, rows=15, bytes=1500),
    )
    assert list(describe_inputs(found, datetime(2013, 3, 1, tzinfo=UTC))) == [
        "rates: 15 rows, 10 before",
        "  finance.rates (changed)",
        "    15 rows (10 before), 1.5 kB, of the whole table",
        "    committed 2013-03-01 12:32 UTC",
    ]


@pytest.mark.parametrize(
    ("commits", "late", "rule"),
    [
        ([Commit(1), Commit(2, 1, R)], {}, DecisionRule.UNCHANGED),
        ([Commit(1), Commit(2, 1, rows=11)], {}, DecisionRule.GROWN),
        ([Commit(1), Commit(2, 1, "overwrite")], {}, DecisionRule.GROWN),
        ([Commit(1), Commit(2, 1, rows=11)], {"rates": {"rows": 10**15}}, DecisionRule.BELOW),
        ([Commit(1), Commit(2, 1, rows=11)], {"rates": {"percent": 110}}, DecisionRule.GROWN),
        ([Commit(1), Commit(2, 1, rows=11)], {"rates": {"percent": 111}}, DecisionRule.BELOW),
        # Fewer rows hold a day, whatever the thresholds are.
        ([Commit(1), Commit(2, 1, "delete", rows=9)], {"rates": {"rows": 10**15}}, DecisionRule.SHRANK),
        ([Commit(1), Commit(2, 1, "delete", deletes=1)], {"rates": {"rows": 10**15}}, DecisionRule.SHRANK),
        # Merge on read: of 14 rows in the files 4 are deleted, a compaction drops these, and a row is added.
        ([Commit(1, rows=14, deletes=4), Commit(2, 1, R), Commit(3, 2, rows=11)], {}, DecisionRule.GROWN),
        ([Commit(1), Commit(2, 1, "overwrite", rows=15, deletes=16)], {}, DecisionRule.SHRANK),
    ],
)
def test_what_a_change_of_the_table_does_to_a_finished_day(commits, late, rule):
    world = Lake(commits[0], thresholds=late)
    world.publish(DAY)
    world.commit(*commits)
    assert world.rule() is rule


@pytest.mark.parametrize(
    ("read", "now", "is_same"),
    [
        ([Commit(1)], [Commit(1), Commit(2, 1, R, rows=8)], True),
        # Snapshot 1 is expired, and its child names it.
        ([Commit(1)], [Commit(2, 1, R, rows=8)], True),
        ([Commit(1)], [Commit(2, 1, R), Commit(3, 2, R)], True),
        # The child as well: the snapshots that are left do not show what they have replaced.
        ([Commit(1)], [Commit(3, 2, R)], False),
        # The run has read snapshot 2, which has the rows of 1.
        ([Commit(1), Commit(2, 1, R)], [Commit(2, 1, R), Commit(3, 2, R)], True),
        ([Commit(1), Commit(2, 1, R)], [Commit(3, 2, R), Commit(4, 3, R)], True),
        ([Commit(1), Commit(2, 1, R)], [Commit(4, 3, R)], False),
        # A rollback of the compaction that the run has read, then another one.
        ([Commit(1), Commit(2, 1, R)], [Commit(3, 1, R)], True),
        # No snapshot that changed rows was left for the run either.
        ([Commit(2, 1, R)], [Commit(3, 2, R)], True),
        ([Commit(2, 1, R)], [Commit(3, 2, R), Commit(4, 3, R)], True),
        ([Commit(3, None, R)], [Commit(4, None, R)], False),
        # Rows have changed since, or in between.
        ([Commit(1)], [Commit(2, 1)], False),
        ([Commit(1)], [Commit(2, 1), Commit(3, 2, R)], False),
        ([Commit(1), Commit(2, 1, R)], [Commit(2, 1, R), Commit(3, 2, "delete")], False),
        ([Commit(1)], [Commit(3, 2, R), Commit(4, 3)], False),
    ],
)
def test_compactions_and_expired_snapshots_are_no_other_input(read, now, is_same):
    world = Lake(*read)
    run = world.publish(DAY)
    before = read_manifest(world.store, run.manifest)
    world.commit(*now)
    manifest = world.inputs.manifest(PIPELINE, day_of(parse_date(DAY), "America/New_York"), known=before)
    (item,) = manifest.objects
    assert item.tag == str(now[-1].id)
    assert (item.identity == before.objects[0].identity) == is_same
    # The check and the freeze decide alike.
    assert (world.rule() is DecisionRule.UNCHANGED) == is_same
    assert (world.freeze(DAY).attempt == 1) == is_same


def test_a_day_that_ran_again_after_its_snapshot_expired_is_not_run_after_the_next_compaction():
    world = Lake(Commit(1))
    world.publish(DAY)
    for number, expected in ((3, DecisionRule.GROWN), (4, DecisionRule.UNCHANGED), (5, DecisionRule.UNCHANGED)):
        world.commit(*(Commit(one, one - 1, R) for one in range(3, number + 1)))
        assert world.rule() is expected
        world.publish(DAY)
    assert world.table.day(PIPELINE, DAY).published.run.attempt == 2


def test_a_forced_run_of_the_same_rows_reads_the_snapshot_that_is_current_then():
    world = Lake(Commit(1))
    first = world.publish(DAY)
    world.commit(Commit(2, 1, R))
    again = world.freeze(DAY, force=True)
    assert (again.attempt, again.run_id, again.manifest) == (2, first.run_id, first.manifest)
    (item,) = read_manifest(world.store, again.manifest).objects
    assert (item.etag, item.tag) == ("1", "2")


def test_a_table_with_another_name_in_the_definition_is_read_under_that_name():
    world = Lake(Commit(1))
    world.publish(DAY)
    definition = pipeline().model_dump(by_alias=True) | {"tables": {"prices": RATES}}
    definition["steps"]["end"]["depends_on"] = ["prices"]
    pipelines = {"daily": pipeline(), PIPELINE: Pipeline.model_validate(definition)}
    world.project = world.project.model_copy(update={"pipelines": pipelines})
    assert [item.source for item in world.frozen().objects] == ["prices"]


def test_a_rollback_is_a_change_and_the_return_to_the_snapshot_none():
    commits = [Commit(1), Commit(2, 1)]
    world = Lake(*commits)
    world.publish(DAY)
    world.commit(*commits, current=1)
    assert world.rule() is DecisionRule.GROWN
    world.commit(*commits)
    assert world.rule() is DecisionRule.UNCHANGED


def test_a_check_reads_the_metadata_once():
    world = Lake(Commit(1))
    for date in ("2013-03-08", "2013-03-09", DAY):
        world.publish(date)
    world.foreign = foreign_tables.ForeignTables(world.catalog, world.store)
    reads, read = [], world.store.get_range
    world.store.get_range = lambda uri, *part: reads.append(uri) or read(uri, *part)
    assert list(world.rules(AS_OF).values()).count(DecisionRule.UNCHANGED) == 3
    assert reads == [world.catalog.tables["finance.rates"]]


def test_metadata_may_be_compressed_and_have_one_of_hadoops_uris():
    world = Lake()
    world.store_metadata(gzip.compress(metadata(Commit(7), current=7)), "s3a://lake/finance/metadata/{}.gz.json")
    assert world.frozen().objects[0].etag == "7"


@pytest.mark.parametrize(
    ("body", "uri", "error", "message"),
    [
        (metadata(current=None), "s3://lake/finance/m", InputError, "finance.rates has no snapshot yet: write to it"),
        (b"{}", "s3://lake/rates/m", InputError, "location: the metadata of finance.rates is s3://lake/rates/m, which"),
        (b"{}", "s3://lake/finance_2/m", InputError, "which is not below s3://lake/finance/"),
        (b" " * 1001, "s3://lake/finance/m", InputError, "s3://lake/finance/m is larger than .*: expire old snapshots"),
        (gzip.compress(b" " * 10**6, mtime=0), "s3://lake/finance/m", InputError, "is larger than .*: expire old"),
        (b"<html>", "s3://lake/finance/m", ObjectInvalid, "s3://lake/finance/m is not the metadata of an Iceberg"),
        (
            metadata(Commit(1, rows=-1), current=1),
            "s3://lake/finance/m",
            ObjectInvalid,
            r"snapshots\.0\.summary\.total",
        ),
        (b"\x1f\x8bno", "s3://lake/finance/m", ObjectInvalid, "is not the metadata of an Iceberg table: Error"),
    ],
    ids=["empty", "elsewhere", "beside", "large", "unpacks to much", "no JSON", "wrong total", "no gzip"],
)
def test_metadata_that_cannot_be_used_is_an_error_with_a_remedy(monkeypatch, body, uri, error, message):
    monkeypatch.setattr(foreign_tables, "MAX_METADATA", 1000)
    world = Lake()
    world.store_metadata(body, uri)
    with pytest.raises(error, match=rf"^tables\.rates: .*{message}"):
        world.frozen()


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (AccessDenied("no"), r"finance\.rates may not be read: no: run slackwater deploy after .* if Lake Formation"),
        (InputError("the Glue catalog has no table finance.rates"), "the Glue catalog has no table"),
        (ObjectMissing("gone"), "gone"),
    ],
)
def test_a_table_that_cannot_be_read_is_named(raised, message):
    world = Lake()
    world.catalog.tables["finance.rates"] = raised
    with pytest.raises(type(raised), match=rf"^tables\.rates: {message}"):
        world.frozen()


def test_a_check_fails_if_the_table_cannot_be_read():
    """The table concerns all days: the check is repeated and then fires its alarm, and no day is on hold for itself."""
    world = Lake(Commit(1))
    world.publish(DAY)
    world.catalog.tables["finance.rates"] = AccessDenied("no")
    with pytest.raises(SlackwaterError, match=r"^tables\.rates: finance\.rates may not be read"):
        world.rules(AS_OF)


def test_a_table_that_the_definition_no_longer_names_is_no_lost_input():
    world = Lake(Commit(1))
    world.publish(DAY)
    definition = pipeline().model_dump(by_alias=True) | {"tables": {"rates": {"table": "daily", "missing": "empty"}}}
    pipelines = {"daily": pipeline(), PIPELINE: Pipeline.model_validate(definition)}
    world.project = world.project.model_copy(update={"pipelines": pipelines})
    (decision,) = [item for item in world.check(AS_OF).days if item.date == DAY]
    assert decision.decision is not LateDecision.HOLD
    assert world.freeze(DAY).attempt == 2


def test_a_table_of_another_system_has_no_part_in_the_order_of_pipelines():
    named_like_a_pipeline = {"iceberg": "finance.b", "location": "s3://lake/b"}
    pipelines = {name: pipeline().model_copy(update={"pipeline": name}) for name in ("b", "a")}
    definition = pipelines["a"].model_dump(by_alias=True) | {"tables": {"rates": named_like_a_pipeline}}
    pipelines["a"] = Pipeline.model_validate(definition)
    assert pipeline_order(pipelines) == ("a", "b")
