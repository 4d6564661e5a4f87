"""Fixtures of the tests of OpenLineage."""

from __future__ import annotations

import pytest

from slackwater.runs.attempt_files import loads_uri
from slackwater.runs.record import Loads, RunRecord
from tests.lineage_runs import RESULTS, Runs, a_step


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture
def daily(runs: Runs) -> RunRecord:
    """A published day of one stage, with load steps."""
    run = runs.start()
    runs.store_stages(
        run,
        a_step("checked_flights", "data_quality", {"flights": 20}, effect={"rows_rejected": 0, "results": RESULTS}),
        a_step("hourly_weather", "select", {"weather": 20}),
        a_step("flights_with_weather", "join", {"checked_flights": 20, "hourly_weather": 20}),
        a_step("delays_by_carrier", "sql", {"flights_with_weather": 20}),
    )
    url = {"url": "postgresql://db.example/reports"}
    loads = (
        a_step("out", "write_csv", {"x": 3}, effect={"path": "exports/x.csv", "rows": 3, "bytes": 99}),
        a_step("dwh", "write_table", {"x": 3}, effect={"table": "public.delays", "rows_inserted": 3}).model_copy(
            update={"parameters": url}
        ),
    )
    runs.store.put(loads_uri(run.prefix), Loads(steps=loads).model_dump_json().encode())
    return runs.publish_run(run)
