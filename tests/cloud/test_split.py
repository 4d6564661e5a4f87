"""The change of a day by late data and by a new definition is split: each total equals one that DuckDB computes."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from tests.cloud.conftest import PAST
from tests.conftest import SALES

pytestmark = [pytest.mark.cloud, pytest.mark.long, pytest.mark.timeout(600)]

DAY, NEXT = "2013-05-20", "2013-05-21"
METRICS = ("sales", "quantity", "revenue")
OLD = "count(*) AS sales, sum(quantity) AS quantity, sum(quantity * price) AS revenue"
NEW = "count(price) AS sales, sum(quantity) AS quantity, 2 * sum(quantity * price) AS revenue"
SHOPS, EVENTS = 5, 40


def write_sales(path: Path, events: range) -> None:
    """Write a file of sales; some have no price, and quality rules reject some. Prices have exact sums."""
    rows = (
        f"{DAY}T{i % 3:02d}:{i:02d}:00Z,{i % SHOPS},{i},{i % 9},{'' if i % 7 == 3 else i % 8 / 4}\n" for i in events
    )
    path.write_text("at,shop,visitor,quantity,price\n" + "".join(rows))


@pytest.fixture
def folder(partner):
    yield partner.folder
    for path in partner.folder.glob(f"s*-{DAY}*"):
        path.unlink()


@pytest.fixture
def definition(cloud, published):
    """The pipeline's file, whose former content is deployed again after the test."""
    path, deploy = cloud.project / "pipelines" / f"{SALES}.yaml", ("run", "daily_delays", "--date", PAST[0])
    before = path.read_text()
    assert OLD in before
    yield lambda text: (path.write_text(before.replace(OLD, text)), cloud.json(*deploy))
    path.write_text(before)
    cloud.json(*deploy)


def totals(folder: Path, files: str, query: str) -> list[float]:
    """Return the day's totals of these files with a definition."""
    select = f"SELECT {query} FROM read_csv('{folder}/{files}') WHERE quantity BETWEEN 1 AND 100"
    [row] = duckdb.sql(select).fetchall()
    return [float(total) for total in row]


def test_the_parts_of_a_change_are_exact_and_in_the_message_and_are_computed_once(cloud, folder, definition, inbox):
    regions = "".join(f"{DAY}T00:00:00Z,{shop},region {shop % 2}\n" for shop in range(SHOPS))
    (folder / f"shops-{DAY}.csv").write_text(f"at,shop,region\n{regions}")
    write_sales(folder / f"sales-{DAY}-0.csv", range(EVENTS))
    for source in ("sales", "shops"):
        cloud.json("pull", source, "--as-of", DAY)
    cloud.json("run", SALES, "--date", DAY)
    # This deployment removes the Arrow files of a run as soon as it has published, and not the rows that it rejects.
    [(count,)] = duckdb.sql(f"SELECT count(*) FROM '{folder}/sales-{DAY}-0.csv' WHERE quantity = 0").fetchall()
    [rule] = cloud.json("sideline", SALES, "--date", DAY)["rules"]
    assert rule["rejected"] == count > 0
    place = {"Bucket": cloud.outputs()["RawBucket"], "Prefix": f"rejected/source=sales/{SALES}/{DAY}/"}
    assert cloud.client("s3").list_objects_v2(**place)["KeyCount"] == 1

    write_sales(folder / f"sales-{DAY}-1.csv", range(EVENTS, EVENTS + 15))
    cloud.json("pull", "sales", "--as-of", DAY)
    definition(NEW)
    cloud.json("monitor", SALES, "--as-of", NEXT)
    [message] = inbox.take(DAY)
    document = json.loads(message["Message"])

    jobs = cloud.jobs()
    split = cloud.json("diff", SALES, "--date", DAY, "--split")["comparison"]["split"]
    assert len(cloud.jobs()) == len(jobs)
    names = [job["name"] for job in jobs if job["name"].startswith(f"{SALES} {DAY}")]
    kinds = sorted(name.removeprefix(f"{SALES} {DAY} ") for name in names if "1-2" in name)
    assert kinds == ["compare 1-2", "compare split 1-2", "split 1-2"]
    before, between, after = (
        totals(folder, files, query)
        for files, query in ((f"sales-{DAY}-0.csv", OLD), (f"sales-{DAY}-*.csv", OLD), (f"sales-{DAY}-*.csv", NEW))
    )
    for name, *expected in zip(METRICS, before, between, after, strict=True):
        [part] = [metric for metric in split["metrics"] if metric["metric"] == name]
        assert [part["before"], part["between"], part["after"]] == expected
        assert [part["data"], part["definition"]] == [expected[1] - expected[0], expected[2] - expected[1]]
        [sent] = [metric for metric in document["metrics"] if metric["metric"] == name]
        assert (sent["data"], sent["definition"]) == (part["data"], part["definition"])
    shown = cloud.slackwater("diff", SALES, "--date", DAY, "--split").out
    assert "Data: the inputs of version 2, with the definition and code of version 1" in shown
    # Nothing of it was published.
    history = cloud.json("history", SALES, "--date", DAY)["versions"]
    assert [version["version"] for version in history] == [1, 2]
    rows = cloud.query(f"SELECT sum(sales), sum(quantity), sum(revenue) FROM {SALES} WHERE date = '{DAY}'")
    assert rows == [after]
