"""Translate AWS's errors to Slackwater's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from botocore import exceptions
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError, NoCredentialsError
from botocore.parsers import ResponseParserError

from slackwater.errors import AccessDenied, CloudError, ObjectMissing, SlackwaterError, Throttled, Unavailable

# Services have different codes for the same error. "404" and "403" come from HEAD requests: their responses have no
# body, so botocore reports the HTTP status.
_ERRORS: dict[str, type[SlackwaterError]] = {
    "NoSuchKey": ObjectMissing,
    "404": ObjectMissing,
    "AccessDenied": AccessDenied,
    "AccessDeniedException": AccessDenied,
    "403": AccessDenied,
    "AuthorizationError": AccessDenied,
    "SlowDown": Throttled,
    "Throttled": Throttled,
    "Throttling": Throttled,
    "ThrottlingException": Throttled,
    "TooManyRequestsException": Throttled,
    "ProvisionedThroughputExceededException": Throttled,
    "RequestLimitExceeded": Throttled,
    "TransactionConflictException": Throttled,
    "TransactionInProgressException": Throttled,
    "503": Throttled,
    "500": Unavailable,
    "ConditionalRequestConflict": Unavailable,
    "502": Unavailable,
    "504": Unavailable,
    "InternalError": Unavailable,
    "InternalFailure": Unavailable,
    "InternalServerError": Unavailable,
    "InternalServerException": Unavailable,
    "InternalServiceError": Unavailable,
    "InternalServiceException": Unavailable,
    "OperationTimeoutException": Unavailable,
    "PriorRequestNotComplete": Unavailable,
    "RequestTimeout": Unavailable,
    "RequestTimeoutException": Unavailable,
    "ServiceUnavailable": Unavailable,
    "ServiceUnavailableException": Unavailable,
}
# Any other code with one of these HTTP statuses is `Unavailable` too. botocore retries the same statuses.
_TEMPORARY_STATUSES = frozenset({500, 502, 503, 504})
# No response, or a part of one. botocore does not repeat a call when the connection breaks while a body is read.
_CONNECTION_ERRORS = (
    exceptions.ConnectionError,
    exceptions.HTTPClientError,
    exceptions.IncompleteReadError,
    ResponseParserError,
)
# Reasons for which DynamoDB cancels a transaction that may succeed later. The other documented reasons say that the
# transaction itself has to change: ConditionalCheckFailed, ValidationError, ItemCollectionSizeLimitExceeded.
_TEMPORARY_REASONS = frozenset({"ThrottlingError", "ProvisionedThroughputExceeded", "TransactionConflict"})

Result = TypeVar("Result")
_LOOPBACK = re.compile(r"https?://(127\.0\.0\.1|localhost|\[::1\])(:\d+)?(?=/|$)")


def stopped_local_cloud(url: str) -> str | None:
    """Return the error of a loopback URL to which nothing connects, with its remedy; None for any other URL."""
    endpoint = _LOOPBACK.match(url)
    if endpoint is None:
        return None
    return f"the local cloud at {endpoint[0]} does not answer: start it with `slackwater local up`"


def code_of(error: ClientError) -> str:
    """Return the service's own error code.

    >>> code_of(ClientError({"Error": {"Code": "NoSuchKey"}}, "GetObject"))
    'NoSuchKey'
    """
    return str(error.response.get("Error", {}).get("Code", ""))


def unless_refused(code: str, call: Callable[[], Result]) -> Result | None:
    """Return the result of a call of a service; None if the service refuses it with this error code.

    >>> unless_refused("NoSuchKey", lambda: 1)
    1
    """
    try:
        return call()
    except ClientError as error:
        if code_of(error) != code:
            raise
        return None


def error_type(code: str) -> type[SlackwaterError]:
    """Return the type of the error with this code of a service."""
    return _ERRORS.get(code, CloudError)


def cancellation_reasons(error: ClientError) -> frozenset[str]:
    """Return the codes of the reasons why DynamoDB has cancelled a transaction; none for any other error."""
    # One reason for each action of the transaction; `None` stands for an action without an error.
    reasons = error.response.get("CancellationReasons", [])
    return frozenset(reason["Code"] for reason in reasons if reason.get("Code", "None") != "None")


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise AWS's errors in this block as Slackwater's. `what` completes "could not ...", as in "read s3://..."."""
    try:
        yield
    except ClientError as error:
        message = error.response.get("Error", {}).get("Message", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        reasons = cancellation_reasons(error)
        translation = error_type(code_of(error))
        if reasons and reasons <= _TEMPORARY_REASONS:
            translation = Throttled
        elif translation is CloudError and status in _TEMPORARY_STATUSES:
            translation = Unavailable
        raise translation(f"could not {what}: {code_of(error)}: {message}") from error
    except NoCredentialsError as error:
        raise AccessDenied(
            f"could not {what}: no AWS credentials (set AWS_PROFILE, or start the local cloud)"
        ) from error
    except EndpointConnectionError as error:
        reason = stopped_local_cloud(error.kwargs["endpoint_url"]) or f"the endpoint does not answer ({error})"
        raise Unavailable(f"could not {what}: {reason}") from error
    except _CONNECTION_ERRORS as error:
        raise Unavailable(f"could not {what}: {error}") from error
    except BotoCoreError as error:
        raise CloudError(f"could not {what}: {error}") from error
