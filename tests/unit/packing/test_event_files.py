"""The files that a run reads in the place of its objects."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from slackwater.errors import ObjectInvalid
from slackwater.runs.packing.event_files import EventFile, event_files
from slackwater.runs.packing.index import INDEX, format_index, packed_object, read_index
from tests.fakes_runs import DictStore

pytestmark = pytest.mark.unit

AT = datetime(2013, 3, 8, tzinfo=UTC)
FOLDERS = {
    name: f"s3://raw/raw/source=taps/date=2013-03-08/hour={hour}/" for name, hour in (("five", "05"), ("six", "06"))
}
FIVE, SIX = FOLDERS.values()


def name(number: int) -> str:
    return f"{number:032x}-1.parquet"


def packed(folder: str, number: int, *members: int):
    """Return a packed object of these members, which have one row each."""
    listed = [(f"{folder}{name(member)}", 7, "e", AT) for member in members]
    return packed_object(f"{folder}{number}.packed", size=100 + number, etag="e", packed_at=AT, members=listed)


def stored(**indexes: list[object]) -> DictStore:
    store = DictStore()
    for hour, objects in indexes.items():
        store.put(f"{FOLDERS[hour]}{INDEX}", format_index(objects))
    return store


def files(store, *uris):
    return {file.uri: file for file in event_files(store, dict.fromkeys(uris, 7))}


def test_packed_objects_are_read_whole_or_for_the_members_that_a_run_has():
    store = stored(five=[packed(FIVE, 1, 1, 2), packed(FIVE, 2, 3, 4, 5)])
    found = files(store, *(f"{FIVE}{name(number)}" for number in (1, 2, 3, 5, 9)))
    assert found == {
        f"{FIVE}1.packed": EventFile(f"{FIVE}1.packed", 101, True, None),
        f"{FIVE}2.packed": EventFile(f"{FIVE}2.packed", 102, True, (name(3), name(5))),
        f"{FIVE}{name(9)}": EventFile(f"{FIVE}{name(9)}", 7),
    }


def test_objects_of_one_name_in_several_hours_are_read_where_each_is():
    store = stored(five=[packed(FIVE, 1, 1, 2)], six=[packed(SIX, 3, 2)])
    assert files(store, f"{FIVE}{name(1)}", f"{SIX}{name(1)}") == {
        f"{FIVE}1.packed": EventFile(f"{FIVE}1.packed", 101, True, (name(1),)),
        f"{SIX}{name(1)}": EventFile(f"{SIX}{name(1)}", 7),
    }


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"objects": [{"name": "a"}]}',
        b'{"objects": [{"name": "a", "bytes": 1, "members": [[]]}]}',
        b'{"objects": [{"name": "a", "bytes": 1, "members": ["abc"]}]}',
    ],
)
def test_an_index_that_is_not_readable_is_named_with_the_remedy(body):
    store = DictStore()
    store.put(f"{FIVE}{INDEX}", body)
    for read in (lambda: read_index(store, FIVE), lambda: files(store, f"{FIVE}{name(1)}")):
        with pytest.raises(ObjectInvalid, match=r"hour=05/members\.json is not readable .* restore its former version"):
            read()
