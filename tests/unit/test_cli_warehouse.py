"""Raw partitions as a dataset: which files are read, and with which columns."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from slackwater.aws.warehouse import Warehouse
from slackwater.storage import StoredObject

pytestmark = pytest.mark.unit

SCHEMA = pa.schema([("origin", pa.string()), ("hour", pa.int64()), ("added_later", pa.float64())])


class Listing:
    """An object store that lists the files of a folder."""

    def __init__(self, folder):
        self._folder = folder

    def list(self, prefix):
        for path in sorted(self._folder.rglob("*.*")):
            uri = f"s3://{path.relative_to(self._folder)}"
            if uri.startswith(prefix):
                yield StoredObject(uri, path.stat().st_size, "etag", datetime.now(UTC))


@pytest.fixture
def warehouse(tmp_path):
    for date, hour, origins in (("2013-03-08", "05", ["JFK", "EWR"]), ("2013-03-09", "00", ["LGA"])):
        folder = tmp_path / "raw" / "raw" / "source=weather" / f"date={date}" / f"hour={hour}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"origin": origins, "hour": [7] * len(origins)}), folder / "a.parquet")
        (folder / "note.txt").write_text("no Parquet")
    return Warehouse(
        catalog=None,
        files=SubTreeFileSystem(str(tmp_path), LocalFileSystem()),
        store=Listing(tmp_path),
        database="warehouse",
        raw_bucket="raw",
    )


def test_events_come_with_their_partitions_beside_their_own_fields(warehouse):
    found = warehouse.partitions("weather", SCHEMA).to_table()
    assert found.column_names == ["origin", "hour", "added_later", "_date", "_hour"]
    assert found.sort_by("origin").to_pylist() == [
        {"origin": "EWR", "hour": 7, "added_later": None, "_date": "2013-03-08", "_hour": "05"},
        {"origin": "JFK", "hour": 7, "added_later": None, "_date": "2013-03-08", "_hour": "05"},
        {"origin": "LGA", "hour": 7, "added_later": None, "_date": "2013-03-09", "_hour": "00"},
    ]


def test_a_filter_by_partition_leaves_other_files_closed(warehouse):
    wanted = (ds.field("_date") == "2013-03-09") & (ds.field("_hour") == "00")
    fragments = list(warehouse.partitions("weather", SCHEMA).get_fragments(wanted))
    assert [fragment.path for fragment in fragments] == ["raw/raw/source=weather/date=2013-03-09/hour=00/a.parquet"]


def test_a_source_without_events_has_its_columns(warehouse):
    found = warehouse.partitions("flights", SCHEMA).to_table()
    assert found.num_rows == 0
    assert found.column_names == ["origin", "hour", "added_later", "_date", "_hour"]
