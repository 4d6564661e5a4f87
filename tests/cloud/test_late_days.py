"""Four late days of two pipelines run at the same time, a day that grows by 4 % does not run again, and the ledger has
late data about which nothing is done.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime
from itertools import combinations
from types import SimpleNamespace

import pytest

from examples.nyc_flights.feed import flights_files
from tests.cloud.conftest import Inbox, ended, start
from tests.cloud.roles import create_queue
from tests.independent import COLUMNS, assert_same_table, daily_delays

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

FLIGHTS, SALES = "daily_delays", "daily_sales"
DAYS = ("2013-02-25", "2013-02-26", "2013-02-27")
GROWN, AS_OF = DAYS[-1], "2013-02-28"
"""The day of both pipelines, and the day after it."""
LATE = [*((FLIGHTS, day) for day in DAYS), (SALES, GROWN)]
LATE_FILES = [f"flights-{day}-12.csv" for day in DAYS]


def sales_file(first: int, last: int) -> str:
    """Return a file with a sale for each number, of three shops."""
    rows = (f"{GROWN}T12:00:00Z,{number % 3},{number},1,1.5\n" for number in range(first, last))
    return "at,shop,visitor,quantity,price\n" + "".join(rows)


def sales_by_shop(sales: int) -> list[list[int]]:
    count = Counter(number % 3 for number in range(sales))
    return [[shop, number, number] for shop, number in sorted(count.items())]


def deliver_sales(cloud, partner, first, last):
    partner.put(f"sales-{GROWN}-{first}.csv", sales_file(first, last))
    assert cloud.json("pull", "sales", "--as-of", GROWN)["rows"] == last - first


def monitoring(cloud, pipeline):
    return start(cloud, cloud.outputs()["MonitorMachineArn"], {"pipeline": pipeline, "as_of": AS_OF})


@pytest.fixture(scope="module")
def late_days(cloud, partner):
    """The days are published, a day grows from 100 sales to 104 and to 110, flights of three days arrive late."""
    files = {name: content for day in DAYS for name, content in flights_files(date.fromisoformat(day)).items()}
    for name in files.keys() - set(LATE_FILES):
        partner.put(name, files[name])
    cloud.json("pull", "flights", "--as-of", AS_OF)
    deliver_sales(cloud, partner, 0, 100)
    with cloud.process("run", FLIGHTS, "--from", DAYS[0], "--to", DAYS[-1]) as flights:
        cloud.json("run", SALES, "--date", GROWN)
        _, errors = flights.communicate(timeout=300)
    assert flights.returncode == 0, errors

    deliver_sales(cloud, partner, 100, 104)
    jobs = {job["id"] for job in cloud.jobs()}
    [of_104] = cloud.json("monitor", SALES, "--as-of", AS_OF)["pipelines"]
    assert {job["id"] for job in cloud.jobs()} == jobs

    deliver_sales(cloud, partner, 104, 110)
    for name in LATE_FILES:
        partner.put(name, files[name])
    cloud.json("pull", "flights", "--as-of", AS_OF)
    sqs = cloud.client("sqs")
    url, queue = create_queue(sqs, "late-days")
    cloud.client("sns").subscribe(TopicArn=cloud.outputs()["ChangeTopicArn"], Protocol="sqs", Endpoint=queue)
    outputs = [ended(cloud, each) for each in [monitoring(cloud, pipeline) for pipeline in (FLIGHTS, SALES)]]
    emr, application = cloud.client("emr-serverless"), cloud.outputs()["ApplicationId"]
    ran = [
        emr.get_job_run(applicationId=application, jobRunId=job["id"])["jobRun"]
        for job in cloud.jobs()
        if job["id"] not in jobs
    ]
    return SimpleNamespace(of_104=of_104, outputs=outputs, jobs=ran, messages=Inbox(sqs, url).take("2013-02"))


def test_a_day_that_grows_from_100_to_104_stays_and_at_110_it_runs_again_at_5_percent(late_days):
    [kept] = [day for day in late_days.of_104["check"]["days"] if day["date"] == GROWN]
    assert (kept["decision"], kept["rule"], late_days.of_104["days"]) == ("ignore", "below", [])
    assert kept["reasons"][0].startswith("sales grew by 4 rows (4 %)")
    [grown] = late_days.outputs[1]["days"]
    assert (grown["date"], grown["outcome"]) == (GROWN, "published")


def test_each_late_day_runs_once_and_leads_to_one_message(late_days):
    names = Counter(tuple(job["name"].split()[:2]) for job in late_days.jobs if " compare " not in job["name"])
    assert names == dict.fromkeys(LATE, 1)
    subjects = [tuple(message["Subject"].split()[:3]) for message in late_days.messages]
    assert sorted(subjects) == sorted((*day, "changed:") for day in LATE)


def test_the_spark_jobs_of_late_days_and_of_pipelines_overlap(late_days):
    """This machine runs as many jobs at the same time as it has cores, so a submitted job may wait for one of them."""
    runs = [job for job in late_days.jobs if " compare " not in job["name"]]
    running, submitted = (
        [
            {one["name"].split()[0], other["name"].split()[0]}
            for one, other in combinations(runs, 2)
            if max(one[since], other[since]) < min(one["endedAt"], other["endedAt"])
        ]
        for since in ("startedAt", "createdAt")
    )
    assert {FLIGHTS} in running, "days of one pipeline"
    assert {FLIGHTS, SALES} in submitted, "days of two pipelines"


def test_the_results_are_those_of_the_original_data(cloud, late_days, tmp_path):
    columns = ", ".join(COLUMNS)
    for day in DAYS:
        rows = cloud.query(f"SELECT {columns} FROM {FLIGHTS} WHERE date = '{day}' ORDER BY origin, carrier")
        assert_same_table(rows, daily_delays(tmp_path, day, weather="false"))
    sales = cloud.query(f"SELECT shop, sales, quantity FROM {SALES} WHERE date = '{GROWN}' ORDER BY shop")
    assert sales == sales_by_shop(110)


RULES = (
    "SELECT date, rule, decision, change, count(*) AS objects, sum(rows)::BIGINT AS rows FROM ledger "
    f"WHERE pipeline = '{SALES}' AND attempt IS NULL AND rule <> 'below' GROUP BY ALL ORDER BY date, rule"
)
AFTER = "2013-03-01"
"""A day that is never published."""


def sale(day, *, shop="1"):
    return f"at,shop,visitor,quantity,price\n{day}T12:00:00Z,{shop},1,1,1.5\n"


def arrive(cloud, day):
    """Tell the queue of arrivals of the object of a day, as EventBridge does."""
    key = f"raw/source=sales/date={day}/hour=12/late.parquet"
    body = json.dumps({"id": day, "key": key, "time": datetime.now(UTC).isoformat(timespec="seconds")})
    event = {"Records": [{"messageId": "m", "body": body}]}
    cloud.client("lambda").invoke(FunctionName="slackwater-check-arrivals", Payload=json.dumps(event))


def monitored(cloud, as_of):
    return ended(cloud, start(cloud, cloud.outputs()["MonitorMachineArn"], {"pipeline": SALES, "as_of": as_of}))


def test_the_ledger_has_each_kind_of_late_data_about_which_nothing_is_done(cloud, partner, late_days):
    def deliver(day, name, content):
        partner.put(f"sales-{day}-{name}.csv", content)
        cloud.json("pull", "sales", "--as-of", day, code=None)  # no event of one file is accepted

    deliver(GROWN, "bad", sale(GROWN, shop="none"))
    deliver(GROWN, "more", sale(GROWN))
    deliver(AFTER, "first", sale(AFTER))
    # Without its manifest, the day is on hold.
    run = cloud.json("runs", SALES, "--date", GROWN)["runs"][-1]
    bucket, _, key = run["input"]["manifest"].removeprefix("s3://").partition("/")
    body = cloud.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    cloud.client("s3").delete_object(Bucket=bucket, Key=key)
    monitored(cloud, "2013-03-03")
    assert cloud.query(RULES) == [
        [GROWN, "event_rejected", "ignore", "rejected", 1, 1],
        [GROWN, "manifest_gone", "hold", "added", 1, 1],
        [AFTER, "never_published", "ignore", "added", 1, 1],
    ]
    # The hold ends, and the day leaves the window. The late sale is below the threshold.
    cloud.client("s3").put_object(Bucket=bucket, Key=key, Body=body)
    monitored(cloud, "2013-03-03")
    arrive(cloud, GROWN)
    monitored(cloud, "2013-04-01")
    monitored(cloud, "2013-04-01")
    assert [row for row in cloud.query(RULES) if row[1] == "older"] == [[GROWN, "older", "ignore", "added", 1, 1]]
    [older] = cloud.json("late", "--older", SALES)["days"]
    assert older["rule"] == "below"
