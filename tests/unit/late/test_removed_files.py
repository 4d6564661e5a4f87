"""What the partner's removal of a file means for the days that have read it: keep, hold or drop."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from slackwater.client.holds import HoldDecisions
from slackwater.errors import DayChanged, DefinitionError, InputError
from slackwater.late.amounts import late_amount, reached_thresholds
from slackwater.late.check.read_facts import late_waits
from slackwater.late.decision import DecisionRule
from slackwater.pipeline.definition import Late, Pipeline
from slackwater.problems import Problems
from slackwater.receiver.pull.file_cache import Content, ContentVersion, FileEntry
from slackwater.runs.inputs.consistent_listing import consistent_listing
from slackwater.runs.inputs.difference import Amount, Change, InputChange, SourceDifference
from slackwater.runs.inputs.manifest import published_manifest
from slackwater.sources.late_thresholds import LateThresholds
from slackwater.sources.partitions import Partition
from tests.fakes_check import NOW, PIPELINE, five_days
from tests.fakes_receiver import committed_uris

pytestmark = pytest.mark.unit

DAY, FILE = "2013-03-10", "flights-2013-03-10.csv"


class PulledDay:
    """Five published days. The third has also read a pulled file with 100 rows, next to 2,000 others."""

    def __init__(self, on_removed: str, *, shared: bool = False) -> None:
        self.world = world = five_days()
        source = world.project.sources["flights"]
        pull = source.pull.model_copy(update={"on_removed": on_removed})
        world.project.sources["flights"] = source.model_copy(update={"pull": pull})
        version = ContentVersion(definition="d" * 12, partitions=(Partition(DAY, "18"),), rows=100)
        content = Content(
            source="flights", id="c" * 32, received_at=NOW, files=2 if shared else 1, paths=(FILE,),
            current=version,
        )  # fmt: skip
        world.files.save(content)
        (self.uri,) = committed_uris(content)
        world.store.put(self.uri, b"x" * 100, metadata={"rows": "100", "file": FILE})
        world.publish(DAY)
        world.time += timedelta(hours=1)  # the cool-down

    def remove(self, number: int = 1) -> None:
        (content,) = self.world.files.contents("flights", ["c" * 32])
        self.world.files.save(content.with_removed(number))

    def decision(self):
        return next(day for day in self.world.check().days if day.date == DAY)

    def decisions(self) -> HoldDecisions:
        self.world.executions.running.clear()
        return self.world.hold_decisions()


def test_dropped_rows_below_every_threshold_run_again_when_they_have_waited_long_enough():
    day = PulledDay("drop", shared=True)
    definition = day.world.project.pipelines[PIPELINE]
    late = Late(window_days=7, max_age_hours=24, thresholds={"flights": LateThresholds(rows=1000)})
    day.world.project.pipelines[PIPELINE] = definition.model_copy(update={"late": late})
    day.remove(2)
    # No pull has recorded when: the wait is not known.
    assert day.decision().figures.oldest_wait_hours is None
    for path, hours in ((FILE, 9), ("copy.csv", 0)):
        since = NOW - timedelta(hours=hours)
        entry = FileEntry(source="flights", path=path, content="c" * 32, removed_since=since)
        day.world.files.save(entry)
    (content,) = day.world.files.contents("flights", ["c" * 32])
    day.world.files.save(content.model_copy(update={"paths": (FILE, "copy.csv")}))
    for hours, rule in ((23, DecisionRule.BELOW), (24, DecisionRule.AGED)):
        # The content counts until its last file is removed.
        day.world.time = NOW + timedelta(hours=hours)
        decision = day.decision()
        assert (decision.rule, decision.figures.oldest_wait_hours) == (rule, hours)
    assert day.world.publish(DAY).rows == 2000


def test_dropped_rows_of_a_former_content_wait_since_the_removal_of_the_file():
    day = PulledDay("drop")
    (former,) = day.world.files.contents("flights", ["c" * 32])
    day.world.files.save(former.model_copy(update={"files": 0, "paths": ()}))
    published = published_manifest(day.world.store, day.world.table.day(PIPELINE, DAY).published)
    current = structs.replace(published, objects=(), left_out={day.uri: "drop"})
    removed = FileEntry(source="flights", path=FILE, content="e" * 32, removed_since=NOW - timedelta(hours=5))
    day.world.files.save(removed)
    definition = day.world.project.pipelines[PIPELINE]
    assert late_waits(published, current, definition, files=day.world.files, now=NOW) == {"flights": 5}


@pytest.mark.parametrize(("rows", "rule"), [(0, DecisionRule.VANISHED), (40, DecisionRule.SHRANK)])
def test_a_hold_names_the_definition_that_rejects_rows_of_a_file(rows, rule):
    day = PulledDay("keep")
    world = day.world
    world.files.save(FileEntry(source="flights", path=FILE, content="c" * 32))
    (content,) = world.files.contents("flights", ["c" * 32])
    partitions = (Partition(DAY, "18"),) if rows else ()
    version = ContentVersion(definition="e" * 12, partitions=partitions, rows=rows, rejected=100 - rows)
    world.files.save(content.model_copy(update={"current": version}))
    if rows:
        (uri,) = committed_uris(content.model_copy(update={"current": version}))
        world.store.put(uri, b"x" * rows, metadata={"rows": str(rows), "file": FILE})
    decision = day.decision()
    rejected = (
        f"the definition of flights has changed and now rejects {100 - rows} rows of {FILE} "
        "(slackwater sideline show flights)"
    )
    assert (decision.rule, decision.reasons[-2]) == (rule, rejected)
    assert rejected in world.table.day(PIPELINE, DAY).hold.reason
    with pytest.raises(InputError, match=r"18:00 UTC: the definition of flights has changed and now rejects"):
        world.freeze(DAY)


def test_a_pipeline_replaces_what_its_source_says():
    day = PulledDay("drop")
    world, definition = day.world, day.world.project.pipelines[PIPELINE]
    assert world.project.records_removed("flights")
    assert not world.project.records_removed("weather")
    late = Late(window_days=7, on_removed={"flights": "keep", "weather": "hold"})
    world.project.pipelines[PIPELINE] = definition.model_copy(update={"late": late})
    assert not world.project.records_removed("flights")
    assert world.project.records_removed("weather")
    day.remove()
    assert day.decision().rule is DecisionRule.UNCHANGED


def test_a_name_that_is_no_source_is_refused():
    definition = five_days().project.pipelines[PIPELINE].model_dump(by_alias=True)
    definition["late"]["on_removed"] = {"flight": "drop"}
    with pytest.raises((Problems, DefinitionError, ValueError), match="flight is not a source of this pipeline"):
        Pipeline.model_validate(definition)


@pytest.mark.parametrize(
    ("thresholds", "reached"),
    [({"changed_files": 1}, ("changed_files 1",)), ({"rows": 11}, ()), ({"rows": 0}, ("rows 0",))],
)
def test_a_dropped_file_is_a_changed_file(thresholds, reached):
    change = InputChange(
        source="flights", date=DAY, hour="18", file=FILE, change=Change.REMOVED,
        before=Amount(objects=1, rows=10, bytes=10), on_removed="drop",
    )  # fmt: skip
    source = SourceDifference(source="flights", before=Amount(rows=100), now=Amount(rows=90), changes=(change,))
    assert reached_thresholds(late_amount(source), LateThresholds(**thresholds)) == reached


def test_a_removal_during_a_listing_makes_it_list_again():
    day = PulledDay("hold")
    source, store, lists = day.world.project.sources["flights"], day.world.store, []

    def listing():
        lists.append(1)
        if len(lists) == 1:
            day.remove()
        return store.list(f"s3://raw/raw/source=flights/date={DAY}/")

    result = consistent_listing(source, listing, files=day.world.files, known=[day.uri])
    assert (len(lists), result.is_removed(day.uri)) == (2, True)


def test_a_removal_that_changes_with_each_listing_is_an_error():
    day = PulledDay("hold")
    numbers = iter([1, -1] * 9)

    def listing():
        day.remove(next(numbers))
        return day.world.store.list(f"s3://raw/raw/source=flights/date={DAY}/")

    with pytest.raises(DayChanged):
        consistent_listing(day.world.project.sources["flights"], listing, files=day.world.files, known=[day.uri])


@pytest.mark.parametrize(
    ("on_removed", "rule", "reason"),
    [
        ("hold", DecisionRule.REMOVED, f"the partner has removed 1 file, {FILE}, with 100 rows"),
        ("drop", DecisionRule.GROWN, f"the partner has removed 1 file, {FILE}, with 100 rows (9.09 %)"),
        ("keep", DecisionRule.GROWN, "1 changed file"),
    ],
)
def test_a_file_that_was_changed_before_it_was_removed_is_a_removed_file(on_removed, rule, reason):
    day = PulledDay(on_removed)
    files, version = day.world.files, ContentVersion(definition="d" * 12, partitions=(Partition(DAY, "18"),), rows=120)
    (former,) = files.contents("flights", ["c" * 32])
    content = Content(
        source="flights", id="e" * 32, received_at=NOW, files=1, paths=(FILE,), removed=1,
        current=version,
    )  # fmt: skip
    files.save(former.without_file(FILE, at=NOW), content)
    (uri,) = committed_uris(content)
    day.world.store.put(uri, b"x" * 120, metadata={"rows": "120", "file": FILE})
    decision = day.decision()
    assert (decision.rule, reason in decision.reason) == (rule, True), decision.reason
    if on_removed == "drop":
        assert day.world.publish(DAY).rows == 2000
        assert day.decision().rule is DecisionRule.UNCHANGED
