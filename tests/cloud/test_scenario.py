"""The scenario of `make scenario`: every number that it prints equals one that DuckDB computes from the files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from math import fsum, sqrt
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from humanize import naturalsize

from slackwater.local import cloud as local_cloud
from tests.conftest import ROOT

# It has a cloud of its own, in which about 14 Spark jobs run.
pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

MONDAY, TUESDAY, WEDNESDAY = DAYS = ("2024-03-04", "2024-03-05", "2024-03-06")
METRICS = ("orders", "items", "revenue_cents")
DAILY = "daily_orders"
PAID = "status <> 'cancelled'"
Rows = list[list[Any]]


@dataclass(frozen=True)
class Played:
    """What a scenario printed, and the documents of its parts."""

    out: str
    err: str
    parts: dict[str, dict[str, Any]]
    cloud: Path
    """The files of its cloud, which has been stopped."""

    def daily(self, part: str, day: str, where: str = "true") -> Rows:
        """Compute the rows of a day from the files that the shop had in a part."""
        files = Path(self.parts[part]["files"]) / f"orders-{day}-*.csv"
        query = f"""
            SELECT '{day}', product, count(*), sum(quantity)::BIGINT, sum(quantity * price_cents)::BIGINT
            FROM read_csv('{files}') WHERE {where} GROUP BY product ORDER BY product"""
        return [list(row) for row in duckdb.sql(query).fetchall()]

    def orders(self, part: str, pattern: str) -> int:
        """Count the orders of the files that match a pattern in a part."""
        [[count]] = duckdb.sql(f"SELECT count(*) FROM read_csv('{self.parts[part]['files']}/{pattern}')").fetchall()
        return int(count)

    def decisions(self, part: str, monitor: str = "monitor") -> dict[str, tuple[str, str]]:
        """Return the decision and the rule about each checked day."""
        return {day["date"]: (day["decision"], day["rule"]) for day in self.parts[part][monitor]["check"]["days"]}

    def outcome(self, part: str, day: str, monitor: str = "monitor") -> dict[str, Any]:
        """Return the outcome of a day that was run or compared."""
        [outcome] = [item for item in self.parts[part][monitor]["days"] if item["date"] == day]
        return dict(outcome)


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> Played:
    """The whole scenario, as `make scenario` runs it, in a folder of its own, with the settings of the tests."""
    folder = tmp_path_factory.mktemp("scenario")
    documents, root = folder / "documents.json", folder / "run"
    arguments = [sys.executable, "-m", "tests.cloud.play_scenario", "--json", str(documents), "--folder", str(root)]
    # The CDK's validation takes a third of a synthesis. `make check` and tests/infra validate the same constructs.
    environment = {**os.environ, "CDK_VALIDATION": "false"}
    try:
        done = subprocess.run(
            arguments, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=840
        )
    finally:
        local_cloud.down(root)
    assert done.returncode == 0, done.stdout + done.stderr
    return Played(done.stdout, done.stderr, json.loads(documents.read_text()), root / ".slackwater")


@pytest.fixture(scope="module")
def versions(played) -> dict[str, Rows]:
    """The rows that each version of a day must have, by the day and the part that published it."""
    first = {day: played.daily("published", day) for day in DAYS}
    return {
        **first,
        "tuesday without a file": played.daily("lost", TUESDAY),
        "monday with more orders": played.daily("changed", MONDAY),
        "monday with a late file": played.daily("older", MONDAY),
        "tuesday by the new definition": played.daily("defined", TUESDAY, PAID),
    }


def weekly(*days: Rows) -> Rows:
    """Compute the week's rows from those of its days."""
    rows = [row for day in days for row in day]
    products = sorted({row[1] for row in rows})
    return [
        [WEDNESDAY, product, *(sum(row[column] for row in rows if row[1] == product) for column in (2, 3, 4))]
        for product in products
    ]


def check_comparison(comparison: dict[str, Any], before: Rows, after: Rows) -> None:
    """Compare every number of a comparison of two versions that have the same products."""
    old, new = ({row[1]: row[2:] for row in rows} for rows in (before, after))
    assert old.keys() == new.keys()
    changed = [product for product in old if old[product] != new[product]]
    counts = {"before": len(old), "after": len(new), "added": 0, "removed": 0, "changed": len(changed)}
    assert comparison["rows"] == counts
    metrics = {metric["metric"]: metric for metric in comparison["metrics"]}
    for index, name in enumerate(METRICS):
        values = (sum(row[index] for row in old.values()), sum(row[index] for row in new.values()))
        assert (metrics[name]["before"], metrics[name]["after"]) == values
        movers = {mover["key"]["product"]: (mover["before"], mover["after"]) for mover in metrics[name]["movers"]}
        moved = {key: (old[key][index], new[key][index]) for key in changed if old[key][index] != new[key][index]}
        assert movers == moved
        differences = [abs(mover["after"] - mover["before"]) for mover in metrics[name]["movers"]]
        assert differences == sorted(differences, reverse=True)
    examples = {row["key"]["product"]: row["values"] for row in comparison["examples"]}
    for product in changed:
        differing = {name for index, name in enumerate(METRICS) if old[product][index] != new[product][index]}
        assert {name: examples[product][name] for name in differing} == {
            name: [old[product][index], new[product][index]] for index, name in enumerate(METRICS) if name in differing
        }
    assert len(examples) == len(changed)


def file_changes(comparison: dict[str, Any]) -> dict[str, tuple[str, int, int]]:
    """Return the change of each file, and its rows before and after: the sum over its hours."""
    files: dict[str, tuple[str, int, int]] = {}
    for item in (change for source in comparison["inputs"] for change in source["changes"]):
        _, before, after = files.get(item["file"], ("", 0, 0))
        files[item["file"]] = (item["change"], before + item["before"]["rows"], after + item["now"]["rows"])
    return files


def check_message(played: Played, outcome: dict[str, Any], before: Rows, after: Rows) -> None:
    """Check that the message was printed, and that its subject has the right totals of a metric."""
    subject, pipeline = outcome["message"]["subject"], outcome["comparison"]["pipeline"]
    assert subject.startswith(f"{pipeline} {outcome['date']} changed")
    assert f"Notification: {subject}" in played.out
    totals = [[sum(row[column] for row in rows) for rows in (before, after)] for column in (2, 3, 4)]
    # Sums are ranked by their change, divided by the square root of the larger one.
    largest = max(range(3), key=lambda index: abs(totals[index][1] - totals[index][0]) / sqrt(max(totals[index])))
    old, new = totals[largest]
    assert f": {METRICS[largest]} {old:,} -> {new:,} ({100 * (new - old) / old:+.1f} %)" in subject


def late_objects(played: Played, file: str, rows: int) -> str:
    """Return number and size of the stored objects of a file, as it was when it had so many rows."""
    objects = played.cloud.joinpath("s3")
    # Names of objects begin with the digest of the file, which is also a folder of its copy.
    digests = {copy.parent.name[:32] for copy in objects.rglob(file) if "landing" in copy.parts}
    stored: dict[str, list[Path]] = defaultdict(list)
    for path in objects.rglob("*.parquet"):
        if (digest := path.name.partition("-")[0]) in digests:
            stored[digest].append(path)
    [paths] = [paths for paths in stored.values() if rows == sum(pq.read_metadata(path).num_rows for path in paths)]
    return f"{len(paths)} objects, {naturalsize(sum(path.stat().st_size for path in paths))}"


def check_reason(played: Played, part: str, day: str, reason: str, *, late: int, before: int) -> None:
    """Check that the decision about a day has this reason with a percentage of the rows before, and is printed."""
    percent = 100 * late / before
    expected = reason.replace("PERCENT", f"{percent:.1f} %" if percent >= 10 else f"{percent:.3g} %")
    [decided] = [item for item in played.parts[part]["monitor"]["check"]["days"] if item["date"] == day]
    assert decided["reasons"][0].startswith(expected), (decided["reasons"], expected)
    assert expected in " ".join(played.out.split())


def billed_hours(played: Played) -> dict[tuple[str, str, str], list[float]]:
    """Return what EMR Serverless has billed for the jobs of each attempt (`2`) and comparison (`1-2`) of each day."""
    hours: dict[tuple[str, str, str], list[float]] = {}
    stored = json.loads((played.cloud / "state" / "emr_serverless.json").read_text())["payload"]["job_runs"]
    for job in stored:
        arguments = job["request"]["jobDriver"]["sparkSubmit"]["entryPointArguments"]
        option = "--run" if "--run" in arguments else "--comparison"
        of_job = json.loads(arguments[arguments.index(option) + 1])
        part = str(of_job["attempt"]) if option == "--run" else of_job["prefix"].split("/")[-2]
        known = hours.setdefault((of_job["pipeline"], of_job["date"], part), [0.0, 0.0, 0.0])
        for index, name in enumerate(("vCPUHour", "memoryGBHour", "storageGBHour")):
            known[index] += job["billed"][name]
    return hours


def check_cost(cost: dict[str, Any], hours: list[float]) -> None:
    """Compare the hours and the price of a run or a comparison with what was billed, and the prices of the region."""
    prices = json.loads((ROOT / "src/slackwater/costs/us-east-1.json").read_text())
    compute = prices["architectures"]["x86_64"]
    assert [cost["vcpu_hours"], cost["memory_gb_hours"], cost["storage_gb_hours"]] == pytest.approx(hours)
    usd = hours[0] * compute["usd_per_vcpu_hour"] + hours[1] * compute["usd_per_gb_hour"]
    usd += hours[2] * compute["usd_per_storage_gb_hour"]
    usd += cost["lambda_gb_seconds"] * compute["usd_per_lambda_gb_second"]
    usd += cost["transitions"] * prices["usd_per_transition"]
    assert cost["usd"] == pytest.approx(usd, abs=2e-8)


def test_each_part_publishes_what_the_files_of_its_time_give(played, versions):
    first = [versions[day] for day in DAYS]
    without_file = [first[0], versions["tuesday without a file"], first[2]]
    expected = {
        "published": first,
        "lost": without_file,
        "changed": [versions["monday with more orders"], *without_file[1:]],
        "older": [versions["monday with a late file"], *without_file[1:]],
        "defined": [versions["monday with a late file"], versions["tuesday by the new definition"], first[2]],
    }
    assert list(played.parts) == [*expected, "looked_back"]
    for part, days in expected.items():
        assert played.parts[part]["rows"] == [row for day in days for row in day], part
        totals = [[day[0][0], *(sum(row[column] for row in day) for column in (2, 3, 4))] for day in days]
        assert played.parts[part]["totals"] == totals
        for row in totals:
            assert [str(value) for value in row] in [line.split() for line in played.out.splitlines()], row


def test_the_pulls_store_the_files_that_have_changed(played):
    stored = {
        "published": (9, played.orders("published", "*.csv")),
        "lost": (1, played.orders("lost", f"orders-{WEDNESDAY}-06.csv")),
        "changed": (1, played.orders("changed", f"orders-{MONDAY}-12.csv")),
        "older": (1, played.orders("older", f"orders-{MONDAY}-late.csv")),
        "defined": (1, played.orders("defined", f"orders-{TUESDAY}-late.csv")),
    }
    for part, (files, rows) in stored.items():
        pull = played.parts[part]["pull"]
        assert (pull["stored"], pull["rows"], pull["rejected"], pull["failed"]) == (files, rows, 0, 0), part
    assert played.parts["lost"]["pull"]["removed"] == 1


def test_days_that_lose_rows_wait_for_a_person(played):
    part = played.parts["lost"]
    assert played.decisions("lost") == {
        MONDAY: ("ignore", "unchanged"),
        TUESDAY: ("hold", "removed"),
        WEDNESDAY: ("hold", "shrank"),
        "2024-03-07": ("ignore", "current"),
    }
    assert part["monitor"]["days"] == []
    lost = played.orders("published", f"orders-{TUESDAY}-18.csv")
    reasons = {day["date"]: day["hold"]["reason"] for day in part["held"]}
    assert sorted(reasons) == [TUESDAY, WEDNESDAY]
    assert f"{lost} rows" in reasons[TUESDAY]
    assert f"orders-{WEDNESDAY}-06.csv was changed" in reasons[WEDNESDAY]
    # `slackwater run` refuses the day, `release` publishes it, and `keep` keeps the published version.
    assert f"the inputs have lost {lost} rows" in played.err
    products = len(played.daily("lost", TUESDAY))
    assert f"{DAILY} {TUESDAY}: released, published with {products} rows" in played.out
    assert f"{DAILY} {WEDNESDAY}: the published version stays" in played.out
    assert part["held_after"] == []


def test_a_changed_file_runs_its_day_and_the_week_again(played, versions):
    assert played.decisions("changed") == {
        MONDAY: ("rerun", "grown"),
        TUESDAY: ("ignore", "unchanged"),
        WEDNESDAY: ("ignore", "rejected"),
        "2024-03-07": ("ignore", "current"),
    }
    assert played.parts["changed"]["held_after"] == [], "nobody is asked about Wednesday again"
    before, after = versions[MONDAY], versions["monday with more orders"]
    monday = played.outcome("changed", MONDAY)
    check_comparison(monday["comparison"], before, after)
    check_message(played, monday, before, after)
    file = f"orders-{MONDAY}-12.csv"
    rows = (played.orders("published", file), played.orders("changed", file))
    # All rows of a changed file are late.
    change = (
        f"{rows[0]} -> {rows[1]} rows (+{100 * (rows[1] - rows[0]) / rows[0]:,.1f} %), {rows[1]} late rows (PERCENT)"
    )
    reason = f"orders has 1 changed file, {change}, {late_objects(played, file, rows[1])}"
    read = played.orders("published", f"orders-{MONDAY}-*.csv")
    check_reason(played, "changed", MONDAY, reason, late=rows[1], before=read)
    assert file_changes(monday["comparison"]) == {file: ("changed", *rows)}

    # People are notified of the release as well.
    tuesday = played.outcome("changed", TUESDAY)
    check_comparison(tuesday["comparison"], versions[TUESDAY], versions["tuesday without a file"])
    check_message(played, tuesday, versions[TUESDAY], versions["tuesday without a file"])
    removed = f"orders-{TUESDAY}-18.csv"
    assert file_changes(tuesday["comparison"]) == {removed: ("removed", played.orders("published", removed), 0)}

    weeks = [
        weekly(*(versions[day] for day in DAYS)),
        weekly(after, versions["tuesday without a file"], versions[WEDNESDAY]),
    ]
    assert [played.parts[part]["weekly_rows"] for part in ("published", "changed")] == weeks
    week = played.outcome("changed", WEDNESDAY, "weekly")
    metrics = [metric for metric in week["comparison"]["metrics"] if metric["metric"] != "days"]
    check_comparison({**week["comparison"], "metrics": metrics}, *weeks)
    check_message(played, week, *weeks)
    assert sorted(file_changes(week["comparison"])) == [f"{DAILY} {MONDAY}", f"{DAILY} {TUESDAY}"]


def test_data_older_than_the_window_waits_for_a_run_by_hand(played, versions):
    decisions = played.decisions("older")
    assert list(decisions) == [TUESDAY, WEDNESDAY, "2024-03-07", "2024-03-08"]
    assert {decision for decision, _ in decisions.values()} == {"ignore"}
    events = played.orders("older", f"orders-{MONDAY}-*.csv")
    products = len(versions["monday with a late file"])
    assert f"{DAILY} {MONDAY}: published {products} rows from {events} events" in played.out
    # The run has computed the late file alone, and its rows and counts are those of all files.
    stages = {
        int(path.parts[-3]): json.loads(path.read_text())
        for path in played.cloud.rglob(f"runs/{DAILY}/{MONDAY}/*/*/orders_by_product/reference.json")
    }
    assert {attempt: stage["is_merged"] for attempt, stage in stages.items()} == {1: False, 2: False, 3: True}
    [manifest] = played.cloud.rglob(stages[3]["manifest"].removeprefix("s3://"))
    [step] = json.loads(manifest.read_text())["steps"]
    assert (step["rows_in"], step["rows_out"]) == ({"orders": events}, products)
    # The next monitoring notifies people of it.
    monday = played.outcome("defined", MONDAY)
    check_comparison(monday["comparison"], versions["monday with more orders"], versions["monday with a late file"])
    check_message(played, monday, versions["monday with more orders"], versions["monday with a late file"])


def test_a_new_definition_and_late_data_are_both_named(played, versions):
    before, after = versions["tuesday without a file"], versions["tuesday by the new definition"]
    tuesday = played.outcome("defined", TUESDAY)
    check_comparison(tuesday["comparison"], before, after)
    check_message(played, tuesday, before, after)
    both = "late data and a new definition"
    assert both in f"{tuesday['message']['subject']} {tuesday['message']['body']}".lower()
    assert f"{both.capitalize()} have changed" in played.out
    late = f"orders-{TUESDAY}-late.csv"
    rows = played.orders("defined", late)
    assert file_changes(tuesday["comparison"]) == {late: ("added", 0, rows)}
    reason = f"orders grew by {rows} rows (PERCENT), {late_objects(played, late, rows)}"
    read = played.orders("lost", f"orders-{TUESDAY}-*.csv")
    check_reason(played, "defined", TUESDAY, reason, late=rows, before=read)
    # Of the late data alone, the totals would be others.
    assert after != played.daily("defined", TUESDAY)
    monday = played.outcome("defined", MONDAY)["message"]
    assert "new definition" not in f"{monday['subject']} {monday['body']}".lower()


def test_history_and_cost_count_each_run(played, versions):
    history = played.parts["looked_back"]["history"]
    assert [version["version"] for version in history] == [1, 2, 3]
    assert [version["reasons"] for version in history] == [["first"], ["late_data"], ["late_data", "new_definition"]]
    rows = [played.orders(part, f"orders-{TUESDAY}-*.csv") for part in ("published", "lost", "defined")]
    assert [version["input_rows"] for version in history] == rows
    published = [versions[key] for key in (TUESDAY, "tuesday without a file", "tuesday by the new definition")]
    assert [version["rows"] for version in history] == [len(version) for version in published]
    runs = {(day["pipeline"], day["date"]): (day["runs"], day["reruns"]) for day in played.parts["looked_back"]["cost"]}
    assert runs == {
        (DAILY, MONDAY): (3, 2),
        (DAILY, TUESDAY): (3, 2),
        (DAILY, WEDNESDAY): (1, 0),
        ("weekly_orders", WEDNESDAY): (2, 1),
    }


def test_costs_are_the_billed_hours_times_the_prices_of_the_region(played):
    billed, printed = billed_hours(played), {}
    for line in played.out.partition("$ slackwater cost")[2].splitlines():
        name, *cells = line.split() or [""]
        if name in {DAILY, "weekly_orders"}:
            printed[name, cells[0]] = [None if cell == "-" else float(cell) for cell in cells[4:9]]
    for day in played.parts["looked_back"]["cost"]:
        name = day["pipeline"], day["date"]
        runs = [(item["attempt"], item["cost"], str(item["attempt"])) for item in day["of_runs"]]
        pairs = [(item["after"], item["cost"], f"{item['before']}-{item['after']}") for item in day["of_comparisons"]]
        # No check has followed the last monitoring, so the costs of its comparisons are not recorded yet.
        known = [(attempt, cost, part) for attempt, cost, part in (*runs, *pairs) if cost]
        assert day["unknown"] == len(runs) + len(pairs) - len(known)
        assert {attempt for attempt, cost, _ in runs if cost is None} == set()
        for _, cost, part in known:
            check_cost(cost, billed[*name, part])
        hours = [fsum(cost[key] for _, cost, _ in known) for key in ("vcpu_hours", "memory_gb_hours")]
        comparisons = [cost["usd"] for _, cost, part in known if "-" in part]
        usd = [
            fsum(cost["usd"] for _, cost, _ in known),
            fsum(comparisons) if comparisons or not pairs else None,
            # Each attempt after the first was started for late data.
            fsum(cost["usd"] for attempt, cost, _ in known if attempt > 1),
        ]
        assert [day["vcpu_hours"], day["memory_gb_hours"]] == pytest.approx(hours)
        assert printed[name] == pytest.approx([*hours, *usd], abs=1e-6)
    assert len(printed) == len(played.parts["looked_back"]["cost"])


def test_the_estimate_beside_a_cost_is_the_median_price_of_the_rows_of_earlier_runs(played):
    runs = [
        {"of": (day["pipeline"], day["date"]), **run}
        for day in played.parts["looked_back"]["cost"]
        for run in day["of_runs"]
    ]
    checked = 0
    for run in runs:
        pipeline, date = run["of"]
        prices = [
            earlier["cost"]["usd"] / earlier["rows"]
            for earlier in runs
            if earlier["of"][0] == pipeline and earlier["of"][1] <= date
            if earlier["started_at"] < run["started_at"] and not earlier["merged"]
        ]
        if prices and not run["merged"]:
            # An earlier run may have got its last transitions priced after the estimate.
            assert run["estimated_usd"] == pytest.approx(median(prices) * run["rows"], rel=0.005), run
            checked += 1
    assert checked >= 4, runs


def test_the_new_definition_is_only_in_the_copy_of_the_project(played):
    copy = Path(played.parts["defined"]["files"]).parents[1] / "project"
    edited = (copy / "pipelines" / f"{DAILY}.yaml").read_text()
    original = (ROOT / "examples" / "late_orders" / "pipelines" / f"{DAILY}.yaml").read_text()
    assert (PAID in edited, PAID in original) == (True, False)
