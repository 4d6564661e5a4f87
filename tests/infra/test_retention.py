"""What expires, and that nothing expires while a run may read it."""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from annotated_types import Le

from infra.app import ROOT
from infra.settings import Settings
from infra.stacks.processing import version_days
from infra.stacks.storage import JOB_MINUTES, longest_run_days
from slackwater.pipeline.definition import Late, Pipeline
from slackwater.pipeline.retries import LAMBDA, RETRIES, SPARK_JOB
from slackwater.project.project import Project
from slackwater.runs.outcome import COMPARED_HOURS
from tests.infra.assembly import Assembly

pytestmark = pytest.mark.infra


def test_raw_objects_keep_their_versions_and_exchanged_files_expire(assembly: Assembly, scheduled: Assembly) -> None:
    raw, exchange = assembly.one("AWS::S3::Bucket", "Raw"), assembly.one("AWS::S3::Bucket", "Exchange")
    rules = raw["LifecycleConfiguration"]["Rules"]
    # Without its receipt, a batch that is sent again could be stored twice.
    assert not [rule for rule in rules if "ExpirationInDays" in rule]
    # Members of packed objects are deleted each day: S3 would keep a delete marker of each for ever.
    assert [rule for rule in rules if "NoncurrentVersionExpiration" in rule] == [
        {"ExpiredObjectDeleteMarker": True, "NoncurrentVersionExpiration": {"NoncurrentDays": 30}, "Status": "Enabled"}
    ]
    assert expirations(exchange) == dict.fromkeys(("arrow/", "pulls/", "logs/", "projects/", "state/"), 30)
    # With `intermediate_days: 0`, runs of the next day, which take a day themselves, can keep stages of failed runs.
    assert expirations(scheduled.one("AWS::S3::Bucket", "Exchange"))["arrow/"] == 2
    functions = [each.one("AWS::Lambda::Function", "freezeinputs") for each in (assembly, scheduled)]
    kept = [function["Environment"]["Variables"] for function in functions]
    assert [(each["KEPT_DAYS"], each["INTERMEDIATE_DAYS"]) for each in kept] == [("29", "30"), ("1", "0")]
    assert [rule for rule in exchange["LifecycleConfiguration"]["Rules"] if "AbortIncompleteMultipartUpload" in rule]


def expirations(bucket: dict[str, Any]) -> dict[str, int]:
    rules = bucket["LifecycleConfiguration"]["Rules"]
    return {rule["Prefix"]: rule["ExpirationInDays"] for rule in rules if "Prefix" in rule}


def test_no_arrow_file_expires_while_its_run_may_read_it() -> None:
    steps = {
        name: {"step": "sql", "depends_on": [read], "with": {"query": "SELECT 1"}, "exchange": True}
        for read, name in pairwise(("s", "a", "b", "c"))
    }
    pipeline = Pipeline.model_validate(
        {"pipeline": "p", "sources": ["s"], "steps": steps, "publish": {"step": "c", "key": ["date"]}}
    )
    project = Project(sources={}, pipelines={"p": pipeline})
    days = {minutes: longest_run_days(project, Settings(queue_minutes=minutes)) for minutes in (15, 330, 331, 720)}
    assert days == {15: 1, 330: 1, 331: 2, 720: 2}


def test_the_longest_stage_includes_its_time_limit_and_all_retries() -> None:
    frame = json.loads((ROOT / "step_functions" / "pipeline.asl.json").read_text(encoding="utf-8"))
    limit = frame["States"]["Run <stage>"]["Arguments"]["ExecutionTimeoutMinutes"]
    pauses = 0.0
    for retry in (RETRIES[SPARK_JOB], RETRIES[LAMBDA]):
        delays = [retry["IntervalSeconds"] * retry["BackoffRate"] ** attempt for attempt in range(retry["MaxAttempts"])]
        pauses += sum(min(delay, retry.get("MaxDelaySeconds", delay)) for delay in delays)
    calls = 60 * (1 + RETRIES[LAMBDA]["MaxAttempts"])
    assert limit + (pauses + calls) / 60 <= JOB_MINUTES


@pytest.mark.parametrize(("setting", "days", "hours"), [(0, 0, 90), (5, 5, 17), (30, 30, 30), (400, 400, 90)])
def test_versions_of_hours_end_after_17_days_at_the_earliest_and_after_90_at_the_latest(
    setting: int, days: int, hours: int
) -> None:
    settings = Settings(version_days=setting)
    periods = [Pipeline.model_construct(period="day"), Pipeline.model_construct(period="hour")]
    assert [version_days(pipeline, settings) for pipeline in periods] == [days, hours]


def test_versions_of_hours_stay_longer_than_checks_compare_them() -> None:
    (most,) = (item.le for item in Late.model_fields["window_hours"].metadata if isinstance(item, Le))
    assert timedelta(hours=int(most)) == COMPARED_HOURS
    hourly = Pipeline.model_construct(period="hour")
    assert timedelta(days=version_days(hourly, Settings(version_days=1))) >= COMPARED_HOURS + timedelta(days=1)
