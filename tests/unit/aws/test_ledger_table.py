"""The ledger's Iceberg table, with pyiceberg over a folder and Glue in a dictionary."""

from __future__ import annotations

import ast
import json
import threading
from datetime import UTC, date, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from botocore import xform_name
from botocore.exceptions import ReadTimeoutError
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.schema import Schema

from slackwater.aws import ledger_table, warehouse
from slackwater.aws.clients import default_session
from slackwater.aws.ledger_table import IcebergLedger
from slackwater.aws.warehouse import open_catalog_to_write
from slackwater.errors import DayChanged, Unavailable
from slackwater.late.entry import LedgerEntry
from slackwater.late.ledger import LedgerState
from slackwater.local import layout
from tests.fakes_aws import DictGlue
from tests.fakes_functions import resources_of

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[3]

ENTRY = LedgerEntry(
    pipeline="p", date=date(2013, 3, 10), source="s", file=None, uri="s3://raw/a", etag="1", change="added",
    arrived=datetime(2013, 3, 12, 1, 2, 3, 456, tzinfo=UTC), lateness_hours=21.5, rows=3, bytes=4,
    decided_at=datetime(2013, 4, 1, tzinfo=UTC), decision="rerun", rule="grown", reason="it's 'late'", execution="m",
    attempt=2, cost_usd=0.25, rows_differing=7, metric="flights", metric_change_percent=-1.5, notified=True,
    month="2013-04", rows_before=100, table_rows=50,
)  # fmt: skip
OTHERS = [
    ENTRY._replace(date=date(2013, 3, 9)),
    ENTRY._replace(pipeline="q"),
    ENTRY._replace(
        uri="s3://raw/b", lateness_hours=None, execution=None, attempt=None, cost_usd=None, rows_differing=None,
        metric=None, metric_change_percent=None, notified=False,
    ),
]  # fmt: skip


@pytest.fixture
def ledger(tmp_path):
    catalog = GlueCatalog("warehouse", client=DictGlue(f"file://{tmp_path}"))
    return IcebergLedger(catalog=catalog, database="warehouse")


def test_rows_are_read_by_pipeline_and_day_and_a_stale_version_adds_nothing(ledger):
    empty = ledger.read("p", {"2013-03-10"})
    assert empty == LedgerState((), None)
    assert ledger.write([ENTRY, *OTHERS], replaced=[], version=empty.version)
    assert not ledger.write([ENTRY], replaced=[], version=empty.version)
    state = ledger.read("p", {"2013-03-10"})
    assert sorted(state.entries) == [ENTRY, OTHERS[2]]
    assert ledger.write([ENTRY._replace(etag="2")], replaced=[], version=state.version)
    assert not ledger.write([ENTRY._replace(etag="3")], replaced=[], version=state.version)
    assert [row.etag for row in ledger.read("p", ["2013-03-10", "2013-03-09"]).entries].count("2") == 1
    assert len(ledger.read("p", ["2013-03-10", "2013-03-09"]).entries) == 4
    assert ledger.read("p", {"2013-03-11"}).entries == []


def test_rows_of_an_hour_are_neither_those_of_another_one_nor_of_the_day(ledger):
    hours = [ENTRY._replace(hour=hour) for hour in (0, 1, 23)]
    assert ledger.write([ENTRY, *hours], replaced=[], version=None)
    for entry in (ENTRY, *hours):
        state = ledger.read("p", {entry.period})
        assert state.entries == [entry]
        assert ledger.write([], replaced=[entry._replace(cost_usd=1.0)], version=state.version)
    names = {"2013-03-10", "2013-03-10T00", "2013-03-10T01", "2013-03-10T23"}
    assert [
        (row.period, row.cost_usd) for row in sorted(ledger.read("p", names).entries, key=lambda row: row.period)
    ] == [(name, 1.0) for name in sorted(names)]


def test_a_table_of_an_older_release_gets_the_new_columns_and_keeps_its_rows(ledger):
    columns = [
        field for field in ledger_table._SCHEMA.fields if field.name not in ("rows_before", "table_rows", "hour")
    ]
    table = ledger.catalog.create_table(
        "warehouse.ledger", schema=Schema(*columns), partition_spec=ledger_table._PARTITIONS
    )
    old = {key: value for key, value in ENTRY._asdict().items() if key not in ("rows_before", "table_rows", "hour")}
    table.append(pa.Table.from_pylist([old], schema=Schema(*columns).as_arrow()))
    state = ledger.read("p", {"2013-03-10"})
    assert state.entries == [ENTRY._replace(rows_before=None, table_rows=None)]
    assert ledger.write([ENTRY._replace(etag="2")], replaced=[], version=state.version)
    assert sorted(row.table_rows or 0 for row in ledger.read("p", {"2013-03-10"}).entries) == [0, 50]


def test_another_commit_while_columns_are_added_lets_step_functions_repeat_the_call(ledger, monkeypatch):
    columns = [
        field for field in ledger_table._SCHEMA.fields if field.name not in ("rows_before", "table_rows", "hour")
    ]
    ledger.catalog.create_table("warehouse.ledger", schema=Schema(*columns), partition_spec=ledger_table._PARTITIONS)
    update_table = DictGlue.update_table

    def lose(self, **arguments):
        monkeypatch.setattr(DictGlue, "update_table", update_table)
        raise self.exceptions.ConcurrentModificationException

    monkeypatch.setattr(DictGlue, "update_table", lose)
    with pytest.raises(DayChanged, match=r"another execution has changed the table warehouse\.ledger meanwhile"):
        ledger.read("p", {"2013-03-10"})
    assert ledger.read("p", {"2013-03-10"}) == LedgerState((), None)
    assert "table_rows" in ledger.catalog.load_table("warehouse.ledger").schema().column_names


def test_replacing_the_rows_of_an_attempt_keeps_all_others(ledger):
    rows = [ENTRY._replace(pipeline="x", etag=etag, attempt=attempt) for etag in "ab" for attempt in (2, 3)]
    assert ledger.write(rows, replaced=[], version=ledger.read("x", {"2013-03-10"}).version)
    priced = [row._replace(cost_usd=9.0) for row in rows if row.attempt == 3]
    added = ENTRY._replace(pipeline="x", etag="c")
    assert ledger.write([added], replaced=priced, version=ledger.read("x", {"2013-03-10"}).version)
    kept = [row for row in rows if row.attempt == 2]
    assert sorted(ledger.read("x", {"2013-03-10"}).entries) == sorted([*kept, *priced, added])


def test_of_two_writers_with_the_same_version_one_commits(ledger, monkeypatch):
    version = ledger.read("r", {"2013-03-10"}).version
    load, committed = ledger._table, []

    def load_then_lose():
        table = load()
        if not committed:
            committed.append(True)
            assert ledger.write([ENTRY._replace(pipeline="r", etag="first")], replaced=[], version=version)
        return table

    monkeypatch.setattr(IcebergLedger, "_table", lambda self: load_then_lose())
    assert not ledger.write([ENTRY._replace(pipeline="r", etag="second")], replaced=[], version=version)
    assert [row.etag for row in ledger.read("r", {"2013-03-10"}).entries] == ["first"]


def test_a_commit_whose_answer_is_lost_keeps_its_files_and_is_not_repeated(ledger, monkeypatch):
    version, glue = ledger.read("p", {"2013-03-10"}).version, ledger.catalog.glue
    update = glue.update_table

    def lose_the_answer(**arguments):
        update(**arguments)
        raise ReadTimeoutError(endpoint_url="glue")

    monkeypatch.setattr(glue, "update_table", lose_the_answer)
    with pytest.raises(Unavailable):
        ledger.write([ENTRY], replaced=[], version=version)
    monkeypatch.undo()
    assert not ledger.write([ENTRY], replaced=[], version=version)
    assert ledger.read("p", {"2013-03-10"}).entries == [ENTRY]


class GlueServer(ThreadingHTTPServer):
    """`DictGlue` behind HTTP. It carries out the first update of a table, and loses the answer."""

    def __init__(self, glue):
        super().__init__(("127.0.0.1", 0), GlueRequest)
        self.glue, self.calls = glue, []


class GlueRequest(BaseHTTPRequestHandler):
    def do_POST(self):
        operation = self.headers["x-amz-target"].rpartition(".")[2]
        arguments = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.calls.append(operation)
        status, known = 200, DictGlue.exceptions
        try:
            body = getattr(self.server.glue, xform_name(operation))(**arguments) or {}
        except (known.EntityNotFoundException, known.ConcurrentModificationException) as error:
            status, body = 400, {"__type": type(error).__name__}
        if operation == "UpdateTable" and self.server.calls.count(operation) == 1:
            return
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def glue_server(tmp_path, monkeypatch):
    with GlueServer(DictGlue(f"file://{tmp_path}")) as server:
        threading.Thread(target=server.serve_forever).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        for name, value in layout.environment(endpoint).items():
            monkeypatch.setenv(name, value)
        default_session.cache_clear()
        yield server
        server.shutdown()
    default_session.cache_clear()


def test_a_commit_whose_answer_is_lost_on_the_way_is_sent_once_and_can_be_read(glue_server):
    ledger = IcebergLedger(catalog=open_catalog_to_write(), database="warehouse")
    version = ledger.read("p", {"2013-03-10"}).version
    with pytest.raises(Unavailable):
        ledger.write([ENTRY], replaced=[], version=version)
    assert glue_server.calls.count("UpdateTable") == 1
    assert ledger.read("p", {"2013-03-10"}).entries == [ENTRY]


def test_the_functions_open_the_catalog_to_write(monkeypatch):
    catalog = object()
    monkeypatch.setattr(warehouse, "open_catalog_to_write", lambda: catalog)
    ports = dict.fromkeys(("project", "store", "run_table", "state_machines", "file_cache"))
    names = {"exchange_bucket": "x", "warehouse_database": "w", "warehouse_bucket": "w", "raw_database": "r"}
    resources = resources_of({**names, "raw_bucket": "r"}, **ports)
    assert resources.ledger.table.catalog is catalog
    assert resources.raw_tables.catalog is catalog


def callers(*names: str) -> set[tuple[str, str]]:
    """Return the module and the name of each function that calls one of these."""
    found = set()
    for path in (path for folder in ("src", "lambdas", "glue_jobs") for path in (ROOT / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not any(name in text for name in names):
            continue
        tree, inside = ast.parse(text), {}
        for scope in ast.walk(tree):
            if isinstance(scope, ast.FunctionDef):
                inside |= dict.fromkeys(ast.walk(scope), scope.name)
        found |= {
            (path.stem, inside.get(call, ""))
            for call in ast.walk(tree)
            if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in names
        }
    return found


def test_only_the_function_with_the_guard_opens_a_catalog_to_write():
    """`open_warehouse` is for readers."""
    assert callers("open_catalog") == {("warehouse", "open_warehouse"), ("warehouse", "open_catalog_to_write")}
    assert callers("GlueCatalog", "load_catalog") == {("warehouse", "open_catalog")}
    assert callers("open_warehouse") == {("resources", "warehouse")}
