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
from slackwater.receiver.writing.windows import hourly_bins, read_windows, windows_in, windows_metadata
from slackwater.sources.counts import ALL
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
    found = hourly_bins(pa.table({EVENT_TIME: of_times(times)}), (ALL,))
    assert found == ([{ALL: tuple(expected)}] if times else [])


def test_each_hour_has_its_bins_in_order_of_time():
    minutes = [HOURS[0] + timedelta(minutes=59), HOURS[1], HOURS[1] + timedelta(minutes=61), HOURS[1]]
    found = hourly_bins(pa.table({EVENT_TIME: of_times(minutes[::-1])}), (ALL,))
    assert found == [{ALL: (*[0] * 11, 1)}, {ALL: (2, *[0] * 11)}, {ALL: (1, *[0] * 11)}]


def test_metadata_has_the_bins_in_far_less_than_2_kilobytes():
    bins = {ALL: tuple(10**10 + number for number in range(12))}
    metadata = windows_metadata(bins)
    assert read_windows(metadata, (ALL,)) == bins
    assert sum(len(key) + len(value) for key, value in metadata.items()) < 160


@pytest.mark.parametrize("metadata", [{}, {"rows": "3"}, {"windows": "1,2"}, {"windows": ",".join("x" * 12)}])
def test_metadata_without_bins(metadata):
    assert read_windows(metadata, (ALL,)) is None


def test_bins_of_an_older_object_are_read_from_its_column():
    times = [HOURS[3] + timedelta(minutes=minutes) for minutes in (0, 4, 5, 59)]
    file = io.BytesIO()
    pq.write_table(pa.table({EVENT_TIME: of_times(times), "id": ["a"] * 4}), file, row_group_size=3)
    assert windows_in(io.BytesIO(file.getvalue()), (ALL,), uri="s3://raw/x") == {ALL: (2, 1, *[0] * 9, 1)}


def test_a_foreign_object_is_named():
    file, damaged = io.BytesIO(), io.BytesIO()
    pq.write_table(pa.table({"id": ["a"]}), file)
    pq.write_table(pa.table({EVENT_TIME: of_times([HOURS[3]])}), damaged)
    damaged.seek(4)
    damaged.write(b"\xff" * 16)  # of the first page; the footer stays
    for content in (b"no Parquet", file.getvalue(), damaged.getvalue()):
        with pytest.raises(ObjectInvalid, match="s3://raw/x has no timestamps"):
            windows_in(io.BytesIO(content), (ALL,), uri="s3://raw/x")


def test_events_are_counted_by_value():
    keys = ("region=EU", "region=Süd", "region=")
    times = [HOURS[3] + timedelta(minutes=minutes) for minutes in (0, 4, 5, 59, 59, 59)]
    events = pa.table({EVENT_TIME: of_times(times), "region": ["EU", "Süd", "eu", None, "EU", "other"]})
    expected = {"region=EU": (1, *[0] * 10, 1), "region=Süd": (1, *[0] * 11), "region=": (0, 1, *[0] * 9, 2)}
    assert hourly_bins(events, keys) == [expected]
    metadata = windows_metadata(expected)
    assert read_windows(metadata, keys) == expected
    assert read_windows(metadata, (ALL,)) == {ALL: (2, 1, *[0] * 9, 3)}
    # After a change of the definition, and for an object of before, the columns are read.
    assert read_windows(metadata, ("region=EU", "region=")) is None
    assert read_windows(windows_metadata(*hourly_bins(events, (ALL,))), keys) is None
    file = io.BytesIO()
    pq.write_table(events.drop_columns(["region"]), file, row_group_size=4)
    assert windows_in(io.BytesIO(file.getvalue()), keys, uri="u")["region="] == (2, 1, *[0] * 9, 3)
    file = io.BytesIO()
    pq.write_table(events, file, row_group_size=4)
    assert windows_in(io.BytesIO(file.getvalue()), keys, uri="u") == expected


def test_the_metadata_of_8_values_fits_into_an_object_of_s3():
    bins = {f"region={'ü' * 64}{number}": (10**12,) * 12 for number in range(9)}
    metadata = {"rows": str(10**15), **windows_metadata(bins)}
    assert read_windows(metadata, tuple(bins)) == bins
    assert all(value.isascii() for value in metadata.values())
    assert sum(len(key) + len(value) for key, value in metadata.items()) < 1_800
    realistic = windows_metadata(dict.fromkeys(bins, (10**6 - 1,) * 12))
    assert sum(len(key) + len(value) for key, value in realistic.items()) < 900
