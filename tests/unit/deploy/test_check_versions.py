"""What `slackwater doctor` says of replaced versions."""

from __future__ import annotations

import gzip
import io
import json

import pytest

from slackwater.deploy.check_versions import check_old_versions, replaced
from slackwater.runs.record import version_tag

pytestmark = pytest.mark.unit

GB = 10**9


def metadata(*versions, others=()):
    """The metadata of a table with these versions (date, attempt, bytes), and tags of other systems."""
    snapshots = [
        {"snapshot-id": number, "summary": {"added-files-size": str(size)}}
        for number, (*_, size) in enumerate(versions)
    ]
    tags = {
        version_tag(date=date, run_id="a" * 64, attempt=attempt): {"snapshot-id": number, "type": "tag"}
        for number, (date, attempt, _) in enumerate(versions)
    }
    return {"snapshots": snapshots, "refs": {**tags, **{name: {"snapshot-id": 0, "type": "tag"} for name in others}}}


def test_all_versions_of_a_day_but_the_last_are_replaced():
    table = metadata(("2024-03-01", 1, 10), ("2024-03-02", 1, 20), ("2024-03-01", 9, 30), ("2024-03-01", 10, 40))
    assert replaced(table) == (2, 10 + 30)


@pytest.mark.parametrize("table", [{}, metadata(), metadata(("2024-03-01", 1, 10), others=["weekly", "2024-03-01"])])
def test_a_table_without_replaced_versions_has_none(table):
    assert replaced(table) == (0, 0)


def test_the_price_is_that_of_all_tables_whatever_their_metadata_is_packed_with():
    objects = {
        "a/1.metadata.json": json.dumps(metadata(("2024-03-01", 1, 60 * GB), ("2024-03-01", 2, GB))).encode(),
        "b/1.gz.metadata.json": gzip.compress(
            json.dumps(metadata(("2024-03-01", 3, 40 * GB), ("2024-03-01", 4, GB))).encode()
        ),
    }

    class Glue:
        def get_paginator(self, name):
            assert name == "get_tables"
            return self

        def paginate(self, **arguments):
            assert arguments == {"DatabaseName": "w"}
            yield {"TableList": [{"Parameters": {"metadata_location": "s3://lake/a/1.metadata.json"}}, {"Name": "v"}]}
            yield {"TableList": [{"Parameters": {"metadata_location": "s3://lake/b/1.gz.metadata.json"}}]}

    class S3:
        def get_object(self, **arguments):
            assert arguments.pop("Bucket") == "lake"
            return {"Body": io.BytesIO(objects[arguments["Key"]])}

    found = check_old_versions({"glue": Glue(), "s3": S3()}.get, database="w").found
    assert found.startswith("2 replaced versions of 2 tables: 100.0 GB, about 2.30 USD a month")
