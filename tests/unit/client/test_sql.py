"""SQL over tables in memory: results, errors, and refused statements."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from slackwater.client.sql import run_query
from slackwater.errors import CloudError, InputError

pytestmark = pytest.mark.unit

DELAYS = pa.table({"date": ["2013-03-08", "2013-03-09"], "flights": [7, 9]})
WEATHER = pa.table(
    {
        "origin": ["JFK", "EWR"],
        "hour": [19, 20],
        "_date": ["2013-03-09", "2013-03-09"],
        "_hour": ["00", "01"],
        "_object": [0, 1],
        "_first_received_at": pa.nulls(2, pa.timestamp("us", "UTC")),
    }
)


class Tables:
    """Tables by name; `opened` has the names of those that were opened."""

    def __init__(self, ids=None, **tables):
        self._tables = {"daily_delays": DELAYS, "weather": WEATHER, "secret": DELAYS} | tables
        self._ids = ids
        self.opened = []

    def published(self, pipeline):
        self.opened.append(pipeline)
        return self._tables.get(pipeline)

    def raw(self, source):
        self.opened.append(f"raw.{source}")
        return self._tables[source]

    def id_column(self, source):
        return self._ids


def execute(sql, tables=None):
    pipelines = ["daily_delays", "never_run", "hourly"]
    names = {"pipelines": pipelines, "sources": ["weather", "flights"], "hourly": ["hourly"]}
    result = run_query(sql, tables=tables or Tables(), **names)
    # The statement runs once for each form: both have the same rows.
    assert result.to_arrow().num_rows == len(result.rows)
    return result


def test_a_published_table_has_its_pipelines_name():
    result = execute("SELECT * FROM daily_delays WHERE date = '2013-03-08'")
    assert (result.columns, result.rows) == (["date", "flights"], [("2013-03-08", 7)])


def test_raw_tables_have_the_partition_columns_and_keep_fields_of_those_names():
    result = execute("SELECT date, hour, _hour, origin FROM raw.weather ORDER BY hour")
    assert result.rows == [("2013-03-09", "00", 19, "JFK"), ("2013-03-09", "01", 20, "EWR")]


def test_a_table_can_be_read_twice_in_one_query_and_under_any_case():
    sql = 'SELECT count(*) FROM Daily_Delays a JOIN "daily_delays" b ON a.date = b.date, RAW.Weather'
    assert execute(sql).rows == [(4,)]


def test_only_the_tables_that_are_named_are_opened():
    tables = Tables()
    execute("SELECT 1", tables)
    execute("SELECT weather FROM (SELECT 1 AS weather)", tables)
    assert tables.opened == []
    execute("SELECT * FROM raw.weather", tables)
    assert tables.opened == ["raw.weather"]


@pytest.mark.parametrize("ids", [None, "n"])
def test_filters_and_columns_reach_the_files(tmp_path, ids):
    for hour in ("00", "01"):
        pq.write_table(pa.table({"n": [int(hour)], "text": ["x"]}), tmp_path / f"{hour}.parquet")
    (tmp_path / "01.parquet").write_bytes(b"no Parquet: never opened")
    schema = pa.schema(
        [
            ("n", pa.int64()),
            ("text", pa.string()),
            ("_received_at", pa.timestamp("us", "UTC")),
            ("_date", pa.string()),
            ("_hour", pa.string()),
            ("_object", pa.int64()),
            ("_first_received_at", pa.timestamp("us", "UTC")),
        ]
    )
    partitions = ds.FileSystemDataset.from_paths(
        ["00.parquet", "01.parquet"],
        schema=schema,
        format=ds.ParquetFileFormat(),
        filesystem=pa.fs.SubTreeFileSystem(str(tmp_path), pa.fs.LocalFileSystem()),
        partitions=[
            (ds.field("_date") == "2013-03-09") & (ds.field("_hour") == hour) & (ds.field("_object") == int(hour))
            for hour in ("00", "01")
        ],
    )
    tables = Tables(ids, weather=partitions)
    assert execute("SELECT n FROM raw.weather WHERE hour = '00'", tables).rows == [(0,)]
    with pytest.raises(CloudError, match="could not be read"):
        execute("SELECT n FROM raw.weather", tables)


def duplicates(name, rows, first_received=()):
    """Events of a source: hour, object, id, time of receipt, and a string that identifies the event."""
    columns = ["_hour", "_object", name, "_received_at", "copy"]
    table = pa.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows])
    first = pa.array(first_received or [None] * len(rows), pa.timestamp("us", "UTC"))
    table = table.append_column("_first_received_at", first)
    return table.append_column("_date", pa.array(["2013-03-09"] * len(rows)))


@pytest.mark.parametrize("ids", [("a", "b"), (1, 2)], ids=["text", "numbers"])
def test_the_first_received_event_of_an_id_counts_in_its_partition(ids):
    early, late = datetime(2013, 3, 9, 1, tzinfo=UTC), datetime(2013, 3, 9, 2, tzinfo=UTC)
    one, two = ids
    events = [
        ("00", 0, one, late, "late"),
        ("00", 2, one, early, "early"),
        ("00", 1, two, early, "early, and of the first object"),
        ("00", 3, two, early, "early, and of another object"),
        ("01", 4, one, late, "of another hour"),
        ("01", 4, None, late, "nameless"),
        ("01", 5, None, late, "nameless too"),
    ]
    tables = Tables("key", weather=duplicates("key", events))
    result = execute("SELECT hour, key, copy FROM raw.weather ORDER BY ALL", tables)
    assert result.rows == [
        ("00", one, "early"),
        ("00", two, "early, and of the first object"),
        ("01", one, "of another hour"),
        ("01", None, "nameless"),
        ("01", None, "nameless too"),
    ]
    assert execute("FROM raw.weather", tables).columns == ["hour", "key", "_received_at", "copy", "date"]
    assert len(execute("FROM raw.weather", Tables(weather=duplicates("key", events))).rows) == len(events)


def test_a_changed_file_keeps_its_order_among_the_events_with_an_id():
    times = [datetime(2013, 3, 9, hour, tzinfo=UTC) for hour in (1, 2, 3)]
    events = [
        ("00", 0, "a", times[1], "repeated"),
        ("00", 1, "a", times[2], "corrected"),
        ("00", 2, "b", times[0], "a copy of the first content"),
        ("00", 3, "b", times[2], "corrected"),
        ("00", 4, "c", times[0], "first"),
        ("00", 5, "c", times[2], "corrected"),
    ]
    first_received = [None, times[0], None, times[0], None, times[1]]
    tables = Tables("key", weather=duplicates("key", events, first_received))
    result = execute("SELECT key, copy FROM raw.weather ORDER BY ALL", tables)
    assert result.rows == [("a", "corrected"), ("b", "corrected"), ("c", "first")]


def test_values_have_python_types():
    result = execute("SELECT TIMESTAMPTZ '2013-03-10 07:00:00+00' AS at, 0.1::DECIMAL(3, 1) AS tenth, NULL AS nothing")
    assert result.rows[0][0].isoformat() == "2013-03-10T07:00:00+00:00"
    assert str(result.rows[0][1]) == "0.1"
    assert result.rows[0][2] is None


@pytest.mark.parametrize("sql", ["DESCRIBE daily_delays", "FROM daily_delays", "EXPLAIN SELECT * FROM daily_delays"])
def test_other_read_only_statements_are_executed(sql):
    assert execute(sql).rows


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELEC 1", "syntax error"),
        ("", "one statement is expected, not 0"),
        ("SELECT 1; SELECT 2", "one statement is expected, not 2"),
        ("DROP TABLE daily_delays", "DROP is not allowed"),
        ("INSERT INTO daily_delays VALUES ('2013-03-10', 1)", "INSERT is not allowed"),
        ("COPY daily_delays TO '/tmp/out.csv'", "COPY is not allowed"),
        ("SET threads = 1", "SET is not allowed"),
        ("ATTACH '/tmp/other.db'", "ATTACH is not allowed"),
        ("SELECT * FROM read_text('/etc/hostname')", "Cannot access file"),
        ("SELECT * FROM '/etc/hostname'", "does not exist"),
        ("SELECT nothing FROM daily_delays", "nothing"),
        ("SELECT origin::INT FROM raw.weather", "Could not convert"),
        (
            "SELECT * FROM nowhere",
            r"nowhere does not exist.*\(tables: daily_delays, hourly, never_run, ledger, state, raw.flights, raw.weath",
        ),
        ("SELECT * FROM raw.nowhere", "nowhere does not exist"),
        ("SELECT * FROM secret", "secret does not exist"),
        ("SELECT * FROM weather", "weather does not exist"),
        ("SELECT * FROM ledger", "the ledger is empty: a monitoring writes to it when data is late"),
        ("SELECT * FROM hourly", "hourly has not been published yet: slackwater run hourly --date HOUR"),
        ("SELECT * FROM Never_Run", "never_run has not been published yet: slackwater run never_run --date DATE"),
    ],
)
def test_wrong_sql_is_an_input_error_that_says_why(sql, expected):
    with pytest.raises(InputError, match=f"(?s){expected}"):
        execute(sql)


def test_python_variables_are_no_tables():
    local_table = DELAYS
    with pytest.raises(InputError, match="local_table does not exist"):
        execute("SELECT * FROM local_table")
    assert local_table.num_rows == 2


def test_a_result_is_rows_arrow_or_pandas():
    result = execute("SELECT sum(flights) AS total, max(date) AS date FROM daily_delays")
    assert (result.columns, result.rows) == (["total", "date"], [(16, "2013-03-09")])
    assert result.to_arrow().to_pydict() == {"total": [16], "date": ["2013-03-09"]}
    assert result.to_pandas().to_dict("list") == {"total": [16], "date": ["2013-03-09"]}


def test_a_missing_pandas_is_named(monkeypatch):
    result = execute("SELECT 1")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        result.to_pandas()
