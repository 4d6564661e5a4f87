"""Jobs that compare two published versions of a day: what they refuse, report, and leave when they are killed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from glue_jobs import compare_day
from slackwater.arrow.dataset import find_reference
from slackwater.errors import CloudError, InputError, ObjectMissing, VersionRemoved
from slackwater.late.changes.pairs import VersionPair, comparison_uri, job_failure_uri, job_started_uri
from slackwater.late.comparison import (
    Comparison,
    PublishedVersion,
)
from slackwater.runs.inputs.difference import Change
from slackwater.runs.inputs.input_definition import InputDefinition
from slackwater.runs.inputs.manifest import InputManifest, InputObject, store_manifest
from slackwater.spark.compare.comparison import (
    input_differences,
)
from tests.fakes_comparison import version
from tests.fakes_receiver import Crash
from tests.fakes_spark import FolderStore
from tests.spark.compared_day import DAY, JOB, NOON, OTHER_DAY, PREFIX, ROWS, Day, a_day
from tests.spark.nyc import PROJECT_URI

pytestmark = pytest.mark.usefixtures("interpreted")


@pytest.fixture(scope="module")
def compared(spark, tmp_path_factory) -> tuple[Day, Comparison]:
    """A day whose second version lacks a row, and the comparison of its versions, without the input manifests."""
    store = FolderStore(tmp_path_factory.mktemp("objects"))
    day = a_day(spark, store, partial(FolderStore, store.root))
    return day, day.of(ROWS, ROWS[:2])


class KilledStore(FolderStore):
    """The store of a job that is killed before it writes the comparison."""

    def put(self, uri, body, **more):
        if uri == comparison_uri(PREFIX):
            raise Crash(f"before {uri}")
        super().put(uri, body, **more)


def test_a_job_that_is_killed_after_it_has_stored_its_rows_is_repaired_by_the_next_one(compared, store):
    day, first = compared
    rows = day.stored_rows(first)
    killed = replace(day, store=store, stores=partial(KilledStore, store.root))
    killed.name_versions(*day.versions)
    with pytest.raises(Crash):
        killed.run(JOB.model_copy(update={"job": "killed"}))
    assert find_reference(f"{PREFIX}rows/", store=store).rows == 1
    with pytest.raises(ObjectMissing):
        store.get(comparison_uri(PREFIX))
    again = replace(killed, stores=partial(FolderStore, store.root)).run(JOB)
    assert Comparison.model_validate_json(store.get(comparison_uri(PREFIX))) == again
    same = {"seconds": 0.0, "all_rows": None, "inputs": ()}
    assert first.model_copy(update=same) == again.model_copy(update=same)
    assert killed.stored_rows(again) == rows


def test_a_version_without_its_tag_or_table_is_reported(spark, day):
    day.publish(ROWS)
    day.publish(ROWS[:1])
    spark.sql(f"ALTER TABLE {day.table} DROP TAG `{day.versions[1].tag}`")
    with pytest.raises(CloudError, match=f"has no tag {day.versions[1].tag} any more: attempt 2 cannot be read"):
        day.compare()
    spark.sql(f"ALTER TABLE {day.table} DROP TAG `{day.versions[0].tag}`")
    with pytest.raises(VersionRemoved, match=r"^version 1 of daily_delays 2013-03-08 was removed by the setting vers"):
        day.compare()
    spark.sql(f"DROP TABLE {day.table}")
    with pytest.raises(CloudError, match="there is no table"):
        day.compare()


def test_a_pair_of_another_day_is_refused(compared):
    day, _ = compared
    day.name_versions(*day.versions)
    with pytest.raises(InputError, match="names versions of daily_delays 2013-03-08, not of daily_delays 2013-03-09"):
        day.run(JOB.model_copy(update={"date": str(OTHER_DAY)}))
    assert day.store.get(job_started_uri(PREFIX, "j")) == b"", "a job that has started counts, however it ends"


def test_a_failure_is_reported_under_the_job_s_own_name(monkeypatch, store):
    monkeypatch.setattr(compare_day, "s3_store", lambda: store)
    monkeypatch.setattr(
        compare_day,
        "run_job",
        lambda name, work, *, context, report_failure: report_failure("CloudError: gone") or 1,
    )
    arguments = ["--project", PROJECT_URI, "--catalog-table", "t", "--comparison"]
    assert compare_day.main([*arguments, JOB.model_dump_json()]) == 1
    assert store.get(job_failure_uri(PREFIX, "j")) == b"CloudError: gone"
    with pytest.raises(SystemExit, match="2"):
        compare_day.main([*arguments, JOB.model_dump_json().replace(str(DAY), "2013-02-30")])


def test_the_input_differences_are_reported_unless_a_manifest_is_missing(compared):
    day, without_manifests = compared

    def keep(attempt: int, *names: str) -> None:
        objects = tuple(
            InputObject(
                uri=f"s3://raw/raw/source=flights/date=2013-03-08/hour=12/{name}.parquet", source="flights",
                date="2013-03-08", hour="12", etag=name, bytes=10, rows=5, arrived=NOON + timedelta(hours=2),
            )
            for name in names
        )  # fmt: skip
        manifest = InputManifest(pipeline="daily_delays", date=str(DAY), frozen_at=NOON, objects=objects)
        store_manifest(day.store, f"s3://exchange/manifests/{attempt}.json", manifest)

    assert without_manifests.inputs == ()
    keep(1, "a")
    keep(2, "a", "b")
    flights, weather = day.compare().inputs
    (change,) = flights.changes
    assert (change.change, change.now.rows, change.arrived) == (Change.ADDED, 5, NOON + timedelta(hours=2))
    assert weather.changes == ()


def test_what_only_one_definition_names_is_no_difference(store):
    item = InputObject(
        uri="s3://raw/raw/source=flights/date=2013-03-08/hour=12/a.parquet", source="flights",
        date="2013-03-08", hour="12", etag="a", bytes=10, rows=5, arrived=NOON,
    )  # fmt: skip
    weather = InputDefinition(timezone="America/New_York", sources=("weather",), tables=())
    both = weather.model_copy(update={"sources": ("flights", "weather")})
    versions = [version(number).model_copy(update={"reads": reads}) for number, reads in ((1, weather), (2, both))]
    for each, objects in zip(versions, ((), (item,)), strict=True):
        manifest = InputManifest(pipeline="daily_delays", date=str(DAY), frozen_at=NOON, objects=objects)
        store_manifest(store, each.manifest, manifest)

    def changed(before: PublishedVersion, after: PublishedVersion) -> list[str]:
        pair = VersionPair(pipeline="daily_delays", date=str(DAY), before=before, after=after)
        return [source.source for source in input_differences(pair, both, store=store) if source.changes]

    assert changed(*versions) == changed(*reversed(versions)) == []
    unknown = versions[0].model_copy(update={"reads": None})
    assert changed(unknown, versions[1]) == ["flights"]
