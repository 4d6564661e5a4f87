"""Late data on the deployed local cloud: the day is run again once, compared exactly, and notified once."""

from __future__ import annotations

import html
import json
import math
from pathlib import Path
from statistics import fmean

import jsonschema
import pytest

from tests.cloud.conftest import AS_OF, PAST, ended, start
from tests.conftest import LATE
from tests.independent import COLUMNS, COUNTS, daily_delays

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
FIRST = "f.hour NOT BETWEEN 4 AND 7 AND f.hour NOT BETWEEN 20 AND 23"
"""The flights of the files that are not late."""
NOTHING = [None] * len(COLUMNS[3:])
FIRST_WEATHER = "w.time_hour <> TIMESTAMPTZ '2013-03-10 20:00:00+00'"


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """The late day computed from the CSVs, without and with the late data: rows by origin and carrier."""
    folder = tmp_path_factory.mktemp("independent")
    before = daily_delays(folder, LATE, where=FIRST, weather=FIRST_WEATHER)
    return tuple({row[1:3]: row[3:] for row in rows} for rows in (before, daily_delays(folder, LATE)))


@pytest.fixture(scope="module")
def comparison(cloud, monitored):
    return cloud.json("diff", "daily_delays", "--date", LATE)["comparison"]


def test_two_concurrent_monitor_runs_rerun_the_late_day_once_and_send_one_notification(cloud, monitored):
    days = [day for output in monitored.outputs for day in output["days"]]
    assert {day["date"] for day in days} == {LATE}
    assert [day["notified"] for day in days].count(True) == 1
    assert [name for name in monitored.jobs if "compare" not in name] == [f"daily_delays {LATE} delays_by_carrier"]
    runs = [run for run in cloud.json("runs", "daily_delays")["runs"] if run["date"] == LATE]
    assert [run["state"] for run in runs] == ["published", "published"]
    (message,) = monitored.messages
    assert len(message["Subject"]) <= 100
    assert message["Subject"].startswith(f"daily_delays {LATE} changed: ")


def test_a_subscription_with_a_filter_policy_gets_the_messages_of_its_team_only(monitored):
    (message,) = monitored.messages
    ids = {team: [item["MessageId"] for item in messages] for team, messages in monitored.filtered.items()}
    assert ids == {"operations": [message["MessageId"]], "finance": []}


def test_the_message_names_the_late_data_and_its_effect(cloud, monitored, versions):
    before, after = versions
    (message,) = monitored.messages
    document = json.loads(message["Message"])
    contract = json.loads((ROOT / "docs" / "contracts" / "change.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(contract).validate(document)
    assert {name: item["Value"] for name, item in message["MessageAttributes"].items()} == {
        "pipeline": "daily_delays", "date": LATE, "severity": "warning", "team": "operations",
    }  # fmt: skip
    assert document["causes"] == ["late_data"]
    bucket, _, key = document["report"].removeprefix("s3://").partition("/")
    body = cloud.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    body = html.unescape(body)
    assert f"{sum(row[0] for row in before.values())} -> {sum(row[0] for row in after.values())}" in body
    assert f"flights-{LATE}-04.csv" in body
    assert f"slackwater diff daily_delays --date {LATE}" in body


def test_the_comparison_counts_exactly_the_rows_that_the_csvs_say(comparison, versions):
    before, after = versions
    changed = [key for key in before.keys() & after.keys() if not same(before[key], after[key])]
    assert comparison["rows"] == {
        "before": len(before),
        "after": len(after),
        "added": len(after.keys() - before.keys()),
        "removed": len(before.keys() - after.keys()),
        "changed": len(changed),
    }
    assert changed


def test_every_changed_row_has_the_values_that_the_csvs_say(comparison, versions):
    before, after = versions
    keys = {key for key in before.keys() | after.keys() if not same(before.get(key), after.get(key))}
    rows = {(row["key"]["origin"], row["key"]["carrier"]): row["values"] for row in comparison["examples"]}
    assert set(rows) == keys
    for key, values in rows.items():
        old_row, new_row = before.get(key, NOTHING), after.get(key, NOTHING)
        for name, old, new in zip(COLUMNS[3:], old_row, new_row, strict=True):
            if name in values:
                assert (almost_equal(values[name][0], old), almost_equal(values[name][1], new)) == (True, True), (
                    key,
                    name,
                )
            else:
                assert almost_equal(old, new), (key, name)


def test_totals_of_metrics_are_those_of_the_csvs(comparison, versions):
    totals = {metric["metric"]: (metric["before"], metric["after"]) for metric in comparison["metrics"]}
    assert list(totals) == ["flights", "cancelled", "dep_delay_mean", "dep_delay_p90", "on_time_share"]
    for name, pair in totals.items():
        index = COLUMNS.index(name) - 3
        values = [[row[index] for row in rows.values() if row[index] is not None] for rows in versions]
        if COLUMNS.index(name) < COUNTS:
            assert pair == tuple(map(sum, values))
        else:
            total = max if name == "dep_delay_p90" else fmean
            assert pair == pytest.approx([total(column) for column in values], rel=1e-9)


def test_the_largest_movers_are_those_of_the_csvs(comparison, versions):
    before, after = versions
    (flights,) = [metric for metric in comparison["metrics"] if metric["metric"] == "flights"]
    moved = sorted((after[key][0] - before.get(key, [0])[0] for key in after), reverse=True)
    assert [mover["after"] - mover["before"] for mover in flights["movers"]] == moved[:5]
    for mover in flights["movers"]:
        key = (mover["key"]["origin"], mover["key"]["carrier"])
        assert (mover["before"], mover["after"]) == (before[key][0], after[key][0])


def test_the_changed_inputs_are_exactly_the_late_data(comparison, feed):
    flights, weather = sorted(comparison["inputs"], key=lambda source: source["source"])
    late = len(feed.late_weather.read_text().splitlines())
    files = {change["file"] for change in flights["changes"]}
    assert files == {f"flights-{LATE}-04.csv", f"flights-{LATE}-20.csv"}
    assert sum(change["now"]["rows"] for change in flights["changes"]) == 101 + 102
    assert [(change["hour"], change["now"]["rows"]) for change in weather["changes"]] == [("20", late)]
    assert {change["change"] for source in (flights, weather) for change in source["changes"]} == {"added"}


def test_every_published_version_stays_reachable_by_its_tag(cloud, comparison, versions):
    table = cloud.client("glue").get_table(DatabaseName="slackwater_warehouse", Name="daily_delays")["Table"]
    bucket, _, key = table["Parameters"]["metadata_location"].removeprefix("s3://").partition("/")
    metadata = json.loads(cloud.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read())
    for version in (comparison["before"], comparison["after"]):
        assert str(metadata["refs"][version["tag"]]["snapshot-id"]) == version["snapshot_id"]


def test_monitoring_again_finds_no_late_day_and_starts_no_job(cloud, monitored, inbox):
    jobs = len(cloud.jobs())
    (again,) = cloud.json("monitor", "daily_delays", "--as-of", AS_OF)["pipelines"]
    decisions = {day["date"]: day["rule"] for day in again["check"]["days"]}
    assert {decisions[day] for day in PAST} == {"unchanged"}
    assert decisions[AS_OF] == "current"
    assert (again["days"], len(cloud.jobs()), inbox.take(LATE)) == ([], jobs, [])


def test_a_stored_comparison_is_not_computed_again(cloud, comparison):
    jobs = len(cloud.jobs())
    again = cloud.json("diff", "daily_delays", "--date", LATE)["comparison"]
    # Only the costs may have become known since.
    costs = {"comparison_usd": again["comparison_usd"], "after": comparison["after"] | {"cost": again["after"]["cost"]}}
    assert again == comparison | costs
    assert len(cloud.jobs()) == jobs


def test_wrong_input_is_named_in_the_error(cloud, published):
    assert "no pipeline" in cloud.json("monitor", "nothing", code=2)["error"]["message"]
    assert "--as-of" in cloud.json("monitor", "--as-of", "yesterday", code=2)["error"]["message"]
    assert "2999" in cloud.json("monitor", "daily_delays", "--as-of", "2999-01-01", code=2)["error"]["message"]


def test_a_pipeline_that_was_never_run_has_no_late_days(cloud):
    output = ended(cloud, start(cloud, cloud.outputs()["MonitorMachineArn"], {"pipeline": "broken", "as_of": AS_OF}))
    assert output["days"] == []


def same(one, other):
    return one is not None and other is not None and all(map(almost_equal, one, other))


def almost_equal(one, other):
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other
