"""A day whose inputs vanish, or are removed by the partner, is on hold until a person releases it."""

from __future__ import annotations

from datetime import date

import pytest

from examples.nyc_flights.feed import flights_files

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

DAY, AS_OF = "2013-04-20", "2013-04-22"
DECIDE = ("daily_delays", "--date", DAY)


def jobs_of_day(cloud):
    # Other days of the shared deployment may be compared at the same time.
    return sum(job["name"].startswith(f"daily_delays {DAY} ") for job in cloud.jobs())


def holds_of_day(cloud):
    # Other tests leave days on hold in the shared deployment.
    return [hold for hold in cloud.json("late", "daily_delays")["days"] if hold["date"] == DAY]


def flights(cloud):
    return cloud.query(f"SELECT sum(flights) FROM daily_delays WHERE date = '{DAY}'")[0][0]


def test_a_day_whose_inputs_vanish_is_held_listed_refused_and_published_when_it_is_released(cloud, partner):
    files = flights_files(date.fromisoformat(DAY))
    for name, content in files.items():
        partner.put(name, content)
    cloud.json("pull", "flights", "--as-of", DAY)
    cloud.json("run", *DECIDE)
    all_flights = sum(len(content.splitlines()) - 1 for content in files.values())
    assert (flights(cloud), jobs_of_day(cloud)) == (all_flights, 1)

    # 18:00 UTC is 14:00 in New York.
    gone = {"Bucket": cloud.outputs()["RawBucket"], "Prefix": f"raw/source=flights/date={DAY}/hour=18/"}
    # The flights of the evening, in a file that the partner removes.
    evening = f"flights-{DAY}-20.csv"
    partner.remove(evening)
    pulled = cloud.json("pull", "flights", "--as-of", DAY)
    assert (pulled["removed"], pulled["doubtful"]) == (1, 0)
    removed_rows = len(files[evening].splitlines()) - 1
    (lost,) = cloud.client("s3").list_objects_v2(**gone)["Contents"]
    (lost_rows,) = cloud.query(f"SELECT count(*) FROM raw.flights WHERE date = '{DAY}' AND hour = '18'")[0]
    cloud.client("s3").delete_object(Bucket=gone["Bucket"], Key=lost["Key"])
    cloud.json("monitor", "daily_delays", "--as-of", AS_OF)
    (held,) = holds_of_day(cloud)
    assert held["rule"] == "vanished"
    assert f"lost 1 object with {lost_rows} rows" in held["reason"]
    assert f"the partner has removed 1 file, {evening}, with {removed_rows} rows" in held["reason"]

    refused = cloud.slackwater("run", *DECIDE, code=1)
    assert f"the inputs have lost {lost_rows + removed_rows} rows" in refused.err
    assert jobs_of_day(cloud) == 1

    released = cloud.json("late", "release", *DECIDE, "--reason", "the partner withdrew them")
    assert (released["outcome"], released["attempt"]) == ("published", 2)
    assert (flights(cloud), jobs_of_day(cloud)) == (all_flights - lost_rows - removed_rows, 2)
    assert holds_of_day(cloud) == []
    cloud.json("monitor", "daily_delays", "--as-of", AS_OF)
    assert holds_of_day(cloud) == []
    assert "is not on hold" in cloud.slackwater("late", "reject", *DECIDE, "--reason", "r", code=2).err
