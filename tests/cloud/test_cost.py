"""What runs cost: the recorded hours are those that EMR Serverless has billed, and `slackwater cost` sums them."""

from __future__ import annotations

import json
from collections import defaultdict
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from tests.cloud.conftest import AS_OF, PAST, ended, start_monitor
from tests.conftest import LATE

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

PRICES = {"vCPUHour": "0.052624", "memoryGBHour": "0.0057785", "storageGBHour": "0.000111"}


@pytest.fixture(scope="module")
def billed(cloud, monitored) -> dict[tuple[str, int], list[dict[str, float]]]:
    """What EMR Serverless has billed for each job of `daily_delays`, by date and attempt, from the jobs themselves.

    The comparisons of a day have the attempt 0. The days are checked once more, which completes the costs of what had
    not ended in the check before.
    """
    ended(cloud, start_monitor(cloud, AS_OF))
    emr, application = cloud.client("emr-serverless"), cloud.outputs()["ApplicationId"]
    jobs = defaultdict(list)
    for job in cloud.jobs():
        run = emr.get_job_run(applicationId=application, jobRunId=job["id"])["jobRun"]
        arguments = run["jobDriver"]["sparkSubmit"]["entryPointArguments"]
        if "--stage" in arguments:
            of_run: dict[str, Any] = json.loads(arguments[arguments.index("--run") + 1])
            if of_run["pipeline"] == "daily_delays":
                jobs[of_run["date"], of_run["attempt"]].append(run["billedResourceUtilization"])
        elif "--comparison" in arguments:
            compared: dict[str, Any] = json.loads(arguments[arguments.index("--comparison") + 1])
            if compared["pipeline"] == "daily_delays":
                jobs[compared["date"], 0].append(run["billedResourceUtilization"])
    return dict(jobs)


def test_the_recorded_hours_of_each_run_are_those_that_emr_has_billed(cloud, billed):
    records = [record for record in cloud.json("runs", "daily_delays")["runs"] if record["date"] in (*PAST, LATE)]
    assert len(records) > len(PAST)
    for record in records:
        cost, jobs = record["cost"], billed[record["date"], record["attempt"]]
        hours = {key: sum(Decimal(str(job[key])) for job in jobs) for key in PRICES}
        recorded = (cost["vcpu_hours"], cost["memory_gb_hours"], cost["storage_gb_hours"])
        assert [Decimal(str(value)) for value in recorded] == list(hours.values())
        assert (cost["jobs"], cost["complete"], cost["region"]) == (len(jobs), True, "us-east-1")
        by_hand = sum(hours[key] * Decimal(price) for key, price in PRICES.items())
        by_hand += Decimal(str(cost["lambda_gb_seconds"])) * Decimal("0.0000166667")
        by_hand += cost["transitions"] * Decimal("0.000025")
        assert cost["usd"] == pytest.approx(float(by_hand), abs=2e-8)
        # Freeze the inputs, decide, run the stages, record.
        assert cost["transitions"] >= 4
        assert 0 < cost["lambda_seconds"] < record["seconds"]


def test_the_command_sums_the_runs(cloud, billed, tmp_path):
    document = cloud.json("cost", "daily_delays", "--from", PAST[0], "--to", PAST[-1])
    file = tmp_path / "runs.json"
    file.write_text(json.dumps(cloud.json("runs", "daily_delays")["runs"]))
    sums = duckdb.sql(
        "SELECT date::VARCHAR, count(*), count(*) FILTER (attempt > 1), round(sum(cost.vcpu_hours), 6), "
        "round(sum(cost.memory_gb_hours), 6), round(sum(cost.usd), 6) "
        f"FROM read_json('{file}') WHERE ended_at IS NOT NULL AND date::VARCHAR BETWEEN '{PAST[0]}' AND '{PAST[-1]}' "
        "GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    shown = []
    for day in document["days"]:
        comparisons = billed.get((day["date"], 0), [])
        assert day["comparisons"] == len(comparisons)
        hours = (sum(Decimal(str(job[key])) for job in comparisons) for key in ("vCPUHour", "memoryGBHour"))
        of_runs = (Decimal(str(day[key])) for key in ("vcpu_hours", "memory_gb_hours"))
        without = (round(float(total - part), 6) for total, part in zip(of_runs, hours, strict=True))
        usd = round(day["usd"] - day["comparison_usd"], 6)
        shown.append((day["date"], day["runs"], day["reruns"], *without, usd))
    assert shown == sums
    assert document["total"]["usd"] == pytest.approx(sum(day["usd"] for day in document["days"]), abs=1e-5)
    late = next(day for day in document["days"] if day["date"] == LATE)
    job = sum(Decimal(str(hours[key])) * Decimal(price) for hours in billed[LATE, 0] for key, price in PRICES.items())
    # Its functions, and six or seven transitions of 0.000025 USD, come on top of the job.
    assert float(job) < late["comparison_usd"] < float(job) + 0.0005 * late["comparisons"]
    assert 0 < late["late_data_usd"] < late["usd"]
    assert document["total"]["unknown"] == document["total"]["pending"] == 0
