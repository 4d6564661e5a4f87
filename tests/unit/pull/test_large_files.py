"""Files that are too large for a function: the input of their job, and its result."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from slackwater.errors import CloudError, FileTooLarge, PartnerError
from slackwater.receiver.connectors.connector import ListedFile
from slackwater.receiver.pull.fetch_result import FetchResult, FetchState
from slackwater.receiver.pull.large_files import FunctionFetcher, expect_function_size, failure_reason_uri, job_result
from slackwater.receiver.pull.plan import FileDecision, WorkItem
from tests.fakes_receiver import MemoryStore, a_source

pytestmark = pytest.mark.unit

WORK = "s3://exchange/pulls/things/c-1.json"
ANSWER = "s3://exchange/pulls/things/c-1/job.json"


def item(size: int | None, *, is_listed: bool = True, killed: int = 0) -> WorkItem:
    listed = ListedFile(name="a.csv", size=size) if is_listed else None
    return WorkItem(path="a.csv", decision=FileDecision.NEW, listed=listed, killed_attempts=killed)


@pytest.mark.parametrize(
    "small_item",
    [item(9), item(None), item(None, is_listed=False), item(1, killed=1)],
    ids=["9", "unknown", "unlisted", "killed"],
)
def test_a_function_fetches_small_files_and_files_of_unknown_size(small_item):
    expect_function_size(small_item, max_bytes=9)


@pytest.mark.parametrize(
    ("large_item", "message"),
    [
        (item(10), "^a.csv: 10 bytes, and a function fetches up to 9$"),
        (item(1, killed=2), "its function was killed 2 times"),
    ],
)
def test_a_function_refuses_a_file_above_its_limit_or_that_has_killed_two(large_item, message):
    with pytest.raises(FileTooLarge, match=message):
        expect_function_size(large_item, max_bytes=9)


def test_every_job_has_its_own_id_and_answer_uri():
    store, large = MemoryStore(), item(10**12)
    store.put(WORK, f"[{large.model_dump_json()}]".encode())
    source = a_source(pull={"url": "https://files.example", "files": "{date}.csv"})
    fetcher = FunctionFetcher(source=lambda _: source, store=store, fetch_file=Mock(), jobs_have_network=True)
    jobs = [fetcher.fetch(source="things", work=WORK, index=0, correlation_id="c-1") for _ in range(2)]
    for job in jobs:
        assert job.reason.startswith("a.csv: 1,000,000,000,000 bytes")
        assert job.model_dump(mode="json") == {
            "state": "large",
            "source": "things",
            "work": WORK,
            "index": 0,
            "correlation_id": "c-1",
            "job": job.job,
            "answer": f"s3://exchange/pulls/things/c-1/{job.job}.json",
        }
    assert jobs[0].job != jobs[1].job


def test_the_result_of_a_job_is_read_from_the_store():
    store, result = MemoryStore(), FetchResult(path="a.csv", state=FetchState.STORED, rows=7, bytes=70)
    store.put(ANSWER, result.model_dump_json().encode())
    assert job_result(store, ANSWER) == result


def test_a_failed_job_raises_its_reason():
    store = MemoryStore()
    store.put(failure_reason_uri(ANSWER), b"DataError: a.csv: empty")
    with pytest.raises(PartnerError, match=r"^DataError: a.csv: empty$"):
        job_result(store, ANSWER)


def test_a_long_reason_of_a_job_is_cut_and_names_its_object():
    store = MemoryStore()
    store.put(failure_reason_uri(ANSWER), b"y" * 300_000)
    with pytest.raises(PartnerError) as raised:
        job_result(store, ANSWER)
    assert str(raised.value) == "y" * 4000 + f"... (300,000 characters; all: {failure_reason_uri(ANSWER)})"


@pytest.mark.parametrize(
    "refused", ["", "EMRServerless.AccessDeniedException: not authorized to perform: iam:PassRole"]
)
def test_a_job_without_result_or_reason_is_an_error_with_that_of_the_call_that_starts_it(refused):
    start = f"{refused}; " if refused else ""
    message = f"^{start}the job left neither a result nor a reason at {ANSWER}: read the job's logs"
    with pytest.raises(CloudError, match=message):
        job_result(MemoryStore(), ANSWER, job_error=refused)
