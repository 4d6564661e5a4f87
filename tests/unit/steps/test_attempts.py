"""Two attempts of a day write the same file or folder, in every order of their calls: the later attempt wins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import md5
from itertools import combinations, count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.errors import InputError, Superseded
from slackwater.steps.files import ProjectFiles
from slackwater.steps.io.attempts import put_object
from slackwater.steps.io.folder_parts import SUCCESS, only_complete_parts, part_name, replace_parts
from tests.fakes_interleaving import take_turns
from tests.fakes_receiver import MemoryStore
from tests.fakes_runs import LONGEST_RUN

pytestmark = pytest.mark.unit

FOLDER = "s3://files/out/"
URI = f"{FOLDER}a.csv"


class VersionStore(MemoryStore):
    """A store with conditional writes; the ETag of each write is another one."""

    def __init__(self):
        super().__init__(clock=lambda: datetime.now(UTC))
        self.etags, self._numbers = {}, count()

    def put(self, uri, body, *, metadata=None):
        super().put(uri, body, metadata=metadata)
        self.etags[uri] = f"{md5(body, usedforsecurity=False).hexdigest()}-{next(self._numbers)}"

    def head(self, uri):
        head = super().head(uri)
        return head and head._replace(etag=self.etags[uri])

    def put_if_match(self, uri, body, *, etag, metadata):
        if uri not in self.objects or self.etags[uri] != etag:
            return False
        self.put(uri, body, metadata=metadata)
        return True

    def delete_if_match(self, uri, *, etag):
        if uri not in self.objects or self.etags[uri] != etag:
            return False
        self.delete([uri])
        return True

    def list(self, prefix, *, start_after=""):
        listed = super().list(prefix, start_after=start_after)
        return [item._replace(modified=self.modified.get(item.uri, datetime.now(UTC))) for item in listed]


def run_of(attempt, *, date="2013-03-10", pipeline="p"):
    return LONGEST_RUN.model_copy(update={"attempt": attempt, "date": date, "pipeline": pipeline})


def orders(calls):
    """Return all orders of two processes with as many calls each."""
    for chosen in combinations(range(2 * calls), calls):
        yield [int(turn in chosen) for turn in range(2 * calls)]


@pytest.mark.parametrize("before", [None, (0, b"new"), (0, b"before")])
def test_of_two_attempts_the_later_one_writes_the_file_in_every_order(before):
    for order in orders(6):
        store = VersionStore()
        if before:
            put_object(store, URI, before[1], run_of(1))
        works = [
            lambda port, store=store, attempt=attempt, body=body: put_object(port(store), URI, body, run_of(attempt))
            for attempt, body in ((2, b"old"), (3, b"new"))
        ]
        take_turns(works, order, after_each=lambda: None)
        assert store.objects[URI] == (b"new", {"pipeline": "p", "date": "2013-03-10", "attempt": "3"}), order


def call_of(store, attempt, **more):
    def write(call):
        names = [part_name(call, 0, number, "csv") for number in range(2)]
        for name in names:
            store.put(FOLDER + name, str(attempt).encode())
        return names

    replace_parts(store, FOLDER, run_of(attempt, **more), write)


def read_by_us(store):
    files = ProjectFiles("s3://files/", lambda: store)
    return {store.get(item.uri) for item in only_complete_parts(files.find("out/", None), files)}


@given(st.lists(st.integers(0, 1), max_size=24), st.booleans())
def test_of_two_attempts_the_later_one_writes_the_folder_in_any_order(order, is_first):
    store = VersionStore()
    if not is_first:
        call_of(store, 1)
    works = [lambda port, attempt=attempt: call_of(port(store), attempt) for attempt in (2, 3)]
    take_turns(works, order, after_each=lambda: None)
    assert read_by_us(store) == {b"3"}
    assert store.head(FOLDER + SUCCESS).metadata["attempt"] == "3"
    assert {body for uri, (body, _) in store.objects.items() if SUCCESS not in uri} == {b"3"}


@given(st.lists(st.integers(0, 3), max_size=60), st.booleans())
def test_jobs_that_write_one_folder_at_once_leave_all_parts_of_one_that_succeeded(order, is_one_day):
    store, succeeded = VersionStore(), []

    def job(number):
        def work(port):
            call_of(port(store), number, date="2013-03-10" if is_one_day else f"2013-03-1{number}")
            succeeded.append(b"%d" % number)

        return work

    # Of one day, two of them are jobs of the same attempt.
    take_turns([job(number) for number in (1, 2, 3, 3 if is_one_day else 4)], order, after_each=lambda: None)
    [body] = read_by_us(store)
    assert body in succeeded
    if is_one_day:
        assert body == b"3"
    else:
        assert len(succeeded) == 4
    assert {body for uri, (body, _) in store.objects.items() if SUCCESS not in uri} == {body}
    assert len(store.objects) == 3


def test_a_job_that_ends_takes_nothing_from_one_of_another_day_and_replaces_what_is_complete():
    store = VersionStore()
    call_of(store, 1, date="2013-03-09")

    def end_another_day(call):
        names = [part_name(call, 0, number, "csv") for number in range(2)]
        store.put(FOLDER + names[0], b"2")
        call_of(store, 3, date="2013-03-11")
        assert {body for body, _ in store.objects.values()} >= {b"2", b"3"}
        store.put(FOLDER + names[1], b"2")
        return names

    replace_parts(store, FOLDER, run_of(2), end_another_day)
    assert read_by_us(store) == {b"2"}
    assert {body for uri, (body, _) in store.objects.items() if SUCCESS not in uri} == {b"2"}


def test_parts_that_a_killed_earlier_attempt_leaves_are_not_read():
    store = VersionStore()
    call_of(store, 2)
    [left, _] = [uri for uri in store.objects if SUCCESS not in uri]
    body = store.objects[left]
    call_of(store, 3)
    store.objects[left] = body
    assert read_by_us(store) == {b"3"}
    call_of(store, 4, date="2013-03-11")
    store.objects[left] = body
    assert read_by_us(store) == {b"4"}
    store.modified[left] = datetime.now(UTC) - timedelta(days=2)
    call_of(store, 5, date="2013-03-11")
    assert left not in store.objects
    store.delete([FOLDER + SUCCESS])
    with pytest.raises(InputError, match="its parts are not those"):
        read_by_us(store)


def test_an_earlier_attempt_is_refused_and_told_what_to_do_in_a_new_deployment():
    store = VersionStore()
    put_object(store, URI, b"new", run_of(3))
    call_of(store, 3)
    before = dict(store.objects)
    with pytest.raises(Superseded, match=r"a.csv: attempt 3 has loaded 2013-03-10 .* this is attempt 2.* delete"):
        put_object(store, URI, b"old", run_of(2))
    with pytest.raises(Superseded, match="attempt 3"):
        call_of(store, 2)
    assert store.objects == before


def test_an_earlier_attempt_leaves_nothing_beside_the_parts_that_a_later_one_is_writing():
    store = VersionStore()

    def end_an_earlier_attempt(call):
        name = part_name(call, 0, 0, "csv")
        store.put(FOLDER + name, b"3")
        with pytest.raises(Superseded, match="attempt 3"):
            call_of(store, 2)
        return [name]

    replace_parts(store, FOLDER, run_of(3), end_an_earlier_attempt)
    assert read_by_us(store) == {b"3"}
    assert len(store.objects) == 2


@pytest.mark.parametrize("other", [{"date": "2013-03-11"}, {"pipeline": "q"}])
def test_another_day_or_pipeline_replaces_what_has_no_date_in_its_path(other):
    store = VersionStore()
    put_object(store, URI, b"3", run_of(3))
    call_of(store, 3)
    put_object(store, URI, b"1", run_of(1, **other))
    del store.objects[URI]
    call_of(store, 1, **other)
    assert read_by_us(store) == {b"1"}


def test_a_folder_of_an_older_version_is_read_and_replaced():
    store, name = VersionStore(), "part-0123456789ab-00000-000.csv"
    store.put(FOLDER + name, b"0")
    store.put(FOLDER + SUCCESS, f'{{"parts": ["{name}"]}}'.encode())
    assert read_by_us(store) == {b"0"}
    call_of(store, 1)
    assert read_by_us(store) == {b"1"}
    assert FOLDER + name not in store.objects
