"""Rejected rows of files in which only some rows are rejected: each is stored as plain Python expects it."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.receiver.formats import blocks
from slackwater.sources.definition import GENERATED_ID
from tests.fakes_receiver import RECEIVED, a_source
from tests.pulling import FIRST, HEADER, Setup, csv_of, row
from tests.reading import read_parquet

pytestmark = pytest.mark.unit

SOURCE = a_source(timestamp={"field": "at", "max_age_days": 30, "max_future_hours": 1})
NAMES = ["id", "count", "size", "good", "day", "at"]
WITHOUT_OFFSET = "has no offset, and the source has no `timestamp.timezone` for it"

TIMES = [
    "2013-03-11T12:00:00Z",
    "2013-03-11T12:00:00",
    "2013-03-11 12:00:00.5",
    "2013-01-01T00:00:00Z",
    "2013-03-12T11:00:00+00:00",
    "",
    "NA",
]
IDS = st.sampled_from(["a", "ä\u2028ö", "'", "back\\slash", "\t\x01", "\U0001f600", "NA", "", '"say ""x"""', '"a\nb"'])
ROWS = st.builds(
    "{},{},2.5,true,2013-03-11,{}{}".format,
    IDS,
    st.sampled_from(["1", "", "one", "1_000", "it's", "ü%d{}"]),
    st.sampled_from(TIMES),
    st.sampled_from(["", "", "", ",x", ',"x"']),
)


def expected_reason(cells: list[str]) -> tuple[str, str] | None:
    """Return rule and reason of the first rule that the row breaks."""
    if len(cells) != len(NAMES):
        return "wrong_width", f"the row has {len(cells)} columns, but the header has {len(NAMES)}"
    name, count, *_, at = (None if cell in {"", "NA"} else cell for cell in cells)
    if name is None:
        return "missing", "id: no value, but it is required"
    if count is not None and not re.fullmatch("[0-9]+", count):
        return "wrong_type", f"count: {count!r} is not a whole number"
    if at is None:
        return "missing", "at: no value, but every event needs a timestamp"
    if not re.search("Z|[+]", at):
        return "wrong_type", f"at: {at!r} {WITHOUT_OFFSET}"
    return outside_limits(datetime.fromisoformat(at))


def outside_limits(time: datetime) -> tuple[str, str] | None:
    """Return rule and reason of a row that is too old or in the future."""
    shown = f"at: {time:%Y-%m-%dT%H:%M:%SZ} is more than "
    if time < RECEIVED - timedelta(days=30):
        return "too_old", f"{shown}30 days before it was received"
    if time > RECEIVED + timedelta(hours=1):
        return "in_the_future", f"{shown}1 hour after it was received"
    return None


def expected_records(rows: list[str]) -> tuple[list[str], list[dict[str, object]]]:
    """Return the ids of the accepted rows, and the records of the rejected ones without their batch."""
    accepted, records, line = [], [], 2
    for index, text in enumerate(rows):
        (cells,) = csv.reader(io.StringIO(text, newline=""))
        if (broken := expected_reason(cells)) is None:
            accepted.append(cells[0])
        else:
            rule, reason = broken
            records.append({"index": index, "line": line, "reason": reason, "rule": rule, "text": text})
        line += 1 + text.count("\n")
    return sorted(accepted), records


def assert_stored(rows: list[str]) -> None:
    rows = [row("first").rstrip("\n"), *rows]  # so that the file is not rejected as a whole
    setup = Setup({FIRST: (HEADER + "".join(f"{text}\n" for text in rows)).encode()}, SOURCE)
    assert setup.pull() == {FIRST: "stored"}
    accepted, records = expected_records(rows)
    stored = setup.reject_records()
    origins = [(record.pop("batch_id"), record.pop("origin")) for record in stored]
    assert stored == records
    content = setup.entry(FIRST).content
    assert content is not None
    assert set(origins) <= {(content[:32], f"pull:{FIRST}")}
    assert setup.ids() == accepted
    assert (setup.entry(FIRST).rows, setup.entry(FIRST).rejected) == (len(accepted), len(records))


@given(rows=st.lists(ROWS, max_size=12), block=st.sampled_from([64, 200, 2**20]))
def test_rejected_rows_are_those_of_plain_python(rows, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", block)
        assert_stored(rows)


def test_a_row_is_rejected_once_by_the_first_rule_it_breaks():
    wide, both, missing = ("NA,x,2.5,true,2013-03-11,2013,1", "b,x,2.5,true,2013-03-11,", "NA,x,2.5,true,2013-03-11,NA")
    rows = [wide, both, missing, "c,1,2.5,true,2013-03-11,2013-01-01T00:00:00Z"]
    assert_stored(rows)
    _, records = expected_records(rows)
    assert [record["rule"] for record in records] == ["wrong_width", "wrong_type", "missing", "too_old"]


def test_generated_ids_skip_rejected_rows(monkeypatch):
    """Ids count all rows of the file, so that they stay the same when a retry reads it."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 64)
    good, bad = row("a"), row("b", "2013-03-11T12:00:00")
    setup = Setup({FIRST: csv_of(good, bad, bad, good, bad, good)}, a_source(push={"buffer": "queue"}))
    setup.pull()
    (uri,) = setup.store.uris("/raw/source=")
    ids = read_parquet(setup.store.get(uri))[GENERATED_ID].to_pylist()
    assert [int(each.rpartition("-")[2]) for each in ids] == [0, 3, 5]
    assert {each.rpartition("-")[0] for each in ids} == {hashlib.sha256(setup.partner.files[FIRST]).hexdigest()[:32]}
