"""States of sources that count by a column: a period is complete only if each of its values is."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from slackwater.aws.dynamodb.period_table import _record
from slackwater.project.project import Project
from slackwater.runs.inputs.source_counts import CountsReader
from slackwater.runs.period import partition_of
from slackwater.runs.periods.changes import period_changed
from slackwater.runs.periods.read_parts import HourReader, place_of
from slackwater.state.completeness import PeriodCounts, total_counts, total_state
from slackwater.state.conditions import CompleteSource, Limit, evaluate
from slackwater.state.facts import HOUR, Part, RejectedEvents
from slackwater.state.fold import Distinct
from slackwater.state.reports import new_report
from slackwater.state.rollup import rolled_up
from slackwater.storage import split_uri
from tests.fakes_receiver import a_source, content_id, store_file
from tests.state_world import World

pytestmark = pytest.mark.unit

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
EU, SUD, OTHER = "region=EU", "region=Süd", "region="
COUNTS = {"window": "5m", "by": "region", "values": ["EU", "Süd"]}


def a_world(counts: dict[str, object] = COUNTS, **source: object) -> World:
    fields = {"id": "string", "region": "string", "at": "timestamp"}
    return World(a_source(counts=counts, fields=fields, **source), now=START + 2 * HOUR)


def report(world: World, counts: dict[int, dict[str, int] | int], *, through: int = 60, as_of: int = 90) -> None:
    sent = {START + timedelta(minutes=minute): numbers for minute, numbers in counts.items()}
    at, until = (START + timedelta(minutes=minutes) for minutes in (as_of, through))
    world.table.put_report(new_report(world.source, as_of=at, through=until, counts=sent, principal="push:acme"))
    world.send_hours({start.replace(minute=0) for start in sent})


def push(world: World, *rows: tuple[int, str | None, str | None], **options: bool) -> None:
    world.send_event_of(world.write(START, rows, f"{world.number:032x}-{len(rows)}", None, **options))


def state(world: World):
    world.handle_all()
    return world.table.stored["things", START]


def test_missing_events_of_a_value_are_not_made_up_for_by_another():
    world = a_world()
    push(world, (0, None, "EU"), (1, None, "EU"), (1, None, "Süd"))
    report(world, {0: {EU: 1, SUD: 2}})
    found = state(world)
    assert found.keys == ((EU, "surplus"), (SUD, "short"), (OTHER, "complete"))
    assert (found.state, found.sent, found.stored, found.missing, found.surplus) == ("short", 3, 3, 1, 1)
    windows = {(window.start.minute, window.key): window.state for window in found.windows}
    assert (windows[0, EU], windows[0, SUD], windows[5, SUD]) == ("surplus", "short", "complete")
    push(world, (2, None, "Süd"))
    report(world, {0: {EU: 2}}, as_of=91)
    assert (state(world).state, state(world).missing) == ("complete", 0)
    [change] = [each for each in world.changes if each.version == state(world).version]
    assert [(value.value, value.state, value.stored) for value in change.values] == [
        ("EU", "complete", 2),
        ("Süd", "complete", 2),
        ("other", "complete", 0),
    ]


def test_other_values_and_none_are_expected_only_if_they_are_reported():
    world = a_world()
    push(world, (0, None, "Mars"), (0, None, None), (0, None, "other"))
    report(world, {0: {EU: 0}})
    assert state(world).keys == ((EU, "complete"), (SUD, "complete"), (OTHER, "surplus"))
    report(world, {0: {OTHER: 3}}, as_of=91)
    assert state(world).state == "complete"


def test_a_value_that_no_event_has_is_short_and_one_that_no_report_names_is_unknown():
    world = a_world()
    push(world, (0, None, "EU"))
    report(world, {0: {EU: 1, SUD: 4}}, through=5)
    assert [window.state for window in state(world).windows[:3]] == ["complete", "short", "complete"]
    report(world, {5: {EU: 0}}, through=5, as_of=91)
    assert [window.state for window in state(world).windows[3:6]] == ["unknown"] * 3
    assert state(world).state == "unknown"


def test_reports_are_restated_by_value():
    world = a_world()
    push(world, (0, None, "EU"), (0, None, "Süd"))
    report(world, {0: {EU: 2, SUD: 1}})
    assert state(world).keys == ((EU, "short"), (SUD, "complete"), (OTHER, "complete"))
    report(world, {0: {EU: 1}}, as_of=95)
    # An older report of the other value changes only that one.
    report(world, {0: {EU: 7, SUD: 5}}, as_of=80)
    assert (state(world).state, state(world).sent) == ("complete", 2)


def test_duplicates_count_for_the_value_of_the_first_event():
    world = a_world(event_id="id")
    push(world, (0, "a", "EU"), (1, "b", "EU"))
    push(world, (0, "a", "Süd"))
    report(world, {0: {EU: 2}})
    assert state(world).keys == ((EU, "complete"), (SUD, "complete"), (OTHER, "complete"))
    assert {(value.key, value.stored) for value in state(world).values} == {(EU, 2), (SUD, 0), (OTHER, 0)}


def test_a_corrected_file_changes_the_value_of_an_event():
    world = a_world()
    for content, region in (("1", "Süd"), ("2", "EU")):
        [uri] = store_file(world.cache, "things", "one.csv", content, [partition_of(START)])
        place = place_of(split_uri(uri)[1])
        assert place is not None
        world.write(START, [(0, None, region)], place[2], content_id(content))
        world.send_event_of(uri)
        report(world, {0: {EU: 1}})
        assert state(world).state == ("complete" if region == "EU" else "short")


def test_rejected_events_count_for_their_value_and_not_if_it_is_not_known():
    world = a_world()
    none = dict.fromkeys((EU, SUD, OTHER), (0,) * 12)
    report(world, {0: {EU: 1}})
    # Of a source that has counted without values, or by fewer.
    for origin, bins in (("a", {"": (1,) * 12}), ("b", {EU: (1,) * 12, OTHER: (1,) * 12})):
        world.table.put_rejected("things", {START: RejectedEvents(origin, bins)})
        world.send_hours([START])
        assert (state(world).state, state(world).rejected) == ("short", 0)
    world.table.put_rejected("things", {START: RejectedEvents("c", {**none, EU: (1, *[0] * 11)})})
    world.send_hours([START])
    assert (state(world).state, state(world).rejected) == ("complete", 1)


@pytest.mark.parametrize("old", [False, True])
def test_values_that_are_added_later_count_from_the_next_report_on(old):
    world = a_world({"window": "5m", "by": "region", "values": ["EU"]})
    push(world, (0, None, "EU"), (0, None, "Süd"), old=old)
    report(world, {0: {EU: 1, OTHER: 1}})
    assert (state(world).state, len(state(world).keys)) == ("complete", 2)
    world.source = a_world().source
    # The hour was reported by the values of before: new events count by them too.
    push(world, (1, None, "Süd"), old=old)
    assert state(world).keys == ((EU, "complete"), (OTHER, "surplus"))
    report(world, {0: {EU: 1, SUD: 2}}, as_of=95)
    # The first object had no number for the new value: its column was read.
    assert state(world).keys == ((EU, "complete"), (SUD, "complete"), (OTHER, "unknown"))
    report(world, {0: {EU: 1, SUD: 2, OTHER: 0}}, as_of=96)
    assert (state(world).state, state(world).stored) == ("complete", 3)


def test_objects_of_before_the_column_are_read_side_by_side_and_stored_together(monkeypatch):
    world, stored = a_world({"window": "5m"}), list[Mapping[datetime, Sequence[Part]]]()
    for _ in range(20):
        push(world, (0, None, "EU"))
    world.handle_all()
    world.source = a_world().source
    report(world, {0: {EU: 20}})
    real_read, real_put = HourReader.read, world.table.put_parts

    together = threading.Barrier(4)

    def read_together(*arguments):
        together.wait(timeout=10)
        return real_read(*arguments)

    monkeypatch.setattr(HourReader, "read", read_together)
    monkeypatch.setattr(world.table, "put_parts", lambda source, parts: stored.append(parts) or real_put(source, parts))
    assert state(world).keys == ((EU, "complete"), (SUD, "complete"), (OTHER, "complete"))
    assert [len(parts[START]) for parts in stored if parts] == [20]


def test_a_column_that_is_added_or_removed_leaves_reported_hours_as_they_are():
    world = a_world({"window": "5m"})
    push(world, (0, None, "EU"), (0, None, "Süd"))
    report(world, {0: 2, 5: 1})
    assert (state(world).state, state(world).missing) == ("short", 1)
    world.source = a_world().source
    push(world, (5, None, "EU"))
    assert (state(world).keys, state(world).stored) == ((("", "complete"),), 3)
    # Half of the hour is reported again: the window with a number of before is unknown, and not empty.
    report(world, {0: {EU: 1, SUD: 1}}, as_of=95)
    windows = {(window.start.minute, window.key): window.state for window in state(world).windows}
    assert (windows[0, EU], windows[5, EU], windows[10, EU]) == ("complete", "unknown", "complete")
    world.source = a_world({"window": "5m"}).source
    report(world, {0: 2, 5: 1}, as_of=99)
    assert (state(world).state, state(world).stored) == ("complete", 3)


def test_a_run_is_complete_only_if_each_value_is():
    """The rows of a run are known by hour: those of each value are in the stored state, and both must be enough."""
    world = a_world()
    push(world, (0, None, "EU"), (0, None, "EU"))
    report(world, {0: {EU: 1, SUD: 1}})
    # The state of the hour does not exist yet.
    assert read(world, 2).state == "unknown"
    assert state(world).state == "short"
    assert (read(world, 2).state, read(world, 2).missing, read(world, 2).surplus) == ("short", 1, 1)
    assert total_counts(world.source, [read(world, 2)]).line == "sent 2, stored 2, rejected 0, missing 1, surplus 1"
    push(world, (1, None, "Süd"))
    report(world, {0: {EU: 2, SUD: 1}}, as_of=95)
    assert state(world).state == "complete"
    assert (read(world, 3).state, [value.stored for value in read(world, 3).values]) == ("complete", [2, 1, 0])
    # A file was removed since.
    assert (read(world, 2).state, read(world, 2).missing) == ("short", 1)


def read(world: World, rows: int) -> PeriodCounts:
    """The counts of a run with these rows."""
    project = Project(sources={"things": world.source}, pipelines={})
    reader = CountsReader(project=project, state=world.table, files=world.cache)
    [period] = reader.periods(world.source, [START], {START: rows})
    return period


def test_a_run_waits_until_the_state_follows_from_the_corrected_report():
    """The total is right after the correction, and the state of before says that each value is complete."""
    world = a_world()
    push(world, (0, None, "EU"), (0, None, "EU"), (0, None, "Süd"), (0, None, "Süd"))
    report(world, {0: {EU: 2, SUD: 2}})
    assert (state(world).state, read(world, 4).state) == ("complete", "complete")
    report(world, {0: {EU: 3, SUD: 1}}, as_of=91)
    assert (read(world, 4).state, read(world, 4).values) == ("unknown", ())
    assert total_counts(world.source, [read(world, 4)]).unknown == 1
    assert state(world).state == "short"
    assert (read(world, 4).state, read(world, 4).missing, read(world, 4).surplus) == ("short", 1, 1)


def test_an_hour_that_is_short_of_one_value_and_unknown_of_another_counts_as_both():
    world = a_world({**COUNTS, "window": "1h"})
    push(world, *[(0, None, "EU")] * 3, *[(0, None, "Süd")] * 2)
    report(world, {0: {EU: 2, SUD: 10}}, through=30, as_of=31)
    report(world, {0: {EU: 4}}, through=60, as_of=61)
    assert (state(world).keys[:2], state(world).missing) == (((EU, "short"), (SUD, "unknown")), 1)
    found = read(world, 5)
    assert (found.state, found.missing, found.is_unknown) == ("short", 1, True)
    counts = total_counts(world.source, [found])
    assert (counts.state, counts.unknown, counts.periods) == ("short", 1, 1)
    assert counts.line == "sent 4, stored 3, rejected 0, missing 1, no counts for 1 of 1 hour"
    assert total_counts(world.source, rolled_up(world.source, [state(world)], START, START + HOUR)) == counts
    # The limit of `unknown` holds, although that of `incomplete` would let the run begin.
    limits = {"unknown": Limit(START + 2 * HOUR, "fail"), "incomplete": Limit(START + 3 * HOUR, "run")}
    evaluation = evaluate([CompleteSource("things", counts)], **limits, now=START + 4 * HOUR)
    assert (evaluation.outcome, [item.kind for item in evaluation.unmet]) == ("fail", ["incomplete", "unknown"])
    assert evaluation.unmet[1].text == "no counts for 1 of 1 hour"


def test_a_run_that_reads_a_part_of_a_day_does_not_compare_the_values_of_the_day():
    world = a_world({**COUNTS, "window": "day"}, timestamp={"field": "at", "timezone": "UTC"})
    midnight = START.replace(hour=0)
    push(world, (0, None, "EU"))
    at = midnight + 25 * HOUR
    counts = {midnight: {EU: 2, SUD: 0}}
    world.table.put_report(new_report(world.source, as_of=at, through=at, counts=counts, principal="push:acme"))
    world.send_hours([midnight])
    world.handle_all()
    assert world.table.stored["things", midnight].state == "short"
    found = read(world, 1)
    assert (found.state, found.missing, found.values) == ("unknown", 0, ())
    assert total_counts(world.source, [found]).line == "no counts of the source"


def test_a_state_and_its_message_stay_small():
    """8 values in windows of 5 minutes: an item of 4 KB costs 4 write units, and PutEvents takes 1 MB."""
    counts = {**COUNTS, "values": [f"region-{number}" for number in range(8)]}
    world = a_world(counts, event_id="id")
    keys = world.source.count_keys
    push(world, *((minute, None, f"region-{number}") for minute in range(0, 60, 5) for number in range(8)))
    report(world, {minute: dict.fromkeys(keys, 10**6) for minute in range(0, 60, 5)})
    found = state(world)
    assert (len(found.windows), found.state) == (12 * 9, "short")
    full = found._replace(
        distinct=Distinct("d" * 16, dict.fromkeys(keys, (10**6,) * 12)),
        windows=tuple(window._replace(stored=10**6) for window in found.windows),
    )
    assert len(_record(full)) < 5_000
    assert len(period_changed(full, "s3://exchange/state").model_dump_json()) < 25_000
    assert total_state(value.state for value in full.values) == full.state
    json.loads(_record(full))
