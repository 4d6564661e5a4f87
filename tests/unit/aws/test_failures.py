"""Errors of AWS, and what they become."""

from __future__ import annotations

import pytest
from botocore import exceptions
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

from slackwater.aws.failures import translated, unless_refused
from slackwater.errors import AccessDenied, CloudError, ObjectMissing, Throttled, Unavailable

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("404", ObjectMissing),
        ("403", AccessDenied),
        ("503", Throttled),
        ("SlowDown", Throttled),
        ("RequestLimitExceeded", Throttled),
        ("TransactionConflictException", Throttled),
        ("TransactionInProgressException", Throttled),
        ("500", Unavailable),
        ("502", Unavailable),
        ("504", Unavailable),
        ("InternalError", Unavailable),
        ("InternalServerError", Unavailable),
        ("InternalServiceException", Unavailable),
        ("RequestTimeout", Unavailable),
        ("ServiceUnavailable", Unavailable),
        ("TransactionCanceledException", CloudError),
        ("ConditionalCheckFailedException", CloudError),
    ],
)
def test_an_error_of_aws_says_whether_to_try_again_later(code, expected):
    with pytest.raises(expected) as raised, translated("do it"):
        raise ClientError({"Error": {"Code": code, "Message": "no"}}, "Call")
    assert type(raised.value) is expected
    assert str(raised.value) == f"could not do it: {code}: no"


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        *(
            (reasons, Throttled)
            for reason in ("ThrottlingError", "ProvisionedThroughputExceeded", "TransactionConflict")
            for reasons in ((reason, "None"), ("None", reason))
        ),
        (("ValidationError", "None"), CloudError),
        (("ConditionalCheckFailed", "None"), CloudError),
        (("ThrottlingError", "ItemCollectionSizeLimitExceeded"), CloudError),
    ],
)
def test_a_transaction_that_was_cancelled_for_temporary_reasons_only_is_throttled(reasons, expected):
    details = {"Error": {"Code": "TransactionCanceledException", "Message": f"reasons {reasons}"}}
    with pytest.raises(expected) as raised, translated("do it"):
        raise ClientError(details | {"CancellationReasons": [{"Code": reason} for reason in reasons]}, "Call")
    assert type(raised.value) is expected
    assert str(raised.value) == f"could not do it: TransactionCanceledException: reasons {reasons}"


def test_a_call_is_refused_with_the_expected_code_or_raises_its_error():
    def refuse():
        raise ClientError({"Error": {"Code": "NotThere", "Message": "no"}}, "Call")

    assert unless_refused("NotThere", refuse) is None
    with pytest.raises(ClientError, match="NotThere"):
        unless_refused("NotAllowed", refuse)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (500, "SomethingBroke", Unavailable),
        (502, "SomethingBroke", Unavailable),
        (503, "SlowDown", Throttled),
        (504, "SomethingBroke", Unavailable),
        (400, "SomethingBroke", CloudError),
        (501, "NotImplemented", CloudError),
    ],
)
def test_an_unknown_error_is_tried_again_if_its_http_status_says_that_the_server_failed(status, code, expected):
    response = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    with pytest.raises(expected) as raised, translated("do it"):
        raise ClientError(response, "Call")
    assert type(raised.value) is expected


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ReadTimeoutError(endpoint_url="https://s3"),
        exceptions.ConnectTimeoutError(endpoint_url="https://s3"),
        exceptions.ConnectionClosedError(endpoint_url="https://s3"),
        exceptions.SSLError(endpoint_url="https://s3", error="EOF"),
        exceptions.ResponseStreamingError(error="the connection broke"),
        exceptions.IncompleteReadError(actual_bytes=1, expected_bytes=2),
        ResponseParserError("no element found"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_call_whose_response_does_not_arrive_is_tried_again_later(error):
    with pytest.raises(Unavailable, match=r"^could not do it: ") as raised, translated("do it"):
        raise error
    assert str(error) in str(raised.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_local_cloud_that_does_not_run_has_an_error_that_names_the_remedy(host):
    with pytest.raises(Unavailable) as raised, translated("do it"):
        raise exceptions.EndpointConnectionError(endpoint_url=f"http://{host}:4566/bucket/key")
    assert str(raised.value) == (
        f"could not do it: the local cloud at http://{host}:4566 does not answer: start it with `slackwater local up`"
    )


@pytest.mark.parametrize("url", ["https://s3.eu-west-1.amazonaws.com/", "https://10.0.0.7:4566/", "http://[", ""])
def test_an_endpoint_that_does_not_answer_is_named(url):
    with pytest.raises(Unavailable) as raised, translated("do it"):
        raise exceptions.EndpointConnectionError(endpoint_url=url)
    assert str(raised.value) == (
        f'could not do it: the endpoint does not answer (Could not connect to the endpoint URL: "{url}")'
    )


def test_a_call_with_invalid_arguments_is_not_tried_again():
    with pytest.raises(CloudError) as raised, translated("do it"):
        raise exceptions.ParamValidationError(report="no bucket")
    assert type(raised.value) is CloudError
