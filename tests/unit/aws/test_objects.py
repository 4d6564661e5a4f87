"""Files of any size as S3 takes them."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from hashlib import md5
from pathlib import Path
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

from slackwater.aws import objects
from slackwater.aws.objects import S3ObjectStore
from slackwater.errors import AccessDenied, CloudError, Throttled, Unavailable
from tests.pauses import record_pauses

pytestmark = pytest.mark.unit

URI = "s3://raw/landing/a.csv"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "Put")


class S3:
    """A bucket with conditional writes, whole or in parts; some writes fail.

    As S3 documents it, an upload in parts does not survive a conflict.
    """

    def __init__(self, *failures: str) -> None:
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.uploads: dict[str, tuple[dict[int, bytes], dict[str, str]]] = {}
        self.failures, self.calls = list(failures), list[str]()

    def _write(self, key: str, body: bytes, metadata: dict[str, str]) -> None:
        if self.failures:
            raise refused(self.failures.pop(0))
        if key in self.objects:
            raise refused("PreconditionFailed")
        self.objects[key] = (body, metadata)

    def put_object(self, *, Bucket, Key, Body, Metadata, IfNoneMatch):  # noqa: N803
        self.calls.append("whole")
        assert IfNoneMatch == "*"
        self._write(Key, Body if isinstance(Body, bytes) else Body.read(), Metadata)

    def _upload(self, upload: str) -> tuple[dict[int, bytes], dict[str, str]]:
        if upload not in self.uploads:
            raise refused("NoSuchUpload")
        return self.uploads[upload]

    def create_multipart_upload(self, *, Bucket, Key, Metadata):  # noqa: N803
        upload = f"u{len(self.calls)}"
        self.uploads[upload] = ({}, Metadata)
        return {"UploadId": upload}

    def upload_part(self, *, Bucket, Key, UploadId, PartNumber, Body):  # noqa: N803
        self.calls.append("part")
        self._upload(UploadId)[0][PartNumber] = Body
        return {"ETag": f"e{PartNumber}"}

    def complete_multipart_upload(self, *, Bucket, Key, UploadId, MultipartUpload, IfNoneMatch):  # noqa: N803
        assert IfNoneMatch == "*"
        parts, metadata = self._upload(UploadId)
        assert MultipartUpload["Parts"] == [{"PartNumber": n, "ETag": f"e{n}"} for n in sorted(parts)]
        if self.failures[:1] == ["ConditionalRequestConflict"]:
            del self.uploads[UploadId]
        self._write(Key, b"".join(parts[n] for n in sorted(parts)), metadata)
        del self.uploads[UploadId]

    def abort_multipart_upload(self, *, Bucket, Key, UploadId):  # noqa: N803
        self._upload(UploadId)
        del self.uploads[UploadId]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(objects, "MAX_SINGLE_PUT", 10)
    monkeypatch.setattr(objects, "PART", 4)
    record_pauses(monkeypatch, "slackwater.aws.objects")


@pytest.mark.parametrize(("size", "calls"), [(0, ["whole"]), (10, ["whole"]), (11, ["part"] * 3), (12, ["part"] * 3)])
@pytest.mark.parametrize("failures", [[], ["ConditionalRequestConflict"] * 4])
def test_a_file_is_written_once(tmp_path: Path, size, calls, failures):
    path, s3 = tmp_path / "file", S3(*failures)
    path.write_bytes(bytes(range(size)))
    store = S3ObjectStore(s3)
    assert store.put_new_file(URI, path, metadata={"rows": "1"})
    assert s3.calls == calls * (1 + len(failures))
    assert s3.objects == {"landing/a.csv": (bytes(range(size)), {"rows": "1"})}
    assert not store.put_new_file(URI, path)


@pytest.mark.parametrize("size", [1, 11])
@pytest.mark.parametrize("failures", [["InternalError"], ["ConditionalRequestConflict"] * 5])
def test_a_refusal_names_the_object(tmp_path: Path, size, failures):
    path, s3 = tmp_path / "file", S3(*failures)
    path.write_bytes(bytes(size))
    with pytest.raises(CloudError, match=f"write {URI}"):
        S3ObjectStore(s3).put_new_file(URI, path)
    assert (s3.failures, s3.uploads, s3.objects) == ([], {}, {})


class VersionedS3:
    """An object that is written and deleted with `If-Match`; its ETag is computed as S3 does."""

    def __init__(self, body):
        self.body, self.etag = body, f'"{md5(body, usedforsecurity=False).hexdigest()}"'

    def _check(self, condition):
        if self.etag is None:
            raise refused("NoSuchKey")
        if condition != self.etag:
            raise refused("PreconditionFailed")

    def head_object(self, *, Bucket, Key):  # noqa: N803
        if self.etag is None:
            raise refused("404")
        return {"ETag": self.etag, "Metadata": {"attempt": "1"}, "ContentLength": 1, "LastModified": NOW}

    def put_object(self, *, Bucket, Key, Body, Metadata, IfMatch):  # noqa: N803
        self._check(IfMatch)
        self.__init__(Body)

    def delete_object(self, *, Bucket, Key, IfMatch):  # noqa: N803
        self._check(IfMatch)
        self.etag = None

    def create_multipart_upload(self, *, Bucket, Key, Metadata):  # noqa: N803
        return {"UploadId": "u"}

    def upload_part(self, *, Bucket, Key, UploadId, PartNumber, Body):  # noqa: N803
        self.part = Body
        return {"ETag": f'"{md5(Body, usedforsecurity=False).hexdigest()}"'}

    def complete_multipart_upload(self, *, Bucket, Key, UploadId, MultipartUpload, IfMatch):  # noqa: N803
        self._check(IfMatch)
        [part] = MultipartUpload["Parts"]
        digest = md5(bytes.fromhex(part["ETag"].strip('"')), usedforsecurity=False).hexdigest()
        self.body, self.etag = self.part, f'"{digest}-1"'

    def abort_multipart_upload(self, *, Bucket, Key, UploadId):  # noqa: N803
        pass


@pytest.mark.parametrize("body", [b"a", b"", b"other"])
def test_a_write_over_a_version_changes_the_etag_also_with_the_same_content(body):
    s3 = VersionedS3(b"" if body == b"" else b"a")
    store = S3ObjectStore(s3)
    first = store.head(URI)
    assert first.metadata == {"attempt": "1"}
    assert store.put_if_match(URI, body, etag=first.etag, metadata={"attempt": "2"})
    second = store.head(URI)
    assert (s3.body, second.etag != first.etag) == (body, True)
    assert not store.put_if_match(URI, b"late", etag=first.etag, metadata={})
    assert not store.delete_if_match(URI, etag=first.etag)
    assert store.delete_if_match(URI, etag=second.etag)
    assert store.head(URI) is None
    assert not store.delete_if_match(URI, etag=second.etag)
    assert not store.put_if_match(URI, b"late", etag=second.etag, metadata={})


def test_bytes_are_written_again_after_a_conflict():
    s3 = S3(*["ConditionalRequestConflict"] * 4)
    assert S3ObjectStore(s3).put_new(URI, b"a")
    assert s3.objects["landing/a.csv"] == (b"a", {})


def test_an_upload_in_parts_starts_again_when_it_was_removed_before_its_end(tmp_path: Path):
    path, s3 = tmp_path / "file", S3()
    path.write_bytes(bytes(range(11)))
    complete = s3.complete_multipart_upload

    def remove_first(**request: object) -> None:
        s3.complete_multipart_upload = complete
        s3.uploads.clear()
        complete(**request)

    s3.complete_multipart_upload = remove_first
    assert S3ObjectStore(s3).put_new_file(URI, path)
    assert s3.calls == ["part"] * 6
    assert s3.objects["landing/a.csv"][0] == bytes(range(11))


@pytest.mark.parametrize("failure", ["PreconditionFailed", "InternalError", "AccessDenied"])
def test_the_parts_of_a_refused_upload_are_removed(tmp_path: Path, failure):
    path, s3 = tmp_path / "file", S3(failure)
    path.write_bytes(bytes(range(11)))
    with suppress(CloudError, AccessDenied):
        S3ObjectStore(s3).put_new_file(URI, path)
    assert s3.uploads == {}


@pytest.mark.parametrize(
    ("code", "expected"), [("InternalError", Unavailable), ("SlowDown", Throttled), ("InvalidRequest", CloudError)]
)
def test_an_object_that_s3_fails_to_delete_says_whether_to_try_again_later(code, expected):
    # The call succeeds even if S3 refuses single objects.
    response = {"Errors": [{"Key": "landing/a.csv", "Code": code, "Message": "no"}]}
    with pytest.raises(expected, match=f"could not delete {URI}: {code}: no") as raised:
        S3ObjectStore(SimpleNamespace(delete_objects=lambda **_: response)).delete([URI])
    assert type(raised.value) is expected
