"""A day of two million events, whose late data changes it.

All numbers are compared with those that DuckDB computes from the partner's files.
"""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slackwater import Client
from slackwater.arrow.exchange import DRIVER_BYTES, DRIVER_ROWS
from slackwater.runs.record import RunReason
from tests.conftest import SALES

pytestmark = [pytest.mark.cloud, pytest.mark.long, pytest.mark.timeout(900)]

DAY, HOURS = "2013-04-15", 8
EVENTS, LATE_EVENTS = 2_000_000, 20_000
METRICS = ("sales", "quantity", "revenue")
# Prices are multiples of 1/4, so that sums are exact and equal in any order of the rows.
GENERATE = """
COPY (
  SELECT
    strftime(TIMESTAMP '{day}' + INTERVAL ({hour}) HOUR + INTERVAL (hash(i, 1) % 3600) SECOND, '%xT%XZ') AS at,
    hash(i, 2) % 1000 AS shop,
    hash(i, 3) % 1000000000 AS visitor,
    if(hash(i, 4) % 500 = 0, 0, 1 + hash(i, 5) % 9) AS quantity,
    if(hash(i, 6) % 100 = 0, NULL, (1 + hash(i, 7) % 400) / 4) AS price
  FROM range({first}, {last}) AS events(i)
) TO '{path}'
"""
GENERATE_SHOPS = """
COPY (
  SELECT '{day}T00:00:00Z' AS at, shop, 'region ' || shop % 20 AS region FROM range(990) AS shops(shop)
) TO '{path}'
"""
TABLES = """
CREATE OR REPLACE TABLE sales AS
  FROM read_csv('{folder}/sales-{day}-*.csv', columns = {{
    'at': 'TIMESTAMP', 'shop': 'BIGINT', 'visitor': 'BIGINT', 'quantity': 'BIGINT', 'price': 'DOUBLE'
  }});
CREATE OR REPLACE TABLE shops AS FROM read_csv('{folder}/shops-{day}.csv');
CREATE OR REPLACE TABLE expected AS
  SELECT
    shop, hour(sales.at) AS hour, region, count(*) AS sales, sum(quantity)::BIGINT AS quantity,
    sum(quantity * price) AS revenue
  FROM sales LEFT JOIN shops USING (shop) WHERE quantity BETWEEN 1 AND 100 GROUP BY ALL
"""
COUNTS = """
SELECT
  count(*), count_if(quantity BETWEEN 1 AND 100), count_if(price IS NULL),
  count_if(quantity BETWEEN 1 AND 100 AND shop NOT IN (SELECT shop FROM shops))
FROM sales
"""


class Expected:
    """What DuckDB computes from the files that the partner has at this time."""

    def __init__(self, folder: Path) -> None:
        self.database = duckdb.connect()
        self.database.execute(TABLES.format(folder=folder, day=DAY))
        [(self.events, self.kept, self.without_price, self.unmatched)] = self.database.execute(COUNTS).fetchall()
        totals = "SELECT sum(sales), sum(quantity), sum(revenue) FROM expected"
        [self.totals] = self.database.execute(totals).fetchall()
        self.rows = self.ordered("expected")

    def ordered(self, table: str | pa.Table) -> list[tuple]:
        """Return the rows of a table, which may be one of Arrow, by key."""
        relation = self.database.table(table) if isinstance(table, str) else self.database.from_arrow(table)
        return relation.select(f"shop, hour, region, {', '.join(METRICS)}").order("shop, hour").fetchall()


@pytest.fixture
def partner_folder(partner):
    """The partner's folder. The files of sales and shops are removed after the test: each listing reads all files."""
    yield partner.folder
    for path in [*partner.folder.glob("sales-*"), *partner.folder.glob("shops-*")]:
        path.unlink()


@pytest.fixture
def client(cloud, monkeypatch):
    for name, value in cloud.environment.items():
        monkeypatch.setenv(name, value)
    with Client(cloud.project) as client:
        yield client


def deliver(client, folder):
    """Receive the day, in a file for each hour; return what DuckDB computes from its files."""
    share = EVENTS // HOURS
    for hour in range(HOURS):
        path = folder / f"sales-{DAY}-{hour:02d}.csv"
        duckdb.execute(GENERATE.format(day=DAY, hour=hour, first=hour * share, last=(hour + 1) * share, path=path))
    duckdb.execute(GENERATE_SHOPS.format(day=DAY, path=folder / f"shops-{DAY}.csv"))
    pulled = client.pull("sales", as_of=DAY)
    assert (pulled["stored"], pulled["rows"], pulled["rejected"]) == (HOURS, EVENTS, 0)
    client.pull("shops", as_of=DAY)
    return Expected(folder)


def test_a_day_that_executors_exchange_is_exact_and_so_is_its_version_with_late_data(cloud, client, partner_folder):
    before = deliver(client, partner_folder)
    exchanged = assert_published(cloud, client, before, reason=RunReason.FIRST)
    assert exchanged.rows > DRIVER_ROWS
    assert exchanged.bytes > DRIVER_BYTES

    late = partner_folder / f"sales-{DAY}-late.csv"
    duckdb.execute(GENERATE.format(day=DAY, hour=f"i % {HOURS}", first=EVENTS, last=EVENTS + LATE_EVENTS, path=late))
    assert client.pull("sales", as_of=DAY)["rows"] == LATE_EVENTS
    after = Expected(partner_folder)
    assert_published(cloud, client, after, reason=RunReason.LATE_DATA)
    assert [version.rows for version in client.history(SALES, DAY)] == [len(before.rows), len(after.rows)]

    comparison = client.compare(SALES, DAY).comparison
    changed = len(set(after.rows) - set(before.rows))
    assert comparison.rows.model_dump() == {
        "before": len(before.rows),
        "after": len(after.rows),
        "added": 0,
        "removed": 0,
        "changed": changed,
    }
    totals = [(metric.metric, metric.before, metric.after) for metric in comparison.metrics]
    assert totals == list(zip(METRICS, before.totals, after.totals, strict=True))
    assert {source.source: source.late.rows for source in comparison.inputs} == {"sales": LATE_EVENTS, "shops": 0}


def assert_published(cloud, client, expected, *, reason):
    """Run the day. Its rows, its file, the counts of its steps and its inputs must be those of the partner's files.

    Return the reference of the exchange between its stages.
    """
    run = client.run(SALES, DAY)
    result = run.wait(timeout=200)
    assert (result.outcome, result.publication.rows) == ("published", len(expected.rows))
    assert expected.ordered(run.table().to_arrow()) == expected.rows
    parts = [item.uri for item in client.store.list(f"{cloud.outputs()['FilesPrefix']}exports/sales/{DAY}/")]
    tables = [pq.read_table(pa.BufferReader(client.store.get(uri))) for uri in parts if uri.endswith(".parquet")]
    assert expected.ordered(pa.concat_tables(tables)) == expected.rows

    *_, record = client.runs(SALES, DAY)
    assert record.reasons == (reason,)
    checked, joined, grouped, written = (outcome.record for outcome in client.steps(record).steps)
    assert (checked.rows_in, checked.rows_out) == ({"sales": expected.events}, expected.kept)
    assert checked.effect["rows_rejected"] == expected.events - expected.kept
    failed = {rule["columns"][0]: (rule["checked"], rule["failed"]) for rule in checked.effect["results"]}
    assert failed == {
        "quantity": (expected.events, expected.events - expected.kept),
        "price": (expected.events, expected.without_price),
    }
    assert (joined.rows_in, joined.rows_out) == ({"checked": expected.kept, "shops": 990}, expected.kept)
    assert joined.effect == {"left_unmatched": expected.unmatched}
    assert (grouped.rows_in, grouped.rows_out) == ({"joined": expected.kept}, len(expected.rows))
    assert written.effect["rows"] == len(expected.rows)

    objects = json.loads(client.store.get(result.run.manifest))["objects"]
    hours = expected.database.execute("SELECT strftime(sales.at, '%H'), count(*) FROM sales GROUP BY ALL").fetchall()
    frozen = dict.fromkeys((hour for hour, _ in hours), 0)
    for item in objects:
        if item["source"] == "sales":
            frozen[item["hour"]] += item["rows"]
    assert frozen == dict(hours)
    assert (result.run.files, result.run.rows) == (len(objects), expected.events + 990)
    exchanged, _ = (stage.reference for stage in record.stages)
    return exchanged
