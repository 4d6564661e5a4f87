"""Everything that writes objects of a source encrypts them with the source's KMS key, and other objects with none."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from glue_jobs import fetch_file as fetch_job
from lambdas import fetch_file
from slackwater.aws import connect, objects
from slackwater.aws.dynamodb import file_cache
from slackwater.aws.function_resources import function_resources
from slackwater.aws.objects import S3ObjectStore
from slackwater.project.project import Project
from slackwater.receiver.pull import large_files
from slackwater.sources.definition import Source
from slackwater.sources.kms_keys import format_source_keys, parse_source_keys
from tests.fakes_receiver import MemoryConnector, MemoryFileCache, a_source
from tests.pulling import FIRST, csv_of, row
from tests.pulling import Setup as Pull
from tests.pushing import Setup, pushed_body

pytestmark = pytest.mark.unit

KEY = "arn:aws:kms:eu-west-1:123456789012:key/0a-1b"
OTHER = "arn:aws:kms:eu-west-1:123456789012:key/2c-3d"
ENCRYPTED = ("aws:kms", KEY, True)
PROJECT = Project(sources={"things": a_source(), "others": a_source(source="others")}, pipelines={})
EVENTS = b'{"id": "a", "at": "2013-03-11T12:00:00Z", "count": 1}\n{"id": "b"}'
FILE = csv_of(row("a"), "bad\n")


class S3:
    """A bucket that records how each object is to be encrypted."""

    def __init__(self) -> None:
        self.encryption: dict[str, tuple[Any, ...]] = {}

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        if Key != "project.json":
            raise ClientError({"Error": {"Code": "NoSuchKey", "Message": "no"}}, "GetObject")
        return {"Body": io.BytesIO(PROJECT.model_dump_json(by_alias=True).encode())}

    def put_object(self, *, Bucket: str, Key: str, **arguments: Any) -> None:  # noqa: N803
        names = ("ServerSideEncryption", "SSEKMSKeyId", "BucketKeyEnabled")
        self.encryption[Key] = tuple(arguments[name] for name in names if name in arguments)

    def create_multipart_upload(self, **arguments: Any) -> dict[str, Any]:
        self.put_object(**arguments)
        return {"UploadId": "u"}

    def upload_part(self, **_: Any) -> dict[str, Any]:
        return {"ETag": "e"}

    def complete_multipart_upload(self, **_: Any) -> None:
        pass

    def of_folders(self) -> dict[str, set[tuple[Any, ...]]]:
        """The encryption of all written objects, by the folder and source of their keys."""
        found: dict[str, set[tuple[Any, ...]]] = {}
        for key, encryption in self.encryption.items():
            found.setdefault("/".join(key.split("/")[:2]), set()).add(encryption)
        return found


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> S3:
    """The bucket of functions whose environment has a key for the source `things`."""
    s3 = S3()
    nothing = SimpleNamespace(batch_create_partition=lambda **_: {}, update_item=lambda **_: {})
    clients = {"s3": s3, "glue": nothing, "dynamodb": nothing}
    monkeypatch.setattr(boto3.session.Session, "client", lambda _, service, *, config: clients.get(service))
    names = ("TOKEN_TABLE", "EVENT_QUEUE_URL", "FILE_TABLE", "STATE_TABLE", "OUTBOUND_ALLOW", "ARRIVAL_QUEUE_URL")
    names = (*names, "JOB_NETWORK")
    values = {"RAW_BUCKET": "raw", "PROJECT_URI": "s3://assets/project.json", "SOURCE_KMS_KEYS": f"things={KEY}"}
    for name, value in {**dict.fromkeys(names, ""), **values}.items():
        monkeypatch.setenv(name, value)
    return s3


@pytest.mark.parametrize(("source", "encryption"), [("things", ENCRYPTED), ("others", ())])
def test_pushed_events_their_rejects_and_their_receipt(s3: S3, source: str, encryption: tuple[Any, ...]) -> None:
    receiver = function_resources.__wrapped__().events_api.receiver
    receiver.store(receiver.check(pushed_body(EVENTS), PROJECT.source(source)))
    assert s3.of_folders() == {f"{name}/source={source}": {encryption} for name in ("raw", "sideline", "receipts")}


@pytest.mark.parametrize(("source", "encryption"), [("things", ENCRYPTED), ("others", ())])
def test_events_of_the_queue(s3: S3, source: str, encryption: tuple[Any, ...]) -> None:
    receiver = function_resources.__wrapped__().receiver
    definition = PROJECT.source(source)
    receiver.write_events([Setup(definition).checked_events({"id": "a", "at": "2013-03-11T12:00:00Z"})])
    assert s3.of_folders() == {f"raw/source={source}": {encryption}}


@pytest.mark.parametrize(("source", "encryption"), [("things", ENCRYPTED), ("others", ())])
def test_rejected_events_that_are_sent_again(s3: S3, source: str, encryption: tuple[Any, ...]) -> None:
    redriver = function_resources.__wrapped__().redriver
    definition, setup = PROJECT.source(source), Setup(PROJECT.source(source))
    setup.push([{"id": "a", "at": "2013-03-11T12:00:00Z", "count": "many"}])
    [uri] = setup.store.uris("/sideline/")
    # It reads from the fake, and writes to the bucket.
    redriver.receiver.raw_writer.store.get, redriver.receiver.raw_writer.store.list = setup.store.get, setup.store.list
    batch = uri.rpartition("/")[2].removesuffix(".jsonl")
    corrected = definition.model_copy(update={"null_values": ("many",)})
    redriver.redrive(corrected, "2013-03-12", batch, rule=None, dry_run=False)
    assert s3.of_folders() == {f"{name}/source={source}": {encryption} for name in ("raw", "redriven")}


def fetch_with_function(source: Source) -> None:
    fetcher = fetch_file.fetcher(function_resources.__wrapped__())
    fetcher.fetch(source=source.source, work="s3://x/work", index=0, correlation_id="c")


def fetch_with_job(source: Source) -> None:
    words = [
        *("--project=s3://assets/project.json", f"--source={source.source}", "--work=s3://x/work", "--index=0"),
        *("--answer=s3://exchange/pulls/answer.json", "--correlation-id=c", "--raw-bucket=raw"),
        *("--file-table=files", f"--source-kms-keys=things={KEY}"),
    ]
    fetch_job.fetch_file(fetch_job.parse(words))


@pytest.fixture(params=[fetch_with_function, fetch_with_job])
def fetch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, s3: S3) -> Callable[[Source], None]:
    """What fetches a source's only file."""
    [item] = Pull({FIRST: FILE}).plan().items
    for module in (large_files, fetch_job):
        monkeypatch.setattr(module, "read_item", lambda *_: item)
    monkeypatch.setattr(connect, "connector_of", lambda *_, **__: nullcontext(MemoryConnector({FIRST: FILE})))
    monkeypatch.setattr(file_cache, "DynamoFileCache", lambda *_: MemoryFileCache())
    function: Callable[[Source], None] = request.param
    return function


@pytest.mark.parametrize("single_put", [objects.MAX_SINGLE_PUT, 10])
@pytest.mark.parametrize(("source", "encryption"), [("things", ENCRYPTED), ("others", ())])
def test_fetched_files_their_rows_and_their_rejects(  # noqa: PLR0917
    s3: S3, monkeypatch: pytest.MonkeyPatch, fetch: Any, source: str, encryption: Any, single_put: int
) -> None:
    monkeypatch.setattr(objects, "MAX_SINGLE_PUT", single_put)  # larger files are uploaded in parts
    fetch(PROJECT.source(source))
    folders = s3.of_folders()
    assert folders.pop("pulls/answer.json", {()}) == {()}  # the exchange bucket
    assert folders == {f"{name}/source={source}": {encryption} for name in ("raw", "sideline", "landing")}


@pytest.mark.parametrize("uri", ["s3://raw/raw/source=things", "s3://x/runs/a/source=things/b", "s3://x/raw/source=/b"])
def test_an_object_of_no_source_has_no_key(uri: str, tmp_path: Path) -> None:
    s3 = S3()
    S3ObjectStore(s3, source_keys={"things": KEY}).put(uri, b"")
    assert set(s3.encryption.values()) == {()}


def test_keys_are_one_string_in_the_environment_of_functions() -> None:
    keys = {"things": KEY, "others": OTHER}
    assert parse_source_keys(format_source_keys(keys)) == keys
    assert parse_source_keys(f" things={KEY} ,,others={OTHER},") == keys
    assert parse_source_keys("") == {}


@pytest.mark.parametrize(
    ("value", "message"),
    [("things", "'things' is not"), ("=a", "'=a' is not"), ("a=", "'a=' is not"), ("a=x,a=y", "source 'a' has two")],
)
def test_what_is_no_mapping_is_named(value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_source_keys(value)
