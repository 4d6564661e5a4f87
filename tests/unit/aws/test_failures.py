"""Errors of AWS, and what they become."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from slackwater.aws.failures import translated
from slackwater.errors import AccessDenied, CloudError, ObjectMissing, Throttled

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
        ("TransactionCanceledException", CloudError),
        ("ConditionalCheckFailedException", CloudError),
    ],
)
def test_an_error_of_aws_says_whether_to_try_again_later(code, expected):
    with pytest.raises(expected) as raised, translated("do it"):
        raise ClientError({"Error": {"Code": code, "Message": "no"}}, "Call")
    assert type(raised.value) is expected
    assert str(raised.value) == f"could not do it: {code}: no"
