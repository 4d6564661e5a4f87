"""The scenario of `make scenario`: every number that it prints equals one that DuckDB computes from the files."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

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
    """The whole scenario, as `make scenario` runs it, in a folder of its own."""
    folder = tmp_path_factory.mktemp("scenario")
    documents, root = folder / "documents.json", folder / "run"
    arguments = [sys.executable, "-m", "examples.late_orders.scenario", "--json", str(documents), "--folder", str(root)]
    try:
        done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False, timeout=840)
    finally:
        local_cloud.down(root)
    assert done.returncode == 0, done.stdout + done.stderr
    return Played(done.stdout, done.stderr, json.loads(documents.read_text()))


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
    effects = []
    for column, metric in enumerate(METRICS, start=2):
        old, new = (sum(row[column] for row in rows) for rows in (before, after))
        effects.append(f": {metric} {old:,} -> {new:,} ({100 * (new - old) / old:+.1f} %)")
    assert any(effect in subject for effect in effects), (subject, effects)


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
        "published": (12, played.orders("published", "*.csv")),
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
    # `slackwater run` refuses the day, `release` publishes it, and `reject` keeps the published version.
    assert f"the inputs have lost {lost} rows" in played.err
    products = len(played.daily("lost", TUESDAY))
    assert f"{DAILY} {TUESDAY}: released, published with {products} rows" in played.out
    assert f"{DAILY} {WEDNESDAY}: rejected" in played.out
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
    assert file_changes(tuesday["comparison"]) == {late: ("added", 0, played.orders("defined", late))}
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


def test_the_new_definition_is_only_in_the_copy_of_the_project(played):
    copy = Path(played.parts["defined"]["files"]).parents[1] / "project"
    edited = (copy / "pipelines" / f"{DAILY}.yaml").read_text()
    original = (ROOT / "examples" / "late_orders" / "pipelines" / f"{DAILY}.yaml").read_text()
    assert (PAID in edited, PAID in original) == (True, False)
