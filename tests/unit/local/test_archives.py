"""The archives of jobs, with a fake of S3's answers."""

from __future__ import annotations

import hashlib
import io
import zipfile

import pytest

from slackwater.errors import CloudError, InputError
from slackwater.local.emr import runner
from slackwater.local.emr.runner import SparkRunner
from slackwater.local.emr.spark import Image
from slackwater.local.unpacked import Unpacked

pytestmark = pytest.mark.unit

URI = "s3://code/environment.zip"


class FakeS3:
    """One object; it counts the requests for its content."""

    def __init__(self, content: bytes) -> None:
        self.content, self.fetched = content, 0
        self.next: bytes | None = None
        """The content after the next request."""
        self.has_etags = True

    def request(self, _: object, method: str, __: str) -> tuple[str, bytes]:
        etag = f'"{hashlib.md5(self.content).hexdigest()}"' if self.has_etags else ""  # noqa: S324
        answer = etag, self.content if method == "GET" else b""
        self.fetched += method == "GET"
        self.content, self.next = self.next or self.content, None
        return answer


def packed(value: str) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("marker.py", value)
    return content.getvalue()


@pytest.fixture
def s3(monkeypatch) -> FakeS3:
    fake = FakeS3(packed("first"))
    monkeypatch.setattr(runner, "request_object", fake.request)
    return fake


@pytest.fixture
def spark_runner(tmp_path) -> SparkRunner:
    return SparkRunner(
        image=Image("", tmp_path, Unpacked(tmp_path / "archives")), folder=tmp_path, credentials=lambda _: {}
    )


def test_an_archive_is_fetched_again_only_if_it_has_changed(s3, spark_runner):
    first = spark_runner._unpack(URI, {})
    assert spark_runner._unpack(URI, {}) == first
    assert ((first / "marker.py").read_text(), s3.fetched) == ("first", 1)
    s3.content = packed("second")
    assert (spark_runner._unpack(URI, {}) / "marker.py").read_text() == "second"
    assert (first / "marker.py").read_text() == "first"  # a job that runs uses it


def test_an_archive_that_cannot_be_unpacked_is_fetched_again(s3, spark_runner):
    good, s3.content = s3.content, b"PK broken"
    with pytest.raises(InputError, match=r"s3://code/environment\.zip cannot be unpacked"):
        spark_runner._unpack(URI, {})
    s3.content = good
    assert (spark_runner._unpack(URI, {}) / "marker.py").exists()


def test_the_same_content_at_another_uri_is_not_fetched_again(s3, spark_runner):
    assert spark_runner._unpack(URI, {}) == spark_runner._unpack("s3://code/other.zip", {})
    assert s3.fetched == 1


def test_an_archive_that_changes_before_it_is_fetched_is_not_kept_as_the_one_before(s3, spark_runner):
    first, s3.next = s3.content, packed("second")
    assert (spark_runner._unpack(URI, {}) / "marker.py").read_text() == "second"
    s3.content = first
    assert (spark_runner._unpack(URI, {}) / "marker.py").read_text() == "first"
    s3.next = packed("second")
    s3.content = packed("third")
    assert (spark_runner._unpack(URI, {}) / "marker.py").read_text() == "second"


def test_an_archive_without_an_etag_is_an_error_that_names_it(s3, spark_runner):
    s3.has_etags = False
    with pytest.raises(CloudError, match=f"no ETag for {URI}"):
        spark_runner._unpack(URI, {})
