"""What becomes of a day whose job raises an error: the job stores the error, and the failure is recorded."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from glue_jobs import run_stage
from slackwater.runs.outcome import RunRecorder
from slackwater.runs.record import Hold
from slackwater.spark import job
from tests.fakes_check import PIPELINE, five_days

DAY = "2013-03-10"


def hold_of_failed_job(error: Exception) -> Hold | None:
    """Return the hold of a published day after its re-run, whose job of the last stage has raised `error`."""
    world = five_days()
    run = world.freeze(DAY, force=True)
    # A session that only starts and stops: the real job around work that raises the error.
    session = SimpleNamespace(stop=lambda: None)
    builder = SimpleNamespace()
    builder.appName = builder.config = lambda *_, **__: builder
    builder.getOrCreate = lambda: session

    def work(spark: object, arguments: object) -> None:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "SparkSession", SimpleNamespace(builder=builder))
        patch.setattr(job, "_log_as_json", lambda context: None)
        patch.setattr(job, "_seconds_since_start", lambda spark: 0.0)
        patch.setattr(run_stage, "work", work)
        patch.setattr(run_stage, "s3_store", lambda: world.store)
        arguments = ["--project", "p", "--stage", "delays_by_carrier", "--catalog-table", "c.d.t"]
        assert run_stage.main([*arguments, "--run", run.model_dump_json()]) == 1
    RunRecorder(store=world.store, table=world.table, now=world.now).record_failure(run, error="E", cause="")
    return world.table.day(PIPELINE, DAY).hold
