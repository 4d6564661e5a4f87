"""The queries of docs/ledger.md, as the page has them, over generated rows: compared with plain Python."""

from __future__ import annotations

import math
import random
import re
import shlex
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.glue import GlueCatalog

from slackwater.aws.ledger_table import IcebergLedger
from slackwater.client.sql import run_query
from slackwater.late.entry import LedgerEntry
from tests.unit.aws.test_ledger_table import ENTRY, DictGlue

pytestmark = pytest.mark.unit

PAGE = Path(__file__).resolve().parents[3] / "docs" / "ledger.md"
COST, NEVER_TAKEN_IN = (
    shlex.split(block)[2] for block in re.findall(r"```\n(slackwater query .*?)```", PAGE.read_text(), re.DOTALL)
)
DAYS = [date(2026, 4, 30), date(2026, 5, 10)]


def an_entry(number: int, choose: random.Random) -> LedgerEntry:
    """Return the row with this number: few days and inputs, so that many rows are about the same ones."""
    decided_at = datetime(2026, 4, 25, tzinfo=UTC) + timedelta(hours=3 * number)
    entry = ENTRY._replace(
        pipeline=choose.choice("pq"),
        date=choose.choice(DAYS),
        source=choose.choice(["flights", "weather"]),
        uri=f"s3://raw/{choose.randrange(30)}",
        etag=choose.choice("12"),
        change=choose.choice(["added", "changed", "removed"]),
        rows=choose.randrange(10**9),
        decided_at=decided_at,
        month=decided_at.strftime("%Y-%m"),
    )
    if choose.random() < 0.5:
        return entry._replace(attempt=choose.randrange(2, 5), cost_usd=choose.choice([None, choose.random()]))
    return entry._replace(
        **dict.fromkeys(("attempt", "cost_usd", "rows_differing", "metric", "metric_change_percent")),
        decision=choose.choice(["ignore", "hold", "defer"]),
        notified=False,
    )


@pytest.fixture(scope="module")
def entries():
    choose = random.Random(15)  # noqa: S311 - the same rows in each test
    return [an_entry(number, choose) for number in range(400)]


@pytest.fixture(scope="module")
def query(entries, tmp_path_factory):
    """Run SQL over the rows in the ledger's own table; return the result as dictionaries."""
    catalog = GlueCatalog("warehouse", client=DictGlue(f"file://{tmp_path_factory.mktemp('warehouse')}"))
    ledger = IcebergLedger(catalog=catalog, database="warehouse")
    ledger.write(entries, replaced=[], version=ledger.read("p", {"2026-05-10"}).version)

    class Tables:
        def published(self, name):
            return catalog.load_table(f"warehouse.{name}").scan().to_arrow()

    def query(sql):
        result = run_query(sql, tables=Tables(), pipelines=[], sources=[])
        return [dict(zip(result.columns, row, strict=True)) for row in result.rows]

    return query


def test_what_the_lateness_of_a_source_has_cost_in_a_month(entries, query):
    rows = [row for row in entries if row.source == "flights" and row.attempt and row.decided_at.month == 5]
    assert len(rows) > 20
    expected = {
        "source": "flights",
        "usd": pytest.approx(math.fsum(row.cost_usd or 0 for row in rows), rel=1e-12),
        "late_rows": sum(row.rows for row in rows),
        "reruns": len({(row.pipeline, row.date, row.attempt) for row in rows}),
    }
    assert query(COST) == [expected]


def test_the_late_inputs_of_a_day_that_no_run_has_taken_in(entries, query):
    latest = {}
    for row in entries:
        if row.date == DAYS[1]:
            latest.setdefault((row.pipeline, *row.key), []).append(row)
    expected = [
        {name: getattr(rows[-1], name) for name in ("pipeline", "uri", "rows", "lateness_hours", "decision", "rule")}
        for rows in latest.values()
        if not any(row.attempt for row in rows)
    ]
    assert len(expected) > 20
    assert sorted(query(NEVER_TAKEN_IN), key=str) == sorted(expected, key=str)


def test_the_columns_of_cost_and_effect_are_those_of_the_rows(entries, query):
    columns = ("attempt", "cost_usd", "rows_differing", "metric", "metric_change_percent", "notified")
    expected = [dict(zip(columns, (getattr(row, name) for name in columns), strict=True)) for row in entries]
    result = query(f"SELECT {', '.join(columns)} FROM ledger")
    assert sorted(result, key=str) == sorted(expected, key=str)
