"""Every step of the registry and one of a user's package run deployed: `examples/all_steps`.

All results are compared with those that DuckDB computes from the same orders, files, pages and tables.
"""

from __future__ import annotations

import dataclasses
import io
import json
from datetime import date

import duckdb
import openpyxl
import pyarrow.parquet as pq
import pytest

from examples.all_steps import inputs
from examples.all_steps.run import SECRET, SOURCE, store_inputs
from tests.cloud.rights import Attempt
from tests.cloud.test_rights import RoleClients

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(600)]

DAY = inputs.DAY
COMMISSION = 12.5
LINES = f"""
CREATE TABLE order_lines AS
  WITH latest AS (
    SELECT DISTINCT ON (order_id) * FROM orders ORDER BY order_id, updated_at DESC
  )
  SELECT
    DATE '{DAY}' AS date, order_id, city, customer, product, coalesce(quantity, 1) AS quantity, category, segment,
    coalesce(quantity, 1) * price * rate AS gross, gross * (100 - {COMMISSION}) / 100 AS net
  FROM latest
  JOIN shops ON shop = code JOIN products USING (product) JOIN rates USING (currency)
  LEFT JOIN (FROM customers WHERE since <= DATE '{DAY}') USING (customer)
  WHERE status = 'paid'
"""
SALES = f"""
CREATE TABLE category_sales AS
  WITH sold AS (
    SELECT category, count(*) AS orders, count(reason) AS returned, sum(quantity)::INT AS items, sum(net) AS net,
      max(net) AS largest
    FROM order_lines LEFT JOIN returns USING (order_id) WHERE quantity BETWEEN 1 AND 50 GROUP BY category
  )
  SELECT DATE '{DAY}' AS date, category, orders, returned, items, net, largest, target
  FROM sold FULL JOIN targets USING (category)
"""
# Tukey's fences: 1.5 interquartile ranges below the first quartile, and above the third one.
OUTLIERS = """
CREATE TABLE flagged AS
  WITH sold AS (FROM order_lines LEFT JOIN returns USING (order_id) WHERE quantity BETWEEN 1 AND 50),
  quartiles AS (
    SELECT category, quantile_cont(net, 0.25) AS first, quantile_cont(net, 0.75) AS third FROM sold GROUP BY category
  )
  SELECT sold.*, net NOT BETWEEN first - 1.5 * (third - first) AND third + 1.5 * (third - first) AS net_outlier
  FROM sold JOIN quartiles USING (category)
"""
LINE = "order_id, city, customer, product, quantity, category, segment, gross, net"
FLAGGED = "order_id, category, net, reason, net_outlier"
SALE = "category, orders, returned, items, net, largest, target"


@pytest.fixture(scope="module")
def played(cloud, postgres):
    """Both pipelines have run, one after the other."""
    postgres.execute(*inputs.DATABASE)
    store_inputs(cloud.client, cloud.outputs()["FilesPrefix"])
    token = cloud.json("token", "create", "shops", "--source", SOURCE)["token"]
    shops = dataclasses.replace(cloud, environment={**cloud.environment, "SLACKWATER_TOKEN": token})
    events = cloud.root / "orders.ndjson"
    events.write_text("".join(f"{json.dumps(order)}\n" for order in inputs.orders()))
    assert shops.json("push", SOURCE, str(events))["rejected"] == []
    return {name: cloud.json("run", name, "--date", DAY) for name in ("order_lines", "category_sales")}


@pytest.fixture(scope="module")
def expected(postgres, tmp_path_factory):
    """What DuckDB computes from the inputs."""
    folder, database = tmp_path_factory.mktemp("inputs"), duckdb.connect()
    files = inputs.files()
    (folder / "orders.ndjson").write_text("".join(f"{json.dumps(order)}\n" for order in inputs.orders()))
    (folder / "returns.ndjson").write_bytes(files[f"inputs/returns/{DAY}.ndjson"])
    (folder / "targets.parquet").write_bytes(files["inputs/targets.parquet"])
    for table in ("orders.ndjson", "returns.ndjson", "targets.parquet"):
        database.execute(f"CREATE TABLE {table.partition('.')[0]} AS FROM '{folder / table}'")
    database.execute("CREATE TABLE shops (code TEXT, city TEXT)")
    database.executemany("INSERT INTO shops VALUES (?, ?)", list(inputs.SHOPS.items()))
    database.execute("CREATE TABLE products (product TEXT, category TEXT, price DOUBLE)")
    database.executemany("INSERT INTO products VALUES (?, ?, ?)", [(k, *v) for k, v in inputs.PRODUCTS.items()])
    database.execute("CREATE TABLE rates (currency TEXT, rate DOUBLE)")
    database.executemany("INSERT INTO rates VALUES (?, ?)", list(inputs.RATES.items()))
    database.execute("CREATE TABLE customers (customer BIGINT, segment TEXT, since DATE)")
    database.executemany("INSERT INTO customers VALUES (?, ?, ?)", postgres.execute("SELECT * FROM customers"))
    database.execute(LINES)
    database.execute(SALES)
    database.execute(OUTLIERS)
    return database


def rows_of(expected, columns, table):
    return expected.execute(f"SELECT {columns} FROM {table} ORDER BY 1").fetchall()


def exported(cloud, path):
    """Return the content of a file that a load step has written; of a folder, that of its only part."""
    bucket, _, prefix = cloud.outputs()["FilesPrefix"].removeprefix("s3://").partition("/")
    listed = cloud.client("s3").list_objects_v2(Bucket=bucket, Prefix=f"{prefix}exports/{path}")["Contents"]
    (key,) = [item["Key"] for item in listed if not item["Key"].endswith("_SUCCESS")]
    return cloud.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()


def test_the_published_tables_are_those_of_duckdb(cloud, played, expected):
    assert {name: run["outcome"] for name, run in played.items()} == dict.fromkeys(played, "published")
    for table, columns in (("order_lines", LINE), ("category_sales", SALE)):
        rows = cloud.query(f"SELECT {columns} FROM {table} WHERE date = '{DAY}' ORDER BY 1")
        assert rows == [list(row) for row in rows_of(expected, columns, table)]


def test_the_data_reaches_every_case(expected):
    def count(where, table="order_lines"):
        return expected.execute(f"SELECT count(*) FROM {table} WHERE {where}").fetchone()[0]

    assert 0 < count("TRUE") < len({order["order_id"] for order in inputs.orders()}) < len(list(inputs.orders()))
    assert count("quantity > 50") > 0
    assert count("segment IS NULL") > 0
    assert 0 < count("net_outlier", "flagged") < count("reason IS NULL", "flagged") < count("TRUE", "flagged")
    assert count("orders IS NULL OR target IS NULL", "category_sales") == 2


def test_parquet_and_ndjson_have_the_order_lines(cloud, played, expected, tmp_path):
    parquet, ndjson = exported(cloud, f"order_lines/{DAY}.parquet"), exported(cloud, f"order_lines/{DAY}/")
    read = duckdb.from_arrow(pq.read_table(io.BytesIO(parquet)))
    assert read.select(LINE).order("order_id").fetchall() == rows_of(expected, LINE, "order_lines")
    (tmp_path / "lines.ndjson").write_bytes(ndjson)
    read = duckdb.sql(f"SELECT {LINE} FROM '{tmp_path}/lines.ndjson' ORDER BY 1").fetchall()
    assert read == rows_of(expected, LINE, "order_lines")


def test_csv_workbook_and_database_have_the_sales(cloud, played, expected, postgres, tmp_path):
    sales = rows_of(expected, SALE, "category_sales")
    (tmp_path / "sales.csv").write_bytes(exported(cloud, f"by_category/{DAY}.csv"))
    assert duckdb.sql(f"SELECT {SALE} FROM '{tmp_path}/sales.csv' ORDER BY 1").fetchall() == sales
    (tmp_path / "flagged.csv").write_bytes(exported(cloud, f"flagged/{DAY}.csv"))
    flagged = duckdb.sql(f"SELECT {FLAGGED} FROM '{tmp_path}/flagged.csv' ORDER BY 1").fetchall()
    assert flagged == rows_of(expected, FLAGGED, "flagged")
    workbook = openpyxl.load_workbook(io.BytesIO(exported(cloud, f"category_sales/{DAY}.xlsx")))
    header, *cells = workbook.active.iter_rows(values_only=True)
    assert (header, sorted(cells)) == (tuple(SALE.split(", ")), sales)
    loaded = postgres.execute(f"SELECT date, {SALE} FROM reports.category_sales ORDER BY category")
    assert loaded == [(date.fromisoformat(DAY), *row) for row in sales]
    assert postgres.execute("SELECT target, pipeline, day, attempt FROM reports.slackwater_loads") == [
        ("category_sales", "category_sales", date.fromisoformat(DAY), 1)
    ]


def test_a_job_may_read_the_secret_that_its_steps_name_and_no_other(cloud, played):
    pages = cloud.client("iam").get_paginator("list_roles").paginate()
    arns = [one["Arn"] for page in pages for one in page["Roles"]]
    (role,) = [arn for arn in arns if "categorysalesjob" in arn.lower()]
    cloud.client("secretsmanager").create_secret(Name="all-steps/other", SecretString="{}")
    clients = RoleClients(cloud)
    with clients.role(role):
        reads = {name: {"SecretId": name} for name in (SECRET, "all-steps/other")}
        denied = {name: clients.denied(Attempt("secretsmanager", "get_secret_value", reads[name])) for name in reads}
    assert denied == {SECRET: False, "all-steps/other": True}
