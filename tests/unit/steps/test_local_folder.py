"""A folder as an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from slackwater.errors import CloudError, InputError, ObjectMissing
from slackwater.steps.io.local_folder import files_below

pytestmark = pytest.mark.unit

NAMES = ("a.csv", "a/b.csv", "a-b.csv", "ab/c/d.csv", "ä b%20.csv", "b/a.csv")


@pytest.fixture
def files(tmp_path: Path):
    return files_below(tmp_path)


@pytest.fixture
def store(files):
    return files.stores()


def uris(files, names) -> list[str]:
    return [f"{files.prefix}{name}" for name in names]


@pytest.mark.parametrize("prefix", ["", "a", "a/", "ab/c", "b/a.csv", "ä", "nothing"])
def test_a_listing_has_all_files_of_a_prefix_in_order_of_uri(files, store, prefix):
    for uri in uris(files, NAMES):
        store.put(uri, b"12")
    listed = list(store.list(f"{files.prefix}{prefix}"))
    assert [item.uri for item in listed] == sorted(uris(files, [name for name in NAMES if name.startswith(prefix)]))
    assert all(item.size == 2 and item.modified.tzinfo for item in listed)
    assert list(store.list(f"{files.prefix}{prefix}", start_after=listed[0].uri if listed else "")) == listed[1:]


def test_a_link_to_a_folder_is_followed_if_the_path_names_it(files, store, tmp_path):
    store.put(f"{files.prefix}a/b.csv", b"")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "broken.csv").symlink_to(tmp_path / "nothing")
    assert [item.uri for item in store.list(files.prefix)] == uris(files, ["a/b.csv"])
    assert [files.name(item.uri) for item in files.find("a/loop/a/*.csv", None)] == ["a/loop/a/b.csv"]


def test_files_are_written_read_and_deleted(files, store):
    uri = f"{files.prefix}new/folder/ü.csv"
    assert store.put_new(uri, b"0123")
    assert not store.put_new(uri, b"other")
    assert (store.get(uri), store.get_range(uri, 1, 2)) == (b"0123", b"12")
    store.put(uri, b"4")
    assert store.get(uri) == b"4"
    store.delete([uri, uri])
    for read in (store.get, lambda uri: store.get_range(uri, 0, 1)):
        with pytest.raises(ObjectMissing, match="no such file"):
            read(uri)


def test_an_error_of_the_operating_system_names_the_file(files, store):
    store.put(f"{files.prefix}a", b"")
    with pytest.raises(CloudError, match=r"could not write .*/a/b: (File exists|Not a directory)"):
        store.put(f"{files.prefix}a/b", b"")


def test_a_path_outside_of_the_folder_is_refused(files):
    with pytest.raises(InputError, match=r"no file x\.csv below file:///"):
        files.find("x.csv", None)
