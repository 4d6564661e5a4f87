"""The example `copy_period`: order, repetition, crashes at each call, and two events at a time."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Barrier, Lock
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import boto3
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from examples.period_events import copy_period as example
from examples.period_events.copy_period import copy_period, handler
from tests.fakes_aws import FakeAws
from tests.fakes_interleaving import take_turns

pytestmark = pytest.mark.unit

COPY, RAW, EXCHANGE = "copies", "raw", "exchange"
PREFIX = "clicks/hour/2026-11-27T15/"
PAGE = Path(example.__file__).with_name("README.md")
LETTERS = "abcdefghijklmnop"
CALLS = ("get_object", "put_object", "copy_object", "head_object", "delete_object", "get_paginator")


class Crash(Exception):
    """The process ends."""


class Buckets:
    """S3 with the parts of it that the example uses; botocore validates requests and answers."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], bytes] = {}
        self.checksums: dict[bytes, str] = {}
        """CRCs by content; other objects have none, as those of the local cloud."""
        self.copied: list[str] = []
        self.damaged = b""
        """Content that is changed when it is copied."""
        self._lock = Lock()
        self.end_at(None)
        names = ("GetObject", "PutObject", "CopyObject", "HeadObject", "DeleteObject", "ListObjectsV2")
        self.s3 = FakeAws({f"s3:{name}": self._answer(getattr(self, name)) for name in names}).client("s3")

    def _answer(self, method: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
        def answer(request: dict[str, Any]) -> Any:
            with self._lock:  # the example makes calls at the same time
                call = next(self._calls)
                if self._last is not None and call > self._last:
                    raise Crash
                result = method(**request)
                if self._moment == "after" and call == self._last:
                    raise Crash
                return result

        return answer

    def end_at(self, number: int | None, moment: str = "before") -> None:
        """Let the process end before or after one of its next calls; none of its other threads makes a later one."""
        self._calls, self._moment = count(1), moment
        self._last = number - 1 if number is not None and moment == "before" else number

    def etag(self, bucket: str, key: str) -> str:
        return f'"{hashlib.md5(self.objects[bucket, key]).hexdigest()}"'  # noqa: S324 - as S3 does

    def GetObject(self, Bucket, Key, **_):  # noqa: N802, N803
        if (Bucket, Key) not in self.objects:
            return "NoSuchKey"
        return {"Body": io.BytesIO(self.objects[Bucket, Key]), "ETag": self.etag(Bucket, Key)}

    def PutObject(self, Bucket, Key, Body, IfMatch=None, IfNoneMatch=None, **_):  # noqa: N802, N803
        exists = (Bucket, Key) in self.objects
        if (IfNoneMatch and exists) or (IfMatch and not (exists and self.etag(Bucket, Key) == IfMatch)):
            return "PreconditionFailed"
        self.objects[Bucket, Key] = Body.read()
        return {}

    def CopyObject(self, Bucket, Key, CopySource):  # noqa: N802, N803
        bucket, _, key = unquote(CopySource).partition("/")
        content = self.objects[bucket, key]
        self.objects[Bucket, Key] = content[::-1] if content == self.damaged else content
        self.copied.append(Key)
        return {}

    def HeadObject(self, Bucket, Key, ChecksumMode):  # noqa: N802, N803
        content = self.objects.get((Bucket, Key))
        if content is None:
            return "404"
        head = {"ContentLength": len(content), "ETag": self.etag(Bucket, Key)}
        return head | ({"ChecksumCRC64NVME": self.checksums[content]} if content in self.checksums else {})

    def DeleteObject(self, Bucket, Key):  # noqa: N802, N803
        self.objects.pop((Bucket, Key), None)
        return {}

    def ListObjectsV2(self, Bucket, Prefix, **_):  # noqa: N802, N803
        keys = sorted(key for bucket, key in self.objects if bucket == Bucket and key.startswith(Prefix))
        return {"Contents": [{"Key": key} for key in keys]}

    def announce(self, version: int, names: str, **changes: Any) -> dict[str, Any]:
        """Store a file for each letter, and their list; return the detail of the event."""
        files = []
        for name in names:
            key = f"raw/source=clicks/date=2026-11-27/hour=15/{name}.parquet"
            self.objects[RAW, key] = name.encode() * ord(name)
            files.append({"uri": f"s3://{RAW}/{key}", "events": 10, "bytes": ord(name)})
        return self.announce_files(version, names, files, **changes)

    def announce_files(self, version: int, names: str, listed: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
        """Store the list with these names; return the detail of the event."""
        key = f"state/clicks/2026-11-27T15/{names}.json"
        self.objects[EXCHANGE, key] = json.dumps({"source": "clicks", "files": listed}).encode()
        period = {"source": "clicks", "start": "2026-11-27T15:00:00Z", "end": "2026-11-27T16:00:00Z", "unit": "hour"}
        counts = {"state": "complete", "version": version, "stored": 10 * len(listed)}
        return {**period, **counts, "files": f"s3://{EXCHANGE}/{key}", **changes}

    def manifest(self) -> dict[str, Any] | None:
        content = self.objects.get((COPY, f"{PREFIX}manifest.json"))
        return json.loads(content) if content else None

    def copy(self) -> tuple[int, str]:
        """Return version and names of what a reader of the copy sees; every file that is named is there, unchanged."""
        manifest = self.manifest()
        if manifest is None:
            return 0, ""
        for file in manifest["files"]:
            bucket, _, key = file["uri"].removeprefix("s3://").partition("/")
            assert self.objects[COPY, file["key"]] == self.objects[bucket, key]
        return manifest["version"], "".join(file["uri"].removesuffix(".parquet")[-1] for file in manifest["files"])

    def assert_exact(self) -> None:
        """The copy has no other objects than those that its manifest names."""
        manifest = self.manifest()
        named = {file["key"] for file in manifest["files"]} | {f"{PREFIX}manifest.json"} if manifest else set()
        assert {key for bucket, key in self.objects if bucket == COPY} == named


@pytest.fixture
def buckets() -> Buckets:
    return Buckets()


def test_a_newer_version_copies_what_is_new_and_deletes_what_is_no_longer_listed(buckets):
    copy_period(buckets.s3, COPY, buckets.announce(2, "ab"))
    assert buckets.copy() == (2, "ab")
    buckets.copied.clear()
    copy_period(buckets.s3, COPY, buckets.announce(5, "bc"))
    assert (buckets.copy(), [key[-9:] for key in buckets.copied]) == ((5, "bc"), ["c.parquet"])
    buckets.assert_exact()


def test_the_handler_copies_what_the_event_names_to_the_bucket_of_its_variable(buckets, monkeypatch):
    monkeypatch.setattr(boto3, "client", lambda service, **_: {"s3": buckets.s3}[service])
    monkeypatch.setenv("COPY_BUCKET", COPY)
    handler({"source": "slackwater", "detail": buckets.announce(2, "ab")}, None)
    assert buckets.copy() == (2, "ab")


def test_an_older_event_and_a_repeated_one_change_nothing(buckets):
    newer, older = buckets.announce(5, "bc"), buckets.announce(2, "ab")
    copy_period(buckets.s3, COPY, newer)
    before = dict(buckets.objects)
    buckets.copied.clear()
    for event in (older, newer):
        copy_period(buckets.s3, COPY, event)
    assert (buckets.objects, buckets.copied) == (before, [])


@pytest.mark.parametrize("state", ["short", "surplus", "unknown"])
def test_a_period_that_is_not_complete_leaves_the_copy(buckets, state):
    copy_period(buckets.s3, COPY, buckets.announce(2, "ab"))
    copy_period(buckets.s3, COPY, buckets.announce(3, "abc", state=state, files=None))
    assert buckets.copy() == (2, "ab")


def test_an_hour_without_events_has_a_copy_without_files(buckets):
    copy_period(buckets.s3, COPY, buckets.announce(1, ""))
    assert (buckets.manifest() or {})["files"] == []


@pytest.mark.parametrize("has_checksums", [True, False])
def test_a_file_that_changes_on_its_way_is_not_announced_to_readers(buckets, has_checksums):
    event = buckets.announce(2, "ab")
    buckets.damaged = buckets.objects[RAW, "raw/source=clicks/date=2026-11-27/hour=15/b.parquet"] = b"b" * 97 + b"x"
    if has_checksums:
        buckets.checksums = {buckets.damaged: "AAAAAAAAAAA=", buckets.damaged[::-1]: "BBBBBBBBBBB="}
    with pytest.raises(ValueError, match=r"^s3://copies/clicks/.*/b\.parquet differs from s3://raw/raw/.*/b\.parquet$"):
        copy_period(buckets.s3, COPY, event)
    assert buckets.manifest() is None


def test_a_file_with_another_size_than_the_list_says_is_refused(buckets):
    event = buckets.announce(2, "ab")
    buckets.objects[RAW, "raw/source=clicks/date=2026-11-27/hour=15/b.parquet"] = b"b"
    with pytest.raises(ValueError, match="differs from"):
        copy_period(buckets.s3, COPY, event)


def test_a_list_with_fewer_events_than_the_period_is_refused(buckets):
    with pytest.raises(ValueError, match="has fewer events than the 21 that are stored"):
        copy_period(buckets.s3, COPY, buckets.announce(2, "ab", stored=21))
    assert buckets.manifest() is None
    # Events with one id count once, and each is in the files.
    copy_period(buckets.s3, COPY, buckets.announce(3, "ab", stored=19))
    assert buckets.copy() == (3, "ab")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("next_event", [(5, "bcd"), (7, "cd")])
def test_a_process_that_ends_at_any_call_leaves_a_whole_version_and_the_next_event_repairs_the_rest(moment, next_event):
    for number in count(1):
        buckets = Buckets()
        copy_period(buckets.s3, COPY, buckets.announce(2, "ab"))
        event = buckets.announce(5, "bcd")
        buckets.end_at(number, moment)
        try:
            copy_period(buckets.s3, COPY, event)
        except Crash:
            assert buckets.copy() in {(2, "ab"), (5, "bcd")}
        else:
            break
        buckets.end_at(None)
        copy_period(buckets.s3, COPY, buckets.announce(*next_event))
        assert buckets.copy() == next_event
        buckets.assert_exact()
    # The manifest and the list are read. Two files are looked at, and whether they have copies, and are copied and
    # compared; then the manifest, and what is old.
    assert number - 1 == 2 + 2 * 4 + 1 + 2


def test_an_attempt_leaves_the_equal_copies_of_one_that_has_ended_early(buckets, monkeypatch):
    """Each ends after a number of calls, as by its time limit. The period has more files than one attempt copies."""
    monkeypatch.setattr(example, "THREADS", 2)
    event = buckets.announce(2, "abcdefghij")
    for _ in range(3):
        buckets.end_at(30, "before")
        with suppress(Crash):
            copy_period(buckets.s3, COPY, event)
    assert buckets.copy() == (2, "abcdefghij")
    assert len(buckets.copied) == 10
    buckets.assert_exact()


def test_sixteen_files_are_copied_at_the_same_time(buckets):
    started = Barrier(16)

    def copy_object(**request: Any) -> None:
        started.wait(timeout=60)  # fails instead of waiting for ever
        buckets.s3.copy_object(**request)

    others = {name: getattr(buckets.s3, name) for name in (*CALLS, "exceptions")}
    copy_period(SimpleNamespace(**{**others, "copy_object": copy_object}), COPY, buckets.announce(2, LETTERS))
    assert buckets.copy() == (2, LETTERS)


@pytest.mark.parametrize("content", [b"b", b"x" * 98])
@pytest.mark.parametrize("has_checksums", [True, False])
def test_a_copy_that_differs_is_replaced(buckets, content, has_checksums):
    """It is shorter, or has other content of the same size."""
    event = buckets.announce(2, "ab")
    buckets.objects[COPY, f"{PREFIX}files/2/raw/source=clicks/date=2026-11-27/hour=15/b.parquet"] = content
    if has_checksums:
        buckets.checksums = {each: hashlib.md5(each).hexdigest()[:12] for each in buckets.objects.values()}  # noqa: S324
    copy_period(buckets.s3, COPY, event)
    assert buckets.copy() == (2, "ab")
    assert len(buckets.copied) == 2


@given(
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["", "a", "ab", "bc", "abc"])), min_size=2, max_size=3),
    st.lists(st.integers(0, 2), max_size=60),
)
def test_events_at_the_same_time_end_with_the_newest_version(events, order):
    lists = dict(events)
    buckets = Buckets()
    copy_period(buckets.s3, COPY, buckets.announce(1, "ab"))
    details = [buckets.announce(1 + version, lists[version]) for version, _ in events]

    def work(detail: dict[str, Any]) -> Callable[[Callable[[Any], Any]], None]:
        def run(wrap: Callable[[Any], Any]) -> None:
            port = wrap(buckets.s3)
            s3 = SimpleNamespace(exceptions=buckets.s3.exceptions, **{name: getattr(port, name) for name in CALLS})
            with suppress(ClientError):  # the manifest was replaced meanwhile
                copy_period(s3, COPY, detail)

        return run

    seen = [1]

    def readers_see_a_whole_version_and_none_that_is_older() -> None:
        version, names = buckets.copy()
        assert version >= seen[-1]
        assert names == (lists[version - 1] if version > 1 else "ab")
        seen.append(version)

    take_turns([work(each) for each in details], order, after_each=readers_see_a_whole_version_and_none_that_is_older)
    for detail in details:  # Lambda repeats what has failed
        copy_period(buckets.s3, COPY, detail)
    newest = max(lists)
    assert buckets.copy() == (1 + newest, lists[newest])
    buckets.assert_exact()


def test_the_query_of_the_page_reads_the_members_of_packed_files_and_all_rows_of_others(buckets, tmp_path):
    """In any order of the files, also without packed ones."""
    packed = {"id": ["former", "a", "b"], "_object": ["old", "1", "2"], "_row": [0, 0, 0]}
    other = {"id": ["old", "c"], "_object": ["old", "3"], "_row": [0, 0]}
    contents = {"x.packed": (packed, ["1", "2"]), "y.packed": (other, ["old", "3"]), "own": ({"id": ["d"]}, None)}
    for version, names in enumerate((["x.packed", "y.packed", "own"], ["own", "y.packed", "x.packed"], ["own"]), 1):
        files, expected = [], 0
        for name in names:
            columns, members = contents[name]
            sink = io.BytesIO()
            pq.write_table(pa.table(columns), sink)
            key = f"raw/source=clicks/date=2026-11-27/hour=15/{name}.parquet"
            buckets.objects[RAW, key] = sink.getvalue()
            events = len(members) if members else 1
            file = {"uri": f"s3://{RAW}/{key}", "events": events, "bytes": len(sink.getvalue())}
            files.append(file | ({"members": members} if members else {}))
            expected += events
        copy_period(buckets.s3, COPY, buckets.announce_files(version, f"list{version}", files, stored=expected))
        for (bucket, key), content in buckets.objects.items():
            path = tmp_path / bucket / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        [query] = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        result = duckdb.connect().execute(query.replace("s3://COPIES", str(tmp_path / COPY))).fetchall()
        assert result == [(expected,)]
