"""The lower bound of what Spark jobs request from S3."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from slackwater.arrow.reference import ArrowReference
from slackwater.runs.costs.cost import RequestCounts
from slackwater.runs.costs.job_requests import least_job_requests
from slackwater.runs.record import Publication, Rollback, RunState, StageRecord
from tests.unit.runs.test_cost import a_record

pytestmark = pytest.mark.unit

OWN, EARLIER = "s3://exchange/runs/r/", "s3://exchange/runs/earlier/"


def a_stage(name, *, files, prefix=OWN, is_merged=False):
    known = {"rows": 1, "bytes": 1, "seconds": 1, "is_merged": is_merged}
    reference = ArrowReference(manifest=f"{prefix}{name}/manifest.json", files=files, **known)
    return StageRecord(stage=name, reference=reference)


def published(*stages, rows=10, **more):
    publication = Publication(table="t", snapshot_id="1", rows=rows, replaced=0, seconds=1)
    record = a_record().model_copy(update={"publication": publication, "stages": stages, **more})
    return record.model_copy(update={"run": record.run.model_copy(update={"files": 43})})


def test_each_input_is_a_get_and_each_written_file_a_put():
    record = published(a_stage("one", files=3), a_stage("two", files=1))
    # Two manifests and two references. Data file, manifest, manifest list, two metadata files, `publication.json`.
    assert least_job_requests(record) == RequestCounts(s3_gets=43, s3_puts=3 + 1 + 4 + 6)


def test_a_stage_of_an_earlier_attempt_costs_nothing_and_may_have_read_the_inputs():
    record = published(a_stage("one", files=3, prefix=EARLIER), a_stage("two", files=1))
    assert least_job_requests(record) == RequestCounts(s3_puts=1 + 2 + 6)


def test_a_stage_that_has_computed_added_objects_alone_has_read_an_unknown_number_of_them():
    record = published(a_stage("one", files=3, is_merged=True))
    assert least_job_requests(record) == RequestCounts(s3_puts=3 + 2 + 6)


def test_a_day_without_rows_has_no_data_file():
    assert least_job_requests(published(a_stage("one", files=0), rows=0)) == RequestCounts(s3_gets=43, s3_puts=2 + 4)


def test_a_rollback_reads_no_inputs():
    rollback = Rollback(to=1, tag="t", reason="r", frozen_at=datetime(2013, 3, 10, tzinfo=UTC))
    assert least_job_requests(published(rollback=rollback)) == RequestCounts(s3_puts=6)


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.FAILED])
def test_a_run_that_has_not_published_has_no_estimate(state):
    assert least_job_requests(a_record(state=state)) is None
    # The run table may lack what a run of an older version has published.
    assert least_job_requests(a_record()) is None
