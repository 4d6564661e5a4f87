"""Files of any size as S3 takes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from slackwater.aws import objects
from slackwater.aws.objects import S3ObjectStore
from slackwater.errors import CloudError

pytestmark = pytest.mark.unit

URI = "s3://raw/landing/a.csv"


def refused(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "Put")


class S3:
    """A bucket with conditional writes, whole or in parts; some calls fail."""

    def __init__(self, *failures: str) -> None:
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.parts: dict[int, bytes] = {}
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
        self._write(Key, Body.read(), Metadata)

    def create_multipart_upload(self, *, Bucket, Key, Metadata):  # noqa: N803
        self.metadata = Metadata
        return {"UploadId": "u"}

    def upload_part(self, *, Bucket, Key, UploadId, PartNumber, Body):  # noqa: N803
        self.calls.append("part")
        self.parts[PartNumber] = Body
        return {"ETag": f"e{PartNumber}"}

    def complete_multipart_upload(self, *, Bucket, Key, UploadId, MultipartUpload, IfNoneMatch):  # noqa: N803
        assert (UploadId, IfNoneMatch) == ("u", "*")
        assert MultipartUpload["Parts"] == [{"PartNumber": n, "ETag": f"e{n}"} for n in sorted(self.parts)]
        self._write(Key, b"".join(self.parts[n] for n in sorted(self.parts)), self.metadata)


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(objects, "MAX_SINGLE_PUT", 10)
    monkeypatch.setattr(objects, "PART", 4)
    monkeypatch.setattr("time.sleep", lambda _: None)


@pytest.mark.parametrize(("size", "calls"), [(0, ["whole"]), (10, ["whole"]), (11, ["part"] * 3), (12, ["part"] * 3)])
@pytest.mark.parametrize("failures", [[], ["ConditionalRequestConflict"] * 4])
def test_a_file_is_written_once(tmp_path: Path, size, calls, failures):
    path, s3 = tmp_path / "file", S3(*failures)
    path.write_bytes(bytes(range(size)))
    store = S3ObjectStore(s3)
    assert store.put_new_file(URI, path, metadata={"rows": "1"})
    assert s3.calls == (calls * (1 + len(failures)) if calls == ["whole"] else calls)
    assert s3.objects == {"landing/a.csv": (bytes(range(size)), {"rows": "1"})}
    assert not store.put_new_file(URI, path)


@pytest.mark.parametrize("size", [1, 11])
@pytest.mark.parametrize("failures", [["InternalError"], ["ConditionalRequestConflict"] * 5])
def test_a_refusal_names_the_object(tmp_path: Path, size, failures):
    path = tmp_path / "file"
    path.write_bytes(bytes(size))
    with pytest.raises(CloudError, match=f"write {URI}"):
        S3ObjectStore(S3(*failures)).put_new_file(URI, path)
