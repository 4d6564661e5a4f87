"""Lines of functions in CloudWatch Logs: requests by botocore's model, pages, and errors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.stub import Stubber

from slackwater.aws.executions.function_logs import FunctionLogs, filter_pattern
from slackwater.errors import AccessDenied, CloudError

pytestmark = pytest.mark.unit

START = datetime(2013, 3, 11, 6, 0, 0, 250_000, tzinfo=UTC)
REQUEST = {
    "logGroupName": "/aws/lambda/mine-freeze-inputs",
    "filterPattern": '"c-1"',
    "startTime": 1362981600250,
    "endTime": 1362981610250,
}


@pytest.fixture
def logs():
    client = boto3.client("logs", region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    with Stubber(client) as stub:
        yield FunctionLogs(logs=client, prefix="mine"), stub


def read(logs):
    return list(logs.lines("freeze-inputs", containing="c-1", start=START, end=START + timedelta(seconds=10)))


def test_all_pages_of_the_time_range_are_read_and_only_lines_with_the_string_returned(logs):
    functions, stub = logs
    pages = [(["c-1 first", "C-1"], "next"), ([], "more"), (["last c-1"], None)]
    token = None
    for messages, following in pages:
        events = [{"timestamp": 1362981600250 + number, "message": text} for number, text in enumerate(messages)]
        request = REQUEST | ({"nextToken": token} if token else {})
        stub.add_response(
            "filter_log_events", {"events": events, **({"nextToken": following} if following else {})}, request
        )
        token = following
    assert [(line.at, line.message) for line in read(functions)] == [(START, "c-1 first"), (START, "last c-1")]
    stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    ("code", "error"), [("AccessDeniedException", AccessDenied), ("ResourceNotFoundException", CloudError)]
)
def test_an_error_names_the_log_group(logs, code, error):
    functions, stub = logs
    stub.add_client_error("filter_log_events", code, "logs:FilterLogEvents")
    with pytest.raises(error, match=r"could not read the log group /aws/lambda/mine-freeze-inputs: .*FilterLogEvents"):
        read(functions)


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        ("0f3b-c", '"0f3b-c"'),
        ("nightly/2013-03-10#1 (c)", '"nightly/2013-03-10"'),
        ('a"b\\longest"c', '"longest"'),
        ("ü", ""),
        ("", ""),
    ],
)
def test_a_pattern_has_only_characters_that_a_quoted_term_may_have(value, pattern):
    assert filter_pattern(value) == pattern
