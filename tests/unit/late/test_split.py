"""The split of a change: when there is one, which inputs it computes, and how it is stored and shown."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import structs

from lambdas import compare_versions
from slackwater.late.changes.pairs import comparison_uri, job_failure_uri, split_uri
from slackwater.late.changes.split import SplitAction, Splits, stored_split
from slackwater.late.comparison import Cause, MetricChange, MetricSplit, RowCounts, Split, Totals
from slackwater.late.report.document import change_document
from slackwater.late.report.message import compose
from slackwater.late.report.page import report_page
from slackwater.runs.attempt_files import failure_uri
from slackwater.runs.inputs.input_definition import InputDefinition, NamedTable
from slackwater.runs.inputs.manifest import InputManifest, InputObject, read_manifest, store_manifest
from slackwater.runs.record import JobFiles, RunRecord, RunState
from tests.fakes_comparison import FROZEN, comparison, version
from tests.fakes_functions import use_resources
from tests.fakes_notification import a_run
from tests.fakes_runs import DictRunTable, DictStore
from tests.machines import evaluated

pytestmark = pytest.mark.unit

PREFIX = "s3://exchange/comparisons/daily_delays/2013-03-10/1-2/"
FILES = JobFiles(project="s3://assets/p.json", archive="s3://assets/a.zip", entry_point="s3://assets/r.py")
READS = InputDefinition(timezone="America/New_York", sources=("flights", "weather"), tables=())
STATES = json.loads(Path("step_functions/compare_day.asl.json").read_text())["States"]
NOW = datetime(2013, 3, 12, tzinfo=UTC)


def an_object(source: str, name: str, hour: str = "12", rows: int = 1) -> InputObject:
    uri = f"s3://raw/raw/source={source}/date=2013-03-10/hour={hour}/{name}.parquet"
    return InputObject(
        uri=uri, source=source, date="2013-03-10", hour=hour, etag=name, bytes=10, rows=rows, arrived=FROZEN
    )


def a_manifest(*objects: InputObject) -> InputManifest:
    return InputManifest(pipeline="daily_delays", date="2013-03-10", frozen_at=FROZEN, objects=objects)


def both_changed(**changes):
    before = version(1).model_copy(update={"definition": "d1", "code": "c", "reads": READS})
    after = version(2).model_copy(update={"definition": "d2", "code": "c", "reads": READS})
    return comparison(**{"before": before, "after": after, **changes})


class World:
    """A day with a stored comparison, whose earlier version has recorded its code."""

    def __init__(self, content=None, files=FILES):
        self.store, self.table = DictStore(), DictRunTable()
        self.content = content or both_changed()
        self.store.put(comparison_uri(PREFIX), self.content.model_dump_json().encode())
        record = RunRecord(run=a_run(1), state=RunState.PUBLISHED, execution="arn:e", started_at=FROZEN, files=files)
        self.table.records["daily_delays", "2013-03-10", 1] = record
        self.freeze((an_object("flights", "a"),), (an_object("flights", "a"), an_object("flights", "late", rows=5)))
        self.splits = Splits(store=self.store, table=self.table, now=lambda: NOW)

    def freeze(self, *inputs):
        for which, objects in zip((self.content.before, self.content.after), inputs, strict=True):
            store_manifest(self.store, which.manifest, a_manifest(*objects))

    def plan(self, execution="arn:x:one"):
        return self.splits.plan(prefix=PREFIX, execution=execution, correlation_id="c-1")

    def planned_inputs(self):
        return read_manifest(self.store, self.plan().run.manifest)


def test_the_later_inputs_are_computed_with_the_files_of_the_earlier_version():
    world = World()
    plan = world.plan()
    assert (plan.action, plan.files, plan.reason) == (SplitAction.COMPUTE, FILES, "")
    assert [item.etag for item in world.planned_inputs().objects] == ["a", "late"]
    assert (plan.run.files, plan.run.rows, plan.run.bytes, plan.run.attempt) == (2, 6, 20, 2)
    # Apart from runs, so that nothing takes it for one; S3 removes the Arrow files.
    assert plan.run.prefix.startswith(f"{PREFIX}split/")
    assert plan.run.arrow_prefix.startswith("s3://exchange/arrow/comparisons/daily_delays/2013-03-10/1-2/split/")
    assert failure_uri(plan.run.prefix) == job_failure_uri(plan.prefix, plan.job)
    [cost] = world.table.comparisons("daily_delays", "2013-03-10")
    assert (cost.before, cost.after, cost.execution, cost.started_at) == (1, 2, "arn:x:one", NOW)


def test_executions_at_the_same_time_write_under_prefixes_of_their_own():
    world = World()
    assert world.plan() == world.plan()
    assert world.plan().run.prefix != world.plan("arn:x:other").run.prefix


def test_what_only_the_earlier_definition_reads_stays_as_it_was():
    former = READS.model_copy(update={"tables": (NamedTable(name="rates", table="carrier_rates", days=(0, 0)),)})
    present = READS.model_copy(update={"sources": ("flights", "clicks")})
    content = both_changed()
    before, after = content.before, content.after
    world = World(
        content.model_copy(
            update={
                "before": before.model_copy(update={"reads": former}),
                "after": after.model_copy(update={"reads": present}),
            }
        )
    )
    rates = structs.replace(an_object("rates", "r"), file="carrier_rates 2013-03-10", tag="t")
    world.freeze(
        (an_object("flights", "a"), rates, an_object("weather", "w")),
        (an_object("flights", "a"), an_object("flights", "late"), an_object("clicks", "c")),
    )
    assert sorted(item.etag for item in world.planned_inputs().objects) == ["a", "late", "r", "w"]


def test_with_another_timezone_the_hours_that_only_the_earlier_definition_reads_stay_as_they_were():
    content = both_changed()
    present = READS.model_copy(update={"timezone": "UTC"})
    world = World(content.model_copy(update={"after": content.after.model_copy(update={"reads": present})}))
    own = structs.replace(an_object("flights", "own", hour="02"), date="2013-03-11")
    world.freeze(
        (an_object("flights", "a"), own),
        (an_object("flights", "a"), an_object("flights", "late"), an_object("flights", "utc", hour="01")),
    )
    assert sorted(item.etag for item in world.planned_inputs().objects) == ["a", "late", "own"]


SAME = {"definition": "d2", "code": "c"}


@pytest.mark.parametrize(
    ("content", "files", "reason"),
    [
        (both_changed(rows=RowCounts(before=1, after=1, added=0, removed=0, changed=0)), FILES, "the rows of both"),
        (both_changed(inputs=()), FILES, "the input manifest of a version is gone"),
        (
            both_changed(before=both_changed().before.model_copy(update=SAME)),
            FILES,
            "the definition and the code are the same: the data has changed everything",
        ),
        (
            both_changed(inputs=(comparison().inputs[0].model_copy(update={"changes": ()}),)),
            FILES,
            "the data is the same: the definition or the code has changed everything",
        ),
        (both_changed(), None, "version 1 was made by a release that did not record its code"),
        (comparison(), None, "version 1 was made by a release that did not record its code"),
        (
            both_changed(after=both_changed().after.model_copy(update={"rollback": 1})),
            FILES,
            "version 2 is a rollback",
        ),
    ],
)
def test_no_job_runs_without_both_causes_or_without_the_earlier_code(content, files, reason):
    world = World(content, files)
    plan = world.plan()
    assert (plan.action, plan.run) == (SplitAction.NOTHING, None)
    assert plan.reason.startswith(reason)
    assert world.table.comparisons("daily_delays", "2013-03-10") == []


def a_split() -> Split:
    flights = MetricChange(metric="flights", total=Totals.SUM, exact=True, before=800, after=900)
    mean = MetricChange(metric="delay", total=Totals.MEAN, before=4.0, after=5.0)
    return Split(
        metrics=(MetricSplit.of(flights, 840), MetricSplit.of(mean, 3.5)),
        data=RowCounts(before=29, after=30, added=1, removed=0, changed=4),
        definition=RowCounts(before=30, after=29, added=0, removed=1, changed=7),
        seconds=1.0,
    )


def test_a_stored_split_is_not_computed_again():
    world = World()
    assert stored_split(world.store, PREFIX) is None
    world.store.put(split_uri(PREFIX), a_split().model_dump_json().encode())
    assert (world.plan().action, world.plan().reason) == (SplitAction.NOTHING, "")
    assert stored_split(world.store, PREFIX) == a_split()


@pytest.mark.parametrize(
    ("before", "between", "after", "parts", "percents"),
    [
        (800, 840, 900, (40, 60), (5.0, 7.5)),
        (0, 4, 3, (4, -1), (None, None)),
        (None, None, 7, (None, None), (None, None)),
        (7, None, None, (None, None), (None, None)),
        # The sums of floating-point numbers depend on their order.
        (0.3, 0.1 + 0.2, 0.5, (0.0, 0.2), (0.0, pytest.approx(66.67, abs=0.01))),
    ],
)
def test_the_parts_of_a_metric_add_up(before, between, after, parts, percents):
    split = MetricSplit.of(MetricChange(metric="m", total=Totals.SUM, before=before, after=after), between)
    assert (split.data, split.definition) == parts
    assert (split.data_percent, split.definition_percent) == percents
    if None not in parts:
        assert split.data + split.definition == after - before


def test_the_report_shows_both_parts_of_each_metric():
    content = both_changed(split=a_split())
    body = compose(content).body
    assert set(content.causes) == {Cause.LATE_DATA, Cause.NEW_DEFINITION}
    assert "cannot tell" not in body
    lines = [" ".join(line.split()) for line in body.splitlines()]
    assert "metric total version 1 data definition version 2" in lines
    assert "flights sum 800 +40 (+5.0 %) +60 (+7.5 %) 900" in lines
    assert "delay mean 4 -0.5 (-12.5 %) +1.5 (+37.5 %) 5" in lines
    assert "code of version 1: 1 row added, 0 removed, 4 changed." in " ".join(body.split())
    page = report_page(content)
    assert "+40 (+5.0 %)" in page
    document = change_document(content, summary="s", comparison_uri="u", report_uri="r")
    assert [(metric.metric, metric.data, metric.definition) for metric in document.metrics] == [("flights", 40, 60)]


def test_the_machine_computes_with_the_archive_of_the_earlier_version(monkeypatch):
    world = World()
    use_resources(monkeypatch, compare_versions, splits=world.splits, versions=None)
    context = {"Execution": {"Id": "arn:x:one", "Name": "one"}}
    variables = {
        "chosen": {"prefix": PREFIX, "before": 1, "after": 2},
        "pipeline": "daily_delays",
        "date": "2013-03-10",
        "correlation_id": "c/1",
        "comparison": {"uri": comparison_uri(PREFIX), "before": 1, "after": 2, "differing": 1, "reason": ""},
    }
    task = STATES["Plan the split"]
    payload = evaluated(task["Arguments"]["Payload"], {"context": context}, variables)
    result = {"result": {"Payload": compare_versions.handler(payload, None)}}
    variables |= evaluated(task["Assign"], result, variables)
    (choice,) = STATES["Decide whether to compute"]["Choices"]
    assert evaluated(choice["Condition"], {"input": variables["plan"]}, variables) is True
    variables |= {"archive": "s3://assets/new.zip", "spark_parameters": "--conf spark.archives=s3://assets/new.zip#e"}
    job = evaluated(STATES["Compute with the earlier version"]["Arguments"], {}, variables)
    submit = job["JobDriver"]["SparkSubmit"]
    assert submit["EntryPoint"] == FILES.entry_point
    assert submit["EntryPointArguments"][:2] == ["--project", FILES.project]
    assert "--unpublished" in submit["EntryPointArguments"]
    assert submit["SparkSubmitParameters"].startswith(f"--conf spark.archives={FILES.archive}#e ")
    assert job["ExecutionRoleArn"] == "${SplitJobRoleArn}"
    assert job["Tags"]["slackwater:correlation"] == "c_1"


def test_a_failed_split_stops_no_notification_and_is_an_error_for_a_person():
    reference = {"uri": "s3://c", "before": 1, "after": 2, "differing": 1, "reason": "", "split_reason": ""}
    failed = STATES["Decide whether to fail"]
    (choice,) = failed["Choices"]
    variables = {"since": "notified", "comparison": reference, "reason": "DataError: no rows"}
    assert evaluated(choice["Condition"], {}, variables) is True
    assert evaluated(choice["Output"], {}, variables) == {**reference, "split_reason": "DataError: no rows"}
    # The comparison itself has failed, or a person has asked.
    assert evaluated(choice["Condition"], {}, {**variables, "comparison": None}) is False
    assert evaluated(choice["Condition"], {}, {**variables, "since": "previous"}) is False
    assert failed["Default"] == "Fail the comparison"
