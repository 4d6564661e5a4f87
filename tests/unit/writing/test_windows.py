"""The histogram of five minutes that each raw object has in its metadata."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import ObjectInvalid
from slackwater.receiver.writing.windows import hour_bins, read_windows, windows_in, windows_metadata
from slackwater.sources.event_schema import EVENT_TIME, TIMESTAMP

pytestmark = pytest.mark.unit

HOURS = [datetime(year, 3, 1, 5, tzinfo=UTC) for year in (1, 1969, 1970, 2026, 3000, 9999)]
EDGES = st.sampled_from([0, 299_999_999, 300_000_000])


def of_times(times: list[datetime]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(times, TIMESTAMP)])


@given(
    hour=st.sampled_from(HOURS),
    offsets=st.lists(st.one_of(st.integers(0, 3_600_000_000 - 1), EDGES), max_size=30),
)
def test_bins_are_those_of_the_minutes(hour, offsets):
    times = [hour + timedelta(microseconds=offset) for offset in offsets]
    expected = [sum(time.minute // 5 == number for time in times) for number in range(12)]
    assert list(hour_bins(of_times(times))) == expected


def test_metadata_has_the_bins_in_far_less_than_2_kilobytes():
    bins = tuple(10**10 + number for number in range(12))
    metadata = windows_metadata(bins)
    assert read_windows(metadata) == bins
    assert sum(len(key) + len(value) for key, value in metadata.items()) < 160


@pytest.mark.parametrize("metadata", [{}, {"rows": "3"}, {"windows": "1,2"}, {"windows": ",".join("x" * 12)}])
def test_metadata_without_bins(metadata):
    assert read_windows(metadata) is None


def test_bins_of_an_older_object_are_read_from_its_column():
    times = [HOURS[3] + timedelta(minutes=minutes) for minutes in (0, 4, 5, 59)]
    file = io.BytesIO()
    pq.write_table(pa.table({EVENT_TIME: of_times(times), "id": ["a"] * 4}), file, row_group_size=3)
    assert windows_in(io.BytesIO(file.getvalue()), uri="s3://raw/x") == (2, 1, *[0] * 9, 1)


def test_a_foreign_object_is_named():
    file = io.BytesIO()
    pq.write_table(pa.table({"id": ["a"]}), file)
    for content in (b"no Parquet", file.getvalue()):
        with pytest.raises(ObjectInvalid, match="s3://raw/x has no timestamps"):
            windows_in(io.BytesIO(content), uri="s3://raw/x")
