from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.response import StreamingBody
from urllib3.exceptions import ProtocolError

from slackwater.aws.connect import role_session
from slackwater.aws.s3_connector import S3Connector
from slackwater.errors import FileTooLarge, FileVanished, PartnerError
from slackwater.receiver.connectors.connector import ATTEMPTS
from slackwater.sources.file_pattern import FilePattern
from slackwater.sources.pull_config import PullConfig

pytestmark = pytest.mark.unit

DAYS = [date(2013, 3, 8), date(2013, 3, 9)]
NAME = "x-2013-03-08.csv"
WRITTEN = datetime(2013, 3, 8, 12, tzinfo=UTC)
ROLE = "arn:aws:iam::123456789012:role/exports"
BIG = bytes(range(256)) * 2**14 + b"an odd end"
"""Four blocks and a bit."""


class Raw(io.BytesIO):
    """A connection that is lost after some bytes, or that ends too early."""

    def __init__(self, content: bytes, sent: int | None, error: Exception | None) -> None:
        super().__init__(content if sent is None else content[:sent])
        self._error = error if sent is not None else None

    def read(self, amount=-1):
        block = super().read(amount)
        if not block and self._error:
            raise self._error
        return block


class Bucket:
    """The S3 operations that a partner uses; a page of a listing holds two keys."""

    def __init__(self, *keys: str, name: str = "theirs") -> None:
        self.name = name
        self.objects: dict[str, bytes] = {key: key.encode() for key in keys}
        self.prefixes: list[str] = []
        self.ranges: list[str | None] = []
        self.sent_bytes: list[int] = []
        """Bytes that each of the next responses sends before it breaks off."""
        self.error: Exception | None = ProtocolError("Connection broken")
        self.denied: set[str] = set()
        self.hides_missing = False
        """Whether a missing key is denied, as without the permission to list the bucket."""
        self.before_get: Callable[[], None] = lambda: None
        self.bodies: list[Raw] = []

    def get_paginator(self, operation):
        assert operation == "list_objects_v2"
        return self

    def paginate(self, *, Bucket, Prefix):  # noqa: N803
        self.prefixes.append(Prefix)
        self._allow("ListObjectsV2", Bucket)
        keys = sorted(key for key in self.objects if key.startswith(Prefix))
        for start in range(0, len(keys), 2):
            yield {"Contents": [self._item(key) for key in keys[start : start + 2]]}
        if not keys:
            yield {"KeyCount": 0}

    def list_objects_v2(self, *, Bucket, Prefix, MaxKeys):  # noqa: N803
        self._allow("ListObjectsV2", Bucket)
        keys = sorted(key for key in self.objects if key.startswith(Prefix))[:MaxKeys]
        return {"Contents": [self._item(key) for key in keys]} if keys else {"KeyCount": 0}

    def get_object(self, *, Bucket, Key, Range=None, IfMatch=None):  # noqa: N803
        self.before_get()
        self.ranges.append(Range)
        self._allow("GetObject", Bucket)
        if Key not in self.objects:
            raise failure("GetObject", "AccessDenied" if self.hides_missing else "NoSuchKey")
        content, etag = self.objects[Key], self._item(Key)["ETag"]
        if IfMatch not in {None, etag}:
            raise failure("GetObject", "PreconditionFailed")
        rest = content[int(Range.removeprefix("bytes=").removesuffix("-")) if Range else 0 :]
        self.bodies.append(Raw(rest, self.sent_bytes.pop(0) if self.sent_bytes else None, self.error))
        return {"Body": StreamingBody(self.bodies[-1], len(rest)), "ContentLength": len(rest), "ETag": etag}

    def _item(self, key: str) -> dict[str, object]:
        etag = f'"{hashlib.md5(self.objects[key], usedforsecurity=False).hexdigest()}-2"'
        return {"Key": key, "Size": len(self.objects[key]), "LastModified": WRITTEN, "ETag": etag}

    def _allow(self, operation: str, bucket: str) -> None:
        if bucket != self.name:
            raise failure(operation, "NoSuchBucket")
        if operation in self.denied:
            raise failure(operation, "AccessDenied")


def failure(operation: str, code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "as S3 says"}}, operation)


def partner(
    bucket: Bucket, *, url="s3://theirs/exports/acme/", role=None, max_file_bytes=2**30, slept=None
) -> S3Connector:
    pull = PullConfig(url=url, files="{date}", role=role)
    return S3Connector(
        pull, s3=bucket, max_file_bytes=max_file_bytes, sleep=(slept if slept is not None else []).append
    )


def names(s3_connector: S3Connector, pattern: str) -> list[str]:
    return [file.name for file in s3_connector.list(FilePattern(pattern), DAYS)]


def fetched(s3_connector: S3Connector, name: str = NAME) -> bytes:
    target = io.BytesIO(b"what an earlier attempt has left" * 2**20)
    download = s3_connector.fetch(name, target)
    content = target.getvalue()
    assert (download.size, download.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    return content


class TestList:
    def test_a_listed_file_has_name_size_time_and_etag(self):
        (file,) = partner(Bucket("exports/acme/x-2013-03-08.csv")).list(FilePattern("x-{date}.csv"), DAYS)
        etag = hashlib.md5(b"exports/acme/x-2013-03-08.csv", usedforsecurity=False).hexdigest()
        assert file.model_dump() == {"name": NAME, "size": 29, "modified": WRITTEN, "etag": f"{etag}-2"}

    @pytest.mark.parametrize("url", ["s3://theirs", "s3://theirs/", "s3://theirs/a", "s3://theirs/a/b/"])
    def test_names_are_relative_to_the_url(self, url):
        folder = url.removeprefix("s3://theirs").strip("/")
        bucket = Bucket(f"{folder}/{NAME}".lstrip("/"), f"other/{NAME}", f"{folder}beside/{NAME}")
        s3_connector = partner(bucket, url=url)
        assert names(s3_connector, "x-{date}.csv") == [NAME]
        assert fetched(s3_connector) == f"{folder}/{NAME}".lstrip("/").encode()

    @pytest.mark.parametrize(
        ("pattern", "prefixes"),
        [
            ("x-{date}*.csv", ["exports/acme/x-2013-03-08", "exports/acme/x-2013-03-09"]),
            ("{date:%Y/%m}/{hour}-*.csv", ["exports/acme/2013/03/"]),
            ("*-{date}.csv", ["exports/acme/"]),
        ],
    )
    def test_only_the_needed_prefixes_are_listed(self, pattern, prefixes):
        bucket = Bucket()
        assert names(partner(bucket), pattern) == []
        assert bucket.prefixes == prefixes

    def test_all_pages_are_listed_without_duplicates_and_folders(self):
        expected = [f"2013/03/{hour:02d}.csv" for hour in range(5)]
        others = ["2013/03/", "2013/03/00.txt", "2013/04/00.csv"]
        bucket = Bucket(*(f"exports/acme/{name}" for name in [*expected, *others]))
        assert names(partner(bucket), "{date:%Y/%m}/{hour}.csv") == expected
        assert names(partner(bucket), "{date:%Y/%m}/00*") == ["2013/03/00.csv", "2013/03/00.txt"]
        assert len(names(partner(bucket), "{date:%Y/%m}/*")) == 6

    def test_a_matching_key_that_cannot_be_fetched_is_reported(self):
        bucket = Bucket("exports/acme/2013/\x07", "exports/acme//2013/x", "exports/acme/2013/\\")
        assert names(partner(bucket), "{date:%Y}/x") == []
        with pytest.raises(PartnerError, match=r"s3://theirs/exports/acme: '2013/.*' cannot be fetched: .*rename"):
            names(partner(bucket), "{date:%Y}/*")


class TestFetch:
    @pytest.mark.parametrize("content", [b"", b"x", BIG], ids=len)
    def test_the_content_of_a_file_is_unchanged(self, content):
        bucket = Bucket()
        bucket.objects[f"exports/acme/{NAME}"] = content
        assert fetched(partner(bucket)) == content
        assert [body.closed for body in bucket.bodies] == [True]

    def test_the_etag_is_that_of_the_listing(self):
        s3_connector = partner(Bucket(f"exports/acme/{NAME}"))
        (listed,) = s3_connector.list(FilePattern("x-{date}.csv"), DAYS)
        assert s3_connector.fetch(NAME, io.BytesIO()).etag == listed.etag

    @pytest.mark.parametrize("error", [ProtocolError("Connection broken"), None], ids=["lost", "ends early"])
    def test_a_broken_download_resumes_at_the_break(self, error):
        bucket, slept = Bucket(), []
        bucket.objects[f"exports/acme/{NAME}"] = BIG
        bucket.error, bucket.sent_bytes = error, [2**20 + 5, 0, 7]
        assert fetched(partner(bucket, slept=slept)) == BIG
        assert bucket.ranges == [None, "bytes=1048581-", "bytes=1048581-", "bytes=1048588-"]
        assert len(slept) == 3
        assert all(body.closed for body in bucket.bodies)

    def test_a_file_that_changes_before_the_resume_is_fetched_from_the_start(self):
        bucket = Bucket()
        bucket.objects[f"exports/acme/{NAME}"] = BIG
        bucket.sent_bytes = [2**20]

        def change() -> None:
            if bucket.ranges:
                bucket.objects[f"exports/acme/{NAME}"] = BIG[::-1]

        bucket.before_get = change
        assert fetched(partner(bucket)) == BIG[::-1]
        assert bucket.ranges == [None, "bytes=1048576-", None]

    def test_a_download_without_any_bytes_restarts(self):
        bucket = Bucket(f"exports/acme/{NAME}")
        bucket.sent_bytes = [0]
        assert fetched(partner(bucket)) == f"exports/acme/{NAME}".encode()
        assert bucket.ranges == [None, None]

    def test_a_download_that_breaks_off_each_time_is_reported(self):
        bucket, slept = Bucket(f"exports/acme/{NAME}"), []
        bucket.sent_bytes = [0] * 10
        with pytest.raises(PartnerError, match=r"broke off after 0 of 29 bytes"):
            partner(bucket, slept=slept).fetch(NAME, io.BytesIO())
        assert len(bucket.ranges) == ATTEMPTS == len(slept) + 1

    @pytest.mark.parametrize("hides_missing", [False, True])
    def test_a_missing_file_is_reported_as_vanished(self, hides_missing):
        bucket = Bucket(f"exports/acme/{NAME}.more")
        bucket.hides_missing = hides_missing
        with pytest.raises(FileVanished, match=f"s3://theirs/exports/acme/{NAME}: listed, but gone"):
            partner(bucket).fetch(NAME, io.BytesIO())
        assert bucket.ranges == [None]

    def test_the_size_of_a_file_is_limited(self):
        bucket = Bucket(f"exports/acme/{NAME}")
        assert len(fetched(partner(bucket, max_file_bytes=29))) == 29
        with pytest.raises(FileTooLarge, match="29 bytes, and the limit is 28"):
            partner(bucket, max_file_bytes=28).fetch(NAME, io.BytesIO())
        assert all(body.closed for body in bucket.bodies)


class TestFailures:
    @pytest.mark.parametrize(
        ("role", "remedy"),
        [
            (None, "the bucket's policy has to let this account list and read {where}; or name a `role` that may"),
            (ROLE, f"{ROLE} has to be allowed to list and read {{where}}"),
        ],
        ids=["own account", "role of theirs"],
    )
    def test_the_error_of_a_denied_request_names_the_remedy(self, role, remedy):
        bucket = Bucket(f"exports/acme/{NAME}")
        remedy = remedy.format(where="s3://theirs/exports/acme/")
        bucket.denied = {"ListObjectsV2"}
        with pytest.raises(PartnerError) as failed:
            names(partner(bucket, role=role), "x-{date}*.csv")
        assert str(failed.value) == (
            f"could not list s3://theirs/exports/acme/x-2013-03-08: AccessDenied: as S3 says ({remedy})"
        )
        bucket.denied = {"GetObject"}
        with pytest.raises(PartnerError) as failed:
            partner(bucket, role=role).fetch(NAME, io.BytesIO())
        assert str(failed.value) == (
            f"could not read s3://theirs/exports/acme/{NAME}: AccessDenied: as S3 says ({remedy})"
        )

    def test_the_error_of_a_denied_role_names_the_trust_policy(self):
        bucket = Bucket(f"exports/acme/{NAME}")

        def refuse() -> None:
            raise failure("AssumeRole", "AccessDenied")

        bucket.before_get = refuse
        with pytest.raises(PartnerError, match=rf"the trust policy of {ROLE} has to name"):
            partner(bucket, role=ROLE).fetch(NAME, io.BytesIO())

    def test_a_missing_bucket_is_reported(self):
        with pytest.raises(PartnerError, match=r"could not list s3://nobodys/.*: NoSuchBucket"):
            names(partner(Bucket(), url="s3://nobodys/"), "x-{date}.csv")

    def test_an_unreachable_endpoint_is_reported(self):
        bucket, slept = Bucket(f"exports/acme/{NAME}"), []

        def refuse() -> None:
            raise EndpointConnectionError(endpoint_url="https://s3")

        bucket.before_get = refuse
        with pytest.raises(PartnerError, match=r"could not read s3://theirs/.*https://s3"):
            partner(bucket, slept=slept).fetch(NAME, io.BytesIO())
        assert slept == []  # the client has tried again by itself


class Sts:
    """Returns numbered credentials that expire."""

    def __init__(self, lifetime: timedelta) -> None:
        self.requests: list[dict[str, str]] = []
        self.lifetime = lifetime

    def assume_role(self, **request):
        self.requests.append(request)
        number = f"{len(self.requests)}"
        ends = datetime.now(UTC) + self.lifetime
        names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
        return {"Credentials": {**{name: f"{name}{number}" for name in names}, "Expiration": ends}}


class TestRole:
    def test_the_role_is_assumed_on_first_use(self):
        sts = Sts(timedelta(hours=1))
        session = role_session(ROLE, sts=sts, name="slackwater-things")
        assert sts.requests == []
        for _ in range(2):
            keys = session.get_credentials().get_frozen_credentials()
            assert keys[:3] == ("AccessKeyId1", "SecretAccessKey1", "SessionToken1")
        assert sts.requests == [{"RoleArn": ROLE, "RoleSessionName": "slackwater-things"}]

    def test_the_role_is_assumed_again_before_its_credentials_expire(self):
        sts = Sts(timedelta(minutes=9))
        credentials = role_session(ROLE, sts=sts, name="n").get_credentials()
        assert [credentials.get_frozen_credentials().access_key for _ in range(2)] == ["AccessKeyId1", "AccessKeyId2"]
