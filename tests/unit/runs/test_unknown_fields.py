"""During a deployment, functions of the older version read records that those of the newer one have stored."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel, ValidationError

from slackwater.arrow.reference import ArrowReference
from slackwater.costs.cost import RunCost
from slackwater.errors import ObjectInvalid
from slackwater.late.arrival_messages import read_message
from slackwater.late.changes.job_claims import JobClaim
from slackwater.late.decision import CheckReport
from slackwater.model import Record
from slackwater.runs.arrivals import day_published
from slackwater.runs.comparison_run import ComparisonRun
from slackwater.runs.inputs.manifest import InputManifest, InputObject, read_manifest
from slackwater.runs.invalid_input import InvalidInput
from slackwater.runs.pipeline_records import CountedRerun, RerunUsage
from slackwater.runs.record import ActiveRun, DayRecord, Hold, Publication, RunRecord, RunState, StageRecord
from tests.fakes_check import five_days
from tests.fakes_notification import a_comparison, a_run
from tests.fakes_runs import DictStore
from tests.unit.aws.test_file_cache import CONTENT, ENTRY

pytestmark = pytest.mark.unit

NOW = datetime(2013, 6, 1, 12, tzinfo=UTC)
ACTIVE = ActiveRun(execution="arn:e", run=a_run(2), since=NOW)
DAY = DayRecord(
    pipeline="p",
    date="2013-03-10",
    active=ACTIVE,
    hold=Hold(rule="audit", reason="r", since=NOW),
    version=3,
)
RUN = RunRecord(
    run=a_run(1),
    state=RunState.PUBLISHED,
    execution="arn:e",
    started_at=NOW,
    stages=(
        StageRecord(stage="s", reference=ArrowReference(manifest="s3://b/m", rows=1, bytes=1, files=1, seconds=1)),
    ),
    publication=Publication(table="t", snapshot_id="1", rows=1, replaced=0, seconds=1),
    cost=RunCost(usd=1),
)
COMPARISON_RUN = ComparisonRun(pipeline="p", date="2013-03-10", before=1, after=2, execution="arn:e", started_at=NOW)
USAGE = RerunUsage(
    pipeline="p",
    date="2013-03-10",
    reruns=(CountedRerun(date="2013-03-01", attempt=2, at=NOW),),
)


INPUT = InputObject(uri="s3://raw/a", source="s", date="2013-03-10", hour="12", etag="e", bytes=1, rows=1, arrived=NOW)
MANIFEST = InputManifest(pipeline="p", date="2013-03-10", frozen_at=NOW, objects=(INPUT,))
INVALID = InvalidInput(reason="r", hours=(("s", "2013-03-10T12"),), days=(INPUT,))
CLAIM = JobClaim(execution="arn:e", correlation_id="c", at=NOW)


def add_fields(value: Any) -> Any:
    """Return a JSON value with a field `added` in each object."""
    if isinstance(value, dict):
        # An empty one may be a mapping, whose keys are no fields.
        return {key: add_fields(item) for key, item in value.items()} | ({"added": "new"} if value else {})
    return [add_fields(item) for item in value] if isinstance(value, list) else value


def without_added(value: Any) -> Any:
    """Return the value of a field without the fields that `add_fields` has added to it."""
    if isinstance(value, tuple):
        return tuple(without_added(item) for item in value)
    if not isinstance(value, BaseModel):
        return value
    return type(value).model_construct(
        **{name: without_added(getattr(value, name)) for name in type(value).model_fields}
    )


def with_added_fields(record: Record) -> str:
    return json.dumps(add_fields(record.model_dump(mode="json", exclude_none=True)))


@pytest.mark.parametrize(
    "record",
    [DAY, RUN, COMPARISON_RUN, USAGE, INVALID, CLAIM],
    ids=lambda record: type(record).__name__,
)
def test_a_record_with_unknown_fields_is_read(record):
    read = type(record).model_validate_json(with_added_fields(record))
    assert all(without_added(getattr(read, name)) == value for name, value in record)


def test_an_input_manifest_with_unknown_fields_and_times_with_offsets_is_read():
    document, store = add_fields(msgspec.to_builtins(MANIFEST)), DictStore()
    document["objects"][0]["arrived"] = NOW.astimezone(timezone(timedelta(hours=2))).isoformat()
    store.put("s3://exchange/m.json", json.dumps(document).encode())
    assert read_manifest(store, "s3://exchange/m.json") == MANIFEST


@pytest.mark.parametrize("field", ["rows", "bytes"])
def test_an_input_manifest_with_a_negative_number_is_refused(field):
    document, store = msgspec.to_builtins(MANIFEST), DictStore()
    document["objects"][0][field] = -1
    store.put("s3://exchange/m.json", json.dumps(document).encode())
    with pytest.raises(ObjectInvalid, match=rf"`int` >= 0 - at `\$\.objects\[0\]\.{field}`"):
        read_manifest(store, "s3://exchange/m.json")


def test_a_record_refuses_an_input_without_its_uri():
    document = json.loads(INVALID.model_dump_json())
    del document["days"][0]["uri"]
    with pytest.raises(ValidationError, match="missing required field `uri`"):
        InvalidInput.model_validate_json(json.dumps(document))


def test_a_report_and_a_comparison_with_unknown_fields_are_read():
    report, comparison = five_days().check(), a_comparison()
    document = report.model_dump(mode="json") | {"added": 1}
    document["days"] = [day | {"added": 1} for day in document["days"]]
    assert CheckReport.model_validate_json(json.dumps(document)) == report
    document = comparison.model_dump(mode="json") | {"added": 1}
    document["after"]["added"] = 1
    assert type(comparison).model_validate_json(json.dumps(document)) == comparison


@pytest.mark.parametrize("record", [DAY, RUN, COMPARISON_RUN, USAGE], ids=lambda record: type(record).__name__)
def test_a_record_that_is_changed_and_stored_again_keeps_unknown_fields(record):
    """Else, a function of the older version would erase what the newer one has stored, such as a new reason to wait."""
    stored = json.loads(with_added_fields(record))
    changed = type(record).model_validate(stored).model_copy(update={"pipeline": "p"})
    document = json.loads(changed.model_dump_json(exclude_none=True))
    assert document["added"] == "new"
    for name, value in stored.items():
        if name != "stages":
            assert document[name] == value


@pytest.mark.parametrize("record", [ENTRY, CONTENT], ids=lambda record: type(record).__name__)
def test_a_record_of_the_file_cache_keeps_unknown_fields(record):
    """Runs, checks and pulls of the version before read it while the stacks are deployed, one after the other."""
    stored = json.loads(record.model_dump_json(exclude_none=True)) | {"added": "new"}
    changed = type(record).model_validate(stored).model_copy(update={"revision": 7})
    assert json.loads(changed.model_dump_json(exclude_none=True)) == stored | {"revision": 7}


def test_a_message_with_an_unknown_field_is_refused():
    message = json.loads(day_published("p", "2013-03-10", time=NOW).model_dump_json())
    with pytest.raises(ValidationError, match="added"):
        read_message(json.dumps(message | {"added": 1}))
