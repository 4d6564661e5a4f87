"""`slackwater dev` on samples of the deployed system: stored events, and published days of another pipeline."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import DATES, ROOT

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(900)]

DAY = DATES[0]
DAILY = "origin, carrier, flights, cancelled"
# Starting Spark takes longer than all loops, and the JVM stays for the next command of a process.
COMMANDS = """
import json, sys
from slackwater.cli.main import run
for arguments in json.load(sys.stdin):
    if code := run(arguments):
        sys.exit(code)
"""


@pytest.fixture(scope="module")
def documents(cloud, published):
    """The documents of three loops: of all rows of the day, of all rows of a table, and of three of them."""
    tried = (("daily_delays", "100000"), ("weekly_delays", "100000"), ("weekly_delays", "3"))
    options = ("--date", DAY, "--once", "--show", "1000", "--json", "--project", str(cloud.project))
    arguments = [["dev", pipeline, "--rows", rows, *options] for pipeline, rows in tried]
    completed = subprocess.run(
        [sys.executable, "-c", COMMANDS],
        cwd=ROOT,
        env=cloud.environment,
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    documents, rest = [], completed.stdout.strip()
    while rest:
        document, end = json.JSONDecoder().raw_decode(rest)
        documents.append(document)
        rest = rest[end:].lstrip()
    return documents


def rows_of_last_step(document):
    """The rows of the last step by name of column."""
    last = document["steps"][-1]
    names = [column["name"] for column in last["columns"]]
    return [dict(zip(names, row, strict=True)) for row in last["rows"]]


def test_a_sample_of_the_whole_day_gives_the_published_rows(cloud, published, documents):
    whole, _, _ = documents
    read = {item["name"]: item["rows"] for item in whole["inputs"]}
    assert sum(read.values()) == published[DAY]["input"]["rows"]
    assert all(item["from"].endswith(f"in {cloud.endpoint}") for item in whole["inputs"])
    expected = cloud.query(f"SELECT {DAILY} FROM daily_delays WHERE date = '{DAY}' ORDER BY ALL")
    assert sorted([row[name] for name in DAILY.split(", ")] for row in rows_of_last_step(whole)) == expected


def test_published_days_are_a_sample_of_a_table(cloud, published, documents):
    _, week, few = documents
    (item,) = week["inputs"]
    assert (item["rows"], item["from"]) == (published[DAY]["publication"]["rows"], "1 published day of daily_delays")
    query = f"SELECT carrier, sum(flights) FROM daily_delays WHERE date = '{DAY}' GROUP BY ALL ORDER BY ALL"
    assert sorted([row["carrier"], row["flights"]] for row in rows_of_last_step(week)) == cloud.query(query)
    assert few["steps"][0]["rows_in"] == {"days": 3}
