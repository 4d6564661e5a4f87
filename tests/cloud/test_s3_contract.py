"""Our S3 code on the local cloud and on a second S3: conditional writes, uploads in parts, names of objects."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from slackwater.aws import objects
from slackwater.aws.clients import CONFIG
from slackwater.aws.objects import S3ObjectStore
from slackwater.aws.s3_connector import S3Connector
from slackwater.errors import FileVanished, ObjectMissing
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.pull_config import PullConfig
from tests import versitygw

pytestmark = pytest.mark.cloud

BUCKET = "contract"
MB = 2**20
WRITERS = 6


@pytest.fixture(scope="module", params=["local cloud", "versitygw"])
def s3(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The client of an S3 with an empty bucket, with the configuration of our functions and jobs."""
    if request.param == "local cloud":
        yield prepared(request.getfixturevalue("bare").cloud.endpoint)
        return
    if not versitygw.PROGRAM.exists():
        pytest.skip("no versitygw here: `make peers` builds it, where Go is installed")
    with versitygw.serve(tmp_path_factory.mktemp("versitygw")) as endpoint:
        yield prepared(endpoint)


def prepared(endpoint: str) -> Any:
    session = boto3.session.Session(versitygw.ACCESS_KEY, versitygw.SECRET_KEY, region_name="us-east-1")
    s3 = session.client("s3", endpoint_url=endpoint, config=CONFIG)
    s3.create_bucket(Bucket=BUCKET)  # in this region, a second call changes nothing
    return s3


@pytest.fixture
def store(s3: Any, monkeypatch: pytest.MonkeyPatch) -> S3ObjectStore:
    """The store, which writes files of more than 5 MB in parts of 5 MB: the smallest part that S3 accepts."""
    monkeypatch.setattr(objects, "PART", 5 * MB)
    monkeypatch.setattr(objects, "MAX_SINGLE_PUT", 5 * MB)
    return S3ObjectStore(s3)


def uri(key: str) -> str:
    return f"s3://{BUCKET}/{key}"


def file_of(folder: Path, number: int, size: int) -> Path:
    path = folder / f"{number}"
    path.write_bytes(bytes([number]) * size)
    return path


def test_an_object_is_written_once_with_its_metadata(store):
    assert store.put_new(uri("once/a"), b"first", metadata={"rows": "1", "path": "a%2Fb"})
    assert not store.put_new(uri("once/a"), b"second")
    assert (store.get(uri("once/a")), store.metadata(uri("once/a"))) == (b"first", {"rows": "1", "path": "a%2Fb"})
    store.put(uri("once/a"), b"third")
    assert store.get(uri("once/a")) == b"third"
    store.delete([uri("once/a")])
    assert store.put_new(uri("once/a"), b"")
    assert store.get(uri("once/a")) == b""


@pytest.mark.parametrize("body", [b"a", b""])
def test_an_object_is_replaced_and_deleted_only_in_the_version_that_was_read(s3, store, body):
    key = uri(f"versions/{len(body)}")
    assert store.head(key) is None
    assert store.put_new(key, body, metadata={"attempt": "1"})
    first = store.head(key)
    assert store.put_if_match(key, body, etag=first.etag, metadata={"attempt": "2"})
    second = store.head(key)
    assert (first.metadata, second.metadata) == ({"attempt": "1"}, {"attempt": "2"})
    assert not store.put_if_match(key, b"late", etag=first.etag, metadata={})
    assert not store.delete_if_match(key, etag=first.etag)
    assert store.get(key) == body
    with ThreadPoolExecutor(WRITERS) as pool:
        bodies = [bytes([number]) for number in range(WRITERS)]
        written = list(pool.map(lambda new: store.put_if_match(key, new, etag=second.etag, metadata={}), bodies))
    assert written.count(True) == 1
    assert store.get(key) == bodies[written.index(True)]
    assert store.delete_if_match(key, etag=store.head(key).etag)
    assert store.head(key) is None
    assert not store.delete_if_match(key, etag=second.etag)
    assert not store.put_if_match(key, b"late", etag=second.etag, metadata={})
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET)


@pytest.mark.parametrize("size", [0, 5 * MB, 5 * MB + 1, 10 * MB])
def test_a_file_is_written_once_whole_or_in_parts(s3, store, tmp_path, size):
    key = f"files/{size}"
    assert store.put_new_file(uri(key), file_of(tmp_path, 1, size), metadata={"rows": "1"})
    assert not store.put_new_file(uri(key), file_of(tmp_path, 2, size))
    assert not store.put_new(uri(key), b"other")
    assert store.get(uri(key)) == bytes([1]) * size
    assert store.metadata(uri(key)) == {"rows": "1"}
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET)


@pytest.mark.parametrize("sizes", [[1] * WRITERS, [5 * MB + 1] * WRITERS, [1, 5 * MB + 1] * (WRITERS // 2)])
def test_of_several_writers_of_one_key_one_writes(s3, store, tmp_path, sizes):
    key = f"raced/{len(set(sizes))}-{sizes[0]}"
    paths = [file_of(tmp_path, number, size) for number, size in enumerate(sizes)]
    with ThreadPoolExecutor(WRITERS) as pool:
        written = list(pool.map(lambda path: store.put_new_file(uri(key), path), paths))
    assert written.count(True) == 1
    assert store.get(uri(key)) == paths[written.index(True)].read_bytes()
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET)


def test_a_refused_write_has_the_code_that_our_code_expects(s3, store):
    store.put(uri("codes/a"), b"a")
    with pytest.raises(ClientError) as refused:
        s3.put_object(Bucket=BUCKET, Key="codes/a", Body=b"b", IfNoneMatch="*")
    assert refused.value.response["Error"]["Code"] == "PreconditionFailed"
    with pytest.raises(ClientError) as changed:
        s3.get_object(Bucket=BUCKET, Key="codes/a", IfMatch='"0"')
    assert changed.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412


def test_a_part_of_an_object_is_read(store):
    store.put(uri("range/a"), bytes(range(100)))
    assert store.get_range(uri("range/a"), 10, 5) == bytes(range(10, 15))
    assert store.get_range(uri("range/a"), 99, 1) == b"c"


def test_a_range_costs_the_local_cloud_what_it_returns(bare):
    s3, content = prepared(bare.cloud.endpoint), bytes(range(256)) * (16 * MB // 256)
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    s3.put_object(Bucket=BUCKET, Key="ranges/a", Body=content)
    before, starts = bytes_read(bare.cloud.pid), range(1, 16 * MB, MB)
    for start in starts:
        part = s3.get_object(Bucket=BUCKET, Key="ranges/a", Range=f"bytes={start}-{start + 999}")
        assert part["Body"].read() == content[start : start + 1000]
    assert bytes_read(bare.cloud.pid) - before < len(content)
    [first] = s3.list_object_versions(Bucket=BUCKET, Prefix="ranges/")["Versions"]
    s3.put_object(Bucket=BUCKET, Key="ranges/a", Body=b"second")
    with pytest.raises(ClientError):
        s3.get_object(Bucket=BUCKET, Key="ranges/a", Range="bytes=6-")
    for version, expected in (({}, b"second"), ({"VersionId": first["VersionId"]}, content)):
        assert s3.get_object(Bucket=BUCKET, Key="ranges/a", **version)["Body"].read() == expected
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Suspended"})


def bytes_read(pid: int) -> int:
    """Return the bytes that a process has read from files and connections since its start."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["rchar"])


@pytest.mark.parametrize(
    "read", [S3ObjectStore.get, S3ObjectStore.metadata, lambda store, key: store.get_range(key, 0, 1)]
)
def test_a_missing_object_is_reported_as_missing(store, read):
    with pytest.raises(ObjectMissing):
        read(store, uri("missing/a"))


def test_objects_with_any_name_are_listed_in_order_and_deleted(store):
    names = ["a b", "date=2013-03-08/hour=05/x.parquet", "q?x=1&y", "p%20+", "x#y", "ü/☃", "it's (1)!", "~"]
    uris = sorted(uri(f"names/{name}") for name in names)
    for name in uris:
        store.put(name, name.encode())
    listed = list(store.list(uri("names/")))
    assert [item.uri for item in listed] == uris
    assert [item.size for item in listed] == [len(name.encode()) for name in uris]
    assert [item.uri for item in store.list(uri("names/"), start_after=uris[2])] == uris[3:]
    assert [store.get(name) for name in uris] == [name.encode() for name in uris]
    store.delete([*uris, uri("names/missing")])
    assert list(store.list(uri("names/"))) == []


# The local cloud would take many seconds.
@pytest.mark.parametrize("s3", ["versitygw"], indirect=True)
def test_more_than_a_thousand_objects_are_listed_and_deleted(store):
    uris = [uri(f"many/{number:04}") for number in range(1001)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: store.put(name, b""), uris))
    assert [item.uri for item in store.list(uri("many/"))] == uris
    assert [item.uri for item in store.list(uri("many/"), start_after=uri("many"))] == uris
    store.delete(uris)
    assert list(store.list(uri("many/"))) == []


class BreaksOff:
    """An S3 client whose first download breaks off after one block; then the object changes."""

    def __init__(self, s3: Any, change: Any) -> None:
        self._s3, self._change, self.conditions = s3, change, list[Any]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._s3, name)

    def get_object(self, **request: Any) -> Any:
        self.conditions.append(request.get("IfMatch"))
        response = self._s3.get_object(**request)
        if len(self.conditions) == 1:
            response["Body"] = self
        return response

    def iter_chunks(self, size: int) -> Iterator[bytes]:
        yield b"a" * size
        self._change()
        raise ReadTimeoutError(endpoint_url="http://s3")

    def close(self) -> None:
        pass


@pytest.mark.parametrize("changed", [False, True])
def test_a_partners_file_is_resumed_only_if_it_has_not_changed(s3, store, changed):
    old, new = b"a" * (2 * MB), b"b" * (MB + 1)
    name = f"orders-2013-03-08-{changed}.csv"
    store.put(uri(f"partner/{name}"), old)
    broken = BreaksOff(s3, lambda: store.put(uri(f"partner/{name}"), new) if changed else None)
    config = PullConfig(url=uri("partner"), files="orders-{date}-*.csv")
    partner = S3Connector(config, s3=broken, max_file_bytes=10 * MB, sleep=lambda _: None)
    (listed,) = [file for file in partner.list(FilePattern(config.files), [date(2013, 3, 8)]) if file.name == name]
    content = io.BytesIO()
    download = partner.fetch(name, content)
    assert content.getvalue() == (new if changed else old)
    assert (download.etag == listed.etag) is not changed
    assert len(broken.conditions) == (3 if changed else 2)
    with pytest.raises(FileVanished):
        partner.fetch("missing.csv", io.BytesIO())
