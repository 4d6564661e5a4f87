"""The inputs of this example: orders to push, files, the pages of an API, and a database.

The same arguments give the same rows. Amounts have at most ten binary digits, so sums are exact in any order.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from openpyxl import Workbook
from pyarrow import parquet

DAY = "2024-03-04"
SHOPS = {"B": "Berlin", "H": "Hamburg", "M": "Munich"}
PRODUCTS = {"chair": ("seats", 79.5), "stool": ("seats", 24.0), "desk": ("tables", 249.0), "lamp": ("light", 34.5)}
"""Category and price by product."""
TARGETS = {"seats": 6000, "tables": 9000, "garden": 500}
RATES = {"EUR": 1.0, "USD": 0.875, "GBP": 1.25, "CHF": 1.125}
DATABASE = (
    "CREATE TABLE customers (customer bigint PRIMARY KEY, segment text NOT NULL, since date NOT NULL)",
    "INSERT INTO customers SELECT n, (ARRAY['private', 'business'])[1 + n % 2], date '2024-03-01' + n::int "
    "FROM generate_series(1, 10) AS n",
    "CREATE SCHEMA reports",
    "CREATE TABLE reports.category_sales (date date, category text, orders int, returned int, items int, "
    "net double precision, largest double precision, target bigint, loaded_at timestamptz DEFAULT now())",
)
"""The statements that create the tables of the database: ten customers, some of them new, and the report."""
_ORDERS = 120
_RATES_PER_PAGE = 2


def orders() -> Iterator[dict[str, Any]]:
    """Yield the orders of the day in Berlin: some are sent again, some are cancelled, some have no quantity."""
    began = datetime.fromisoformat(f"{DAY}T06:00:00+00:00").astimezone(UTC)
    for number in range(_ORDERS):
        ordered = began + timedelta(minutes=7 * number)
        order = {
            "order_id": 1000 + number,
            "ordered_at": ordered.isoformat(),
            "updated_at": ordered.isoformat(),
            "status": "cancelled" if number % 13 == 0 else "paid",
            "shop": list(SHOPS)[number % 3],
            "customer": 1 + number % 12,
            "product": list(PRODUCTS)[number * 7 % 5 % 4],
            "quantity": None if number % 11 == 0 else 60 if number % 50 == 0 else 1 + number % 4,
            "currency": list(RATES)[number // 3 % 4],
        }
        yield order
        if number % 9 == 0:
            yield {**order, "updated_at": (ordered + timedelta(hours=1)).isoformat(), "status": "paid", "quantity": 9}


def files() -> dict[str, bytes]:
    """Return the contents of the project's files by their path."""
    prices = "".join(f"{product},{price}\n" for product, (_, price) in PRODUCTS.items())
    products = [{"product": product, "category": category} for product, (category, _) in PRODUCTS.items()]
    returns = [{"order_id": number, "reason": "broken"} for number in range(1002, 1100, 10)]
    return {
        f"inputs/prices/{DAY}.csv": f"product,price\n{prices}".encode(),
        "inputs/products.json": json.dumps(products).encode(),
        f"inputs/returns/{DAY}.ndjson": b"".join(json.dumps(row).encode() + b"\n" for row in returns),
        "inputs/shops.xlsx": _workbook([("Shop", "City"), *SHOPS.items()]),
        "inputs/targets.parquet": _parquet(pa.table({"category": [*TARGETS], "target": [*TARGETS.values()]})),
    }


def write_pages(folder: Path) -> None:
    """Write the pages of the API, each of which links to the next one."""
    folder.mkdir(parents=True)
    rates = [{"currency": currency, "rate": rate} for currency, rate in RATES.items()]
    for page, first in enumerate(range(0, len(rates), _RATES_PER_PAGE), 1):
        is_last = first + _RATES_PER_PAGE >= len(rates)
        content = {
            "rates": rates[first : first + _RATES_PER_PAGE],
            "next": None if is_last else f"rates-{DAY}-{page + 1}.json",
        }
        (folder / f"rates-{DAY}-{page}.json").write_text(json.dumps(content), encoding="utf-8")


def _workbook(rows: list[tuple[str, ...]]) -> bytes:
    workbook, body = Workbook(write_only=True), io.BytesIO()
    sheet = workbook.create_sheet("Shops")
    for row in rows:
        sheet.append(row)
    workbook.save(body)
    return body.getvalue()


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    return sink.getvalue()
